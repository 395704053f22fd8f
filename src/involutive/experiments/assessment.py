"""How converged after b steps? A bound on the KL divergence from the posterior, in nats.

The figure the paper lacks. Chains start from a law X that has found the modes of mog6 and mog2_1d
but is too narrow and weights them wrongly. `assess` bounds the symmetric KL divergence between the
law after b steps and the target, for independent proposals as a well-learned kernel makes them,
HMC, A-NICE-MC and a random walk. Local moves repair the width in a few steps and keep the weights
of X: their bounds stop falling at the divergence between the weights, drawn as a dotted line.

The bound needs X/p to be rarely larger than M. From a broad X, such as N(0, I) on mog6, w = X/p
at the origin is about exp(49) and no feasible M gives a useful bound, whatever the kernel does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import Identity
from flowjax.distributions import AbstractDistribution

from involutive import targets
from involutive.auxiliary import GaussianMixture
from involutive.bijections import mlp
from involutive.classical import a_nice_mc, a_nice_network, hmc, random_walk
from involutive.experiments.drawing import panels, style
from involutive.involutions import FunctionBlock
from involutive.kernel import AbstractKernel, Kernel
from involutive.sampling.assess import NORMAL_95, assess

MakeKernel = Callable[["Case"], AbstractKernel]


@dataclass(frozen=True)
class Case:
    """A mixture target, where its modes are, and the law X that chains start from."""

    target: targets.Target
    means: np.ndarray
    sd: float
    start_weights: np.ndarray

    def law(self, weights: np.ndarray, spread: float) -> GaussianMixture:
        """Gaussians at the modes with the given weights, `spread` times as wide as the target's."""
        count, dim = self.means.shape
        covariances = np.repeat((spread * self.sd) ** 2 * np.eye(dim)[None], count, axis=0)
        return GaussianMixture(
            jnp.asarray(weights), jnp.asarray(self.means), jnp.asarray(covariances)
        )

    @property
    def initial(self) -> AbstractDistribution:
        """X: the modes with wrong weights, 0.8 times as wide."""
        return self.law(self.start_weights, 0.8)

    @property
    def weights(self) -> np.ndarray:
        """The exact weights of the modes."""
        return np.asarray(self.target.modes.weights) if self.target.modes else np.ones(1)

    @property
    def floor(self) -> float:
        """The symmetric KL divergence between X's weights and the exact ones."""
        return float(
            np.sum((self.start_weights - self.weights) * np.log(self.start_weights / self.weights))
        )


def cases() -> dict[str, Case]:
    """The two targets by name."""
    angle = np.arange(6) * np.pi / 3
    circle = 5 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    uneven = np.array([0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
    return {
        "mog6": Case(targets.mog6(), circle, 0.5, uneven),
        "mog2_1d": Case(targets.mog2_1d(), np.array([[-0.5], [0.5]]), 0.05, np.array([0.85, 0.15])),
    }


def independent(case: Case) -> AbstractKernel:
    """Independent proposals `φ' = π` from a mixture 1.1 times as wide as the target."""
    block = FunctionBlock(Identity((case.target.dim,)))
    return Kernel(case.target, block, case.law(case.weights, 1.1), case.initial)


def tuned_hmc(case: Case) -> AbstractKernel:
    """HMC with steps of 0.4 sd, five a proposal."""
    return hmc(case.target, 0.4 * case.sd, 5, initial=case.initial)


def untrained_a_nice(case: Case) -> AbstractKernel:
    """A-NICE-MC with a network as it is before training, in units of the modes' width."""
    network = a_nice_network(jr.key(0), case.target.dim, make=mlp(400, last_scale=case.sd))
    return a_nice_mc(case.target, network, case.initial)


def tuned_walk(case: Case) -> AbstractKernel:
    """A random walk with steps as wide as a mode."""
    return random_walk(case.target, case.sd, initial=case.initial)


@dataclass(frozen=True)
class Config:
    """Sizes, and how each kernel is made from a case.

    Attributes:
        seed: of everything.
        steps: the numbers of steps b.
        runs: M.
        starts: runs and posterior draws averaged.
        more_runs: the values of M for the second figure, at `at_steps` steps.
        kernels: label and maker of every kernel; the first is the learned one.
    """

    seed: int = 0
    steps: tuple[int, ...] = (0, 1, 2, 3, 5, 10)
    runs: int = 128
    starts: int = 512
    more_runs: tuple[int, ...] = (2, 4, 16, 64, 256)
    at_steps: int = 3
    kernels: tuple[tuple[str, MakeKernel], ...] = (
        ("independent proposals", independent),
        ("HMC", tuned_hmc),
        ("A-NICE-MC (untrained)", untrained_a_nice),
        ("random walk", tuned_walk),
    )

    @staticmethod
    def quick() -> "Config":
        """Fewer of everything."""
        return Config(steps=(0, 1, 3), runs=64, starts=192, more_runs=(2, 32))


def run(config: Config) -> dict[str, Any]:
    """Assess every kernel on both targets; and the learned one for several M."""
    found = cases()
    bounds, errors, by_runs, run_errors = [], [], [], []
    for number, case in enumerate(found.values()):
        kernels = [make(case) for _, make in config.kernels]
        curves = [
            assess(
                kernel,
                steps=config.steps,
                runs=config.runs,
                starts=config.starts,
                key=_key(config.seed, number, 0),  # the same for all: they start alike
                initial=case.initial,
            )
            for kernel in kernels
        ]
        tighter = [
            assess(
                kernels[0],
                steps=config.at_steps,
                runs=runs,
                starts=config.starts,
                key=_key(config.seed, number, runs),
                initial=case.initial,
            )
            for runs in config.more_runs
        ]
        bounds.append([curve.bounds for curve in curves])
        errors.append([curve.errors for curve in curves])
        by_runs.append([seen.bound for seen in tighter])
        run_errors.append([seen.errors[-1] for seen in tighter])
    return {
        "targets": np.array(list(found)),
        "kernels": np.array([name for name, _ in config.kernels]),
        "steps": np.array(config.steps),
        "runs": config.runs,
        "starts": config.starts,
        "floors": np.array([case.floor for case in found.values()]),
        "bounds": np.array(bounds),
        "errors": np.array(errors),
        "at_steps": config.at_steps,
        "more_runs": np.array(config.more_runs),
        "run_bounds": np.array(by_runs),
        "run_errors": np.array(run_errors),
    }


def _key(seed: int, number: int, part: int) -> Any:
    return jr.fold_in(jr.fold_in(jr.key(seed), number), part)


def table(data: Any) -> list[dict[str, Any]]:
    """One row a target and kernel: the bound for every number of steps, with its 95% margin."""
    rows = []
    for t, target in enumerate(data["targets"]):
        for k, kernel in enumerate(data["kernels"]):
            cells = zip(data["steps"], data["bounds"][t, k], data["errors"][t, k], strict=True)
            row = {"target": str(target), "kernel": str(kernel)}
            row |= {f"b = {b}": f"{x:.3f} ± {NORMAL_95 * e:.3f}" for b, x, e in cells}
            rows.append(row | {"weights of X": float(data["floors"][t])})
    return rows


def claims(data: Any) -> dict[str, bool]:
    """What the curves are to show."""
    at = int(np.argmin(np.abs(data["steps"] - data["at_steps"])))
    learned = data["bounds"][:, 0, at]
    names = [str(name) for name in data["kernels"]]
    local = [i for i, name in enumerate(names) if name in ("HMC", "random walk")]
    last, margin = data["bounds"][:, local, -1], 4 * data["errors"][:, local, -1]
    b, runs = int(data["steps"][at]), int(data["runs"])
    fall = data["run_bounds"][:, 0] - data["run_bounds"][:, -1]
    return {
        f"{names[0]}: below 0.05 nats at b = {b} with M = {runs}": bool((learned < 0.05).all()),
        "HMC and random walk keep the wrong weights of X": bool(
            (last > 0.5 * data["floors"][:, None] - margin).all() and (last > 0.1).all()
        ),
        "the bound falls as M grows": bool((fall > 0).all()),
    }


def draw(data: Any) -> dict[str, Any]:
    """Bounds against steps, a panel a target; and against M."""
    count = len(data["targets"])
    figure, axes = panels(1, count, (4.6 * count, 3.6))
    for t, target in enumerate(data["targets"]):
        panel = axes[0, t]
        for k, name in enumerate(data["kernels"]):
            margin = NORMAL_95 * data["errors"][t, k]
            panel.errorbar(data["steps"], data["bounds"][t, k], margin, label=str(name), **style(k))
        panel.axhline(data["floors"][t], color="#666666", linestyle=":", linewidth=1)
        panel.axhline(0.0, color="#666666", linewidth=0.5)
        panel.set(title=str(target), xlabel="steps b", ylabel="bound on symmetric KL (nats)")
    axes[0, 0].legend(frameon=False, fontsize=8)
    tighter, places = panels(1, 1, (4.6, 3.4))
    for t, target in enumerate(data["targets"]):
        margin = NORMAL_95 * data["run_errors"][t]
        places[0, 0].errorbar(
            data["more_runs"], data["run_bounds"][t], margin, label=str(target), **style(t)
        )
    places[0, 0].set(
        xscale="log", xlabel="chains M", ylabel=f"bound after {int(data['at_steps'])} steps (nats)"
    )
    places[0, 0].axhline(0.0, color="#666666", linewidth=0.5)
    places[0, 0].legend(frameon=False, fontsize=8)
    return {"assessment": figure, "assessment_runs": tighter}

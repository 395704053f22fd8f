"""Convergence after b steps: a bound on the KL divergence from the posterior, in nats.

The paper has no such figure. Chains start from an X that covers the modes of mog6 and mog2_1d but
is too narrow and has the wrong weights. `assess` bounds the symmetric KL divergence between the
distribution after b steps and the target, for the kernel of the default recipe, HMC, A-NICE-MC
after its own training, and a random walk. Local moves repair the width in a few steps and keep the
weights of X: their bounds stop falling at the divergence between the weights, drawn as a dotted
line. A learned kernel has an X of its own, the distribution of its proposal, and is assessed from
that too.

The bound is useful only if X/p rarely exceeds M. From a broad X, such as N(0, I) on mog6, w = X/p
at the origin is about exp(49), and no feasible M gives a useful bound, whatever the kernel does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution, Normal
from jaxtyping import Array, Key

from involutive import targets
from involutive.auxiliary import GaussianMixture
from involutive.core.types import Figure
from involutive.diagnostics.assess import Assessment, assess
from involutive.diagnostics.measured import NORMAL_95
from involutive.experiments.measures import exact, single_precision
from involutive.kernel.classical import a_nice_mc, a_nice_network, hmc, random_walk
from involutive.kernel.kernel import AbstractKernel
from involutive.learning.learn import learn
from involutive.plotting.panels import panels, style
from involutive.training.a_nice import ANice
from involutive.training.fit import TrainConfig, fit

MakeKernel = Callable[["Case", "Config"], AbstractKernel]


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


def learned(case: Case, config: "Config") -> AbstractKernel:
    """The default recipe, from exact draws."""
    key_draws, key_learn = jr.split(jr.key(config.seed))
    rows = exact(case.target, key_draws, config.training_draws)
    return learn(case.target, key=key_learn, samples=rows)


def tuned_hmc(case: Case, config: "Config") -> AbstractKernel:
    """HMC with steps of 0.4 sd, five a proposal."""
    return hmc(case.target, 0.4 * case.sd, 5, initial=case.initial)


def trained_a_nice(case: Case, config: "Config") -> AbstractKernel:
    """A-NICE-MC by its own training, from exact draws and noise N(0, I)."""
    key_draws, key_network, key_fit = jr.split(jr.key(config.seed), 3)
    dim = case.target.dim
    noise = Normal(jnp.zeros(dim), jnp.ones(dim))
    kernel = a_nice_mc(case.target, a_nice_network(key_network, dim), noise)
    rows = exact(case.target, key_draws, config.training_draws)
    steps = config.a_nice_steps
    loop = TrainConfig(steps, min(500, steps), None, seconds=config.seconds)
    return fit(kernel, ANice(), rows, key=key_fit, config=loop, label="A-NICE-MC").kernel


def tuned_walk(case: Case, config: "Config") -> AbstractKernel:
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
        training_draws: exact draws behind the learned kernel and A-NICE-MC.
        a_nice_steps, seconds: the most generator steps, and wall time, of A-NICE-MC's training.
        kernels: label and maker of every kernel; the first is the learned one.
    """

    seed: int = 0
    steps: tuple[int, ...] = (0, 1, 2, 3, 5, 10)
    runs: int = 128
    starts: int = 512
    more_runs: tuple[int, ...] = (2, 4, 16, 64, 256)
    at_steps: int = 3
    training_draws: int = 5000
    a_nice_steps: int = 1500
    seconds: float | None = None
    kernels: tuple[tuple[str, MakeKernel], ...] = (
        ("default recipe", learned),
        ("HMC", tuned_hmc),
        ("A-NICE-MC", trained_a_nice),
        ("random walk", tuned_walk),
    )

    @staticmethod
    def quick() -> "Config":
        """Fewer of everything."""
        small = Config(steps=(0, 1, 3), runs=64, starts=192, more_runs=(2, 32))
        return replace(small, training_draws=2000, a_nice_steps=20)


def run(config: Config) -> dict[str, Any]:
    """Assess every kernel on both targets, and the learned one for several M and from its X."""
    with single_precision():
        return _run(config)


def _run(config: Config) -> dict[str, Any]:
    found = cases()
    parts = [_study(case, config, number) for number, case in enumerate(found.values())]
    return {name: np.array([part[name] for part in parts]) for name in parts[0]} | {
        "targets": np.array(list(found)),
        "kernels": np.array([name for name, _ in config.kernels]),
        "steps": np.array(config.steps),
        "runs": config.runs,
        "starts": config.starts,
        "floors": np.array([case.floor for case in found.values()]),
        "at_steps": config.at_steps,
        "more_runs": np.array(config.more_runs),
    }


def _study(case: Case, config: Config, number: int) -> dict[str, Any]:
    kernels = [make(case, config) for _, make in config.kernels]

    def seen(
        kernel: AbstractKernel,
        part: int,
        law: AbstractDistribution | None,
        steps: int | Sequence[int],
        runs: int,
    ) -> Assessment:
        key = _key(config.seed, number, part)
        return assess(kernel, steps=steps, runs=runs, starts=config.starts, key=key, initial=law)

    # part 0 for all kernels: they start alike
    curves = [seen(k, 0, case.initial, config.steps, config.runs) for k in kernels]
    own = seen(kernels[0], 1, None, config.steps, config.runs)
    tighter = [seen(kernels[0], m, case.initial, config.at_steps, m) for m in config.more_runs]
    return {
        "bounds": [curve.bounds for curve in curves],
        "errors": [curve.errors for curve in curves],
        "own_bounds": own.bounds,
        "own_errors": own.errors,
        "run_bounds": [found.bound for found in tighter],
        "run_errors": [found.errors[-1] for found in tighter],
    }


def _key(seed: int, number: int, part: int) -> Key[Array, ""]:
    return jr.fold_in(jr.fold_in(jr.key(seed), number), part)


def table(data: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per target and kernel: the bound for every number of steps, with its 95% margin."""
    rows = []
    for t, target in enumerate(data["targets"]):
        names = [f"{name}" for name in data["kernels"]]
        lines = [(n, data["bounds"][t, k], data["errors"][t, k]) for k, n in enumerate(names)]
        lines.append((f"{names[0]}, its own X", data["own_bounds"][t], data["own_errors"][t]))
        for name, bounds, errors in lines:
            cells = zip(data["steps"], bounds, errors, strict=True)
            row = {"target": str(target), "kernel": name, "M": int(data["runs"])}
            row |= {f"b = {b}": f"{x:.3f} ± {NORMAL_95 * e:.3f}" for b, x, e in cells}
            rows.append(row | {"weights of X": float(data["floors"][t])})
        for m, x, e in zip(
            data["more_runs"], data["run_bounds"][t], data["run_errors"][t], strict=True
        ):
            cell = {f"b = {int(data['at_steps'])}": f"{x:.3f} ± {NORMAL_95 * e:.3f}"}
            rows.append({"target": str(target), "kernel": names[0], "M": int(m)} | cell)
    return rows


def claims(data: dict[str, Any]) -> dict[str, bool]:
    """What the curves are to show."""
    at = int(np.argmin(np.abs(data["steps"] - data["at_steps"])))
    names = [str(name) for name in data["kernels"]]
    local = [i for i, name in enumerate(names) if name in ("HMC", "random walk")]
    last, margin = data["bounds"][:, local, -1], 4 * data["errors"][:, local, -1]
    b, runs = int(data["steps"][at]), int(data["runs"])
    fall = data["run_bounds"][:, 0] - data["run_bounds"][:, -1]
    ahead = data["bounds"][:, 1:, at].min(axis=1) - data["bounds"][:, 0, at]
    return {
        f"{names[0]}: below 0.05 nats at b = {b} with M = {runs}": bool(
            (data["bounds"][:, 0, at] < 0.05).all()
        ),
        f"{names[0]}, from its own X: the same": bool((data["own_bounds"][:, at] < 0.05).all()),
        f"{names[0]}: a smaller bound than any other's at b = {b}": bool((ahead > 0).all()),
        "HMC and random walk keep the wrong weights of X": bool(
            (last > 0.5 * data["floors"][:, None] - margin).all() and (last > 0.1).all()
        ),
        "the bound falls as M grows": bool((fall > 0).all()),
    }


def draw(data: dict[str, Any]) -> dict[str, Figure]:
    """Bounds against steps, one panel per target; and against M."""
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

"""What each sampler proposes, from every state, on two modes on the line (Figure 1).

The target is an even mixture of N(-0.5, 0.05²) and N(0.5, 0.05²). For a wide and a narrow Gaussian
random walk, HMC, the paper's network trained by `MganConfig.mixing`, and `learn`, which is another
method and named as such: the density of proposals φ' from a grid of states φ, before acceptance,
and the autocorrelation of chains started in the target.
"""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from involutive import targets
from involutive.core.statistics import autocorrelation
from involutive.core.types import Figure
from involutive.experiments.measures import exact, mixing, single_precision
from involutive.experiments.members import trained_network
from involutive.kernel.classical import hmc, random_walk
from involutive.kernel.kernel import AbstractKernel
from involutive.learning.learn import learn
from involutive.plotting.panels import panels
from involutive.sampling.sample import sample

NAMES = (
    "High-variance Gaussian", "Low-variance Gaussian", "Hybrid Monte Carlo",
    "Involutive Neural MCMC", "default recipe (likelihood)",
)  # fmt: skip
EDGE = 1.5  # pictures and distances cover [-EDGE, EDGE]


@dataclass(frozen=True)
class Config:
    """Sizes: the samplers' scales, the draws behind each figure, the draws learned from."""

    seed: int = 0
    wide: float = 1.0
    narrow: float = 0.05
    step_size: float = 0.02
    leaps: int = 4
    train_steps: int = 16_000
    training_draws: int = 20_000
    states: int = 21
    proposals: int = 20_000
    chains: int = 32
    draws: int = 2000
    lags: int = 50

    @staticmethod
    def quick() -> "Config":
        """Fewer draws of everything, and a short training."""
        return Config(
            train_steps=2000, training_draws=4000, states=9, proposals=4000, draws=500, lags=25
        )


def run(config: Config) -> dict[str, Any]:
    """Return proposal densities, distances to the target, autocorrelations and metrics."""
    with single_precision():
        return _run(config)


def _run(config: Config) -> dict[str, Any]:
    keys = jr.split(jr.key(config.seed), 7)
    key_data, key_learn, key_start, key_run, key_propose, key_truth, key_train = keys
    target = targets.mog2_1d()
    samples = exact(target, key_data, config.training_draws)
    kernels = (
        random_walk(target, config.wide),
        random_walk(target, config.narrow),
        hmc(target, config.step_size, config.leaps),
        trained_network(target, key_train, config.train_steps, samples),
        learn(target, key=key_learn, samples=samples[:5000]),
    )
    start = exact(target, key_start, config.chains)
    states = np.linspace(-1.0, 1.0, config.states)
    truth = np.sort(exact(target, key_truth, config.proposals)[:, 0])
    edges = np.linspace(-EDGE, EDGE, 121)
    heights, distances, curves, figures = [], [], [], []
    for i, kernel in enumerate(kernels):
        rows = _proposals(kernel, jnp.asarray(states), jr.fold_in(key_propose, i), config.proposals)
        rows = np.sort(np.asarray(rows), axis=1)
        heights.append([np.histogram(row, edges, density=True)[0] for row in rows])
        distances.append(np.abs(rows - truth[None, :]).mean(axis=1))
        draws = sample(kernel, key=jr.fold_in(key_run, i), num_chains=config.chains,
                       num_samples=config.draws, num_warmup=0, initial=start)  # fmt: skip
        curves.append(autocorrelation(draws.positions[..., 0], config.lags))
        figures.append(mixing(draws))
    columns = {name: np.array([row[name] for row in figures]) for name in figures[0]}
    return columns | {
        "states": states,
        "edges": edges,
        "density": np.array(heights),
        "truth": np.histogram(truth, edges, density=True)[0],
        "distance": np.array(distances),
        "autocorrelation": np.array(curves),
    }


@eqx.filter_jit
def _proposals(kernel: AbstractKernel, states: Array, key: Array, count: int) -> Array:
    """Proposals `(states, count)` from every state."""

    def at(state: Array, key: Array) -> Array:
        start = kernel.init(jnp.reshape(state, (1,)))
        return jax.vmap(lambda k: kernel.step(k, start)[1].proposal[0])(jr.split(key, count))

    return jax.vmap(at)(states, jr.split(key, states.shape[0]))


def table(data: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per sampler."""
    return [
        {
            "sampler": name,
            "acceptance": float(data["acceptance"][i]),
            "ESS per draw": float(data["ESS per draw"][i]),
            "mode changes per draw": float(data["mode changes per draw"][i]),
            "W1 from proposals to target, mean over φ": float(data["distance"][i].mean()),
            "W1, worst φ": float(data["distance"][i].max()),
            "autocorrelation at lag 1": float(data["autocorrelation"][i][1]),
            "at lag 10": float(data["autocorrelation"][i][10]),
        }
        for i, name in enumerate(NAMES)
    ]


def claims(data: dict[str, Any]) -> dict[str, bool]:
    """What the caption of Figure 1 says, and what the paper's network must reach for it."""
    wide, narrow, hamiltonian, trained, recipe = range(5)
    ess, changes = data["ESS per draw"], data["mode changes per draw"]
    curve, distance = data["autocorrelation"], data["distance"].mean(axis=1)
    return {
        "wide Gaussian proposals mix slowly": bool(ess[wide] < 0.1 and changes[wide] > 0),
        "narrow Gaussian proposals never change the mode": bool(changes[narrow] == 0),
        "HMC never changes the mode": bool(changes[hamiltonian] == 0),
        "the paper's network proposes nearest to the posterior of the four": bool(
            distance[trained] < 0.5 * distance[:trained].min()
        ),
        "the paper's network has five times the effective draws of the three": bool(
            ess[trained] > 5 * ess[:trained].max()
        ),
        "its autocorrelation is below 0.05 at lag 10": bool(abs(curve[trained][10]) < 0.05),
        "the default recipe, another method, mixes in one step": bool(
            abs(curve[recipe][1]) < 0.1 and ess[recipe] > 0.7
        ),
    }


def draw(data: dict[str, Any]) -> dict[str, Figure]:
    """The posterior; one trace per state, the density of its proposals; the autocorrelation."""
    count = len(NAMES)
    figure, axes = panels(3, count, (2.4 * count, 6.6), height_ratios=[0.7, 2, 1])
    centres = 0.5 * (data["edges"][1:] + data["edges"][:-1])
    _posterior(axes[0], centres, data["truth"])
    states = data["states"]
    gap = states[1] - states[0]
    for i, name in enumerate(NAMES):
        top, bottom = axes[1, i], axes[2, i]
        for state, heights in zip(states[::-1], data["density"][i][::-1], strict=True):
            trace = state + 1.8 * gap * heights / heights.max()
            top.fill_between(centres, state, trace, facecolor="white", linewidth=0)
            top.plot(centres, trace, color="black", linewidth=0.8)
        top.set_title(name.replace(" (", "\n("), fontsize=9)
        top.set(xlabel="proposal φ'", ylabel="state φ" if i == 0 else "", xlim=(-EDGE, EDGE))
        curve = data["autocorrelation"][i]
        bottom.plot(np.arange(curve.size), curve, color="black")
        bottom.axhline(0.0, color="#999999", linewidth=0.7)
        bottom.set(xlabel="steps", ylabel="autocorrelation" if i == 0 else "", ylim=(-0.2, 1.05))
    return {"proposals": figure}


def _posterior(row: np.ndarray, centres: np.ndarray, truth: np.ndarray) -> None:
    """The panel of the true posterior, and its formula beside it."""
    row[0].fill_between(centres, truth, color="0.7", step="mid")
    row[0].set(xlim=(-EDGE, EDGE), yticks=[], xlabel="φ")
    row[0].set_title("True posterior", fontsize=9)
    for axis in row[1:]:
        axis.set_axis_off()
    note = row[1].text(
        0.0, 0.5, "p(φ) = ½ [N(φ; 0.5, 0.05²) + N(φ; -0.5, 0.05²)]\n\n"
        "Below: densities of proposals φ → φ' before acceptance,\neach trace on its own scale",
        fontsize=9, va="center",
    )  # fmt: skip
    note.set_in_layout(False)  # it may reach over the panels beside it

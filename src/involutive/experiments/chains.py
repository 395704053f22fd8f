"""One long chain on mog6: the paper's network beside HMC (Figure 4).

Densities of the first 100, 1 000 and 10 000 draws of one chain, beside exact draws, and the
autocorrelation of x over chains that start in the target, for the paper's network trained by
`MganConfig.mixing`, HMC, and `learn`, which is another method.
"""

from dataclasses import dataclass
from typing import Any

import jax.random as jr
import numpy as np

from involutive import targets
from involutive.core.statistics import autocorrelation
from involutive.core.types import Figure
from involutive.experiments.measures import exact, mixing, single_precision
from involutive.experiments.members import trained_network
from involutive.kernel.classical import hmc
from involutive.learning.learn import learn
from involutive.plotting.panels import density_image, panels
from involutive.sampling.sample import sample

NAMES = ("Involutive Neural MCMC", "Hybrid Monte Carlo", "default recipe (likelihood)")
EXACT = len(NAMES)  # the row of exact draws


@dataclass(frozen=True)
class Config:
    """Sizes: HMC's step and leaps, chains and draws, the draws learned from."""

    seed: int = 0
    step_size: float = 0.3
    leaps: int = 3
    train_steps: int = 40_000
    training_draws: int = 50_000
    chains: int = 32
    draws: int = 10_000
    lags: int = 50

    @staticmethod
    def quick() -> "Config":
        """1 000 draws, and a short training."""
        return Config(train_steps=4000, draws=1000, training_draws=8000)


def run(config: Config) -> dict[str, Any]:
    """Return one chain of each sampler and metrics over all chains."""
    with single_precision():
        return _run(config)


def _run(config: Config) -> dict[str, Any]:
    keys = jr.split(jr.key(config.seed), 6)
    key_data, key_learn, key_start, key_run, key_true, key_train = keys
    target = targets.mog6()
    samples = exact(target, key_data, config.training_draws)
    start = exact(target, key_start, config.chains)
    kernels = (
        trained_network(target, key_train, config.train_steps, samples),
        hmc(target, config.step_size, config.leaps),
        learn(target, key=key_learn, samples=samples[:5000]),
    )
    runs = [
        sample(kernel, key=jr.fold_in(key_run, i), num_chains=config.chains,
               num_samples=config.draws, num_warmup=0, initial=start)
        for i, kernel in enumerate(kernels)
    ]  # fmt: skip
    found = [mixing(draws) for draws in runs]
    columns = {name: np.array([row[name] for row in found]) for name in found[0]}
    curves = [autocorrelation(draws.positions[..., 0], config.lags) for draws in runs]
    truth = exact(target, key_true, config.draws)
    return columns | {
        "chain": np.stack([*(d.positions[0] for d in runs), truth]).astype(np.float32),
        "autocorrelation": np.array(curves),
        "extent": float(target.extent or 1.0),
    }


def table(data: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per sampler."""
    names = [name for name in data if np.shape(data[name]) == (len(NAMES),)]
    return [
        {"sampler": sampler}
        | {name: data[name][i].item() for name in names}
        | {
            f"autocorrelation of x at lag {k}": float(data["autocorrelation"][i][k])
            for k in (1, 10)
        }
        for i, sampler in enumerate(NAMES)
    ]


def claims(data: dict[str, Any]) -> dict[str, bool]:
    """What the caption of Figure 4 says, of the paper's network and of HMC."""
    curve, visited = data["autocorrelation"], data["modes visited, fewest of a chain"]
    return {
        "the paper's network mixes within 10 steps: autocorrelation below 0.1": bool(
            abs(curve[0][10]) < 0.1
        ),
        "every one of its chains visits all six modes": bool(visited[0] == 6),
        "its mode weights are within 0.03 in total variation": bool(
            data["mode weights off by"][0] < 0.03
        ),
        "HMC does not mix: fewer than one step in 10 000 changes the mode": bool(
            data["mode changes per draw"][1] < 1e-4 and curve[1][10] > 0.9
        ),
    }


def draw(data: dict[str, Any]) -> dict[str, Figure]:
    """Densities by number of draws, and the autocorrelations."""
    total = data["chain"].shape[1]
    counts = [count for count in (100, 1000, 10_000) if count <= total]
    rows = (0, EXACT, 1, 2)
    size, ratios = (2.2 * len(counts) + 3.6, 2.2 * len(rows)), [1] * len(counts) + [1.5]
    figure, axes = panels(len(rows), len(counts) + 1, size, width_ratios=ratios)
    for row, i in enumerate(rows):
        for column, count in enumerate(counts):
            density_image(axes[row, column], data["chain"][i][:count], data["extent"])
            axes[row, column].set_xlabel(f"{count} draws" if row == len(rows) - 1 else "")
        axes[row, 0].set_ylabel((*NAMES, "True samples")[i], fontsize=8)
        axis = axes[row, -1]
        if i == EXACT:
            axis.set_axis_off()
            continue
        curve = data["autocorrelation"][i]
        axis.plot(np.arange(curve.size), curve, color="black")
        axis.axhline(0.0, color="#999999", linewidth=0.7)
        axis.set(xlabel="steps", ylabel="autocorrelation of x", ylim=(-0.2, 1.05))
        axis.set_title(NAMES[i], fontsize=9)
    figure.suptitle("Square root of counts, each panel on its own grey scale", fontsize=9)
    return {"chains": figure}

"""One long chain on mog6: a learned involution beside HMC (Figure 4).

Densities of the first 100, 1 000 and 10 000 draws of one chain, beside exact draws, and the
autocorrelation of x over chains that start in the target.
"""

from dataclasses import dataclass
from typing import Any

import jax.random as jr
import numpy as np

from involutive import targets
from involutive.core.statistics import autocorrelation
from involutive.experiments.measures import exact, mixing
from involutive.kernel.classical import hmc
from involutive.learning.learn import learn
from involutive.plotting.panels import density_image, panels
from involutive.sampling.sample import sample

NAMES = ("learned involution", "HMC")


@dataclass(frozen=True)
class Config:
    """Sizes: HMC's step and leaps, chains and draws, the draws learned from."""

    seed: int = 0
    step_size: float = 0.3
    leaps: int = 3
    training_draws: int = 5000
    chains: int = 32
    draws: int = 10_000
    lags: int = 50

    @staticmethod
    def quick() -> "Config":
        """1 000 draws."""
        return Config(draws=1000, training_draws=2000)


def run(config: Config) -> dict[str, Any]:
    """Return one chain of each sampler and figures over all chains."""
    key_data, key_learn, key_start, key_run, key_true = jr.split(jr.key(config.seed), 5)
    target = targets.mog6()
    learned = learn(target, key=key_learn, samples=exact(target, key_data, config.training_draws))
    start = exact(target, key_start, config.chains)
    runs = [
        sample(kernel, key=jr.fold_in(key_run, i), num_chains=config.chains,
               num_samples=config.draws, num_warmup=0, initial=start)
        for i, kernel in enumerate((learned, hmc(target, config.step_size, config.leaps)))
    ]  # fmt: skip
    figures = [mixing(draws) for draws in runs]
    columns = {name: np.array([row[name] for row in figures]) for name in figures[0]}
    curves = [autocorrelation(draws.positions[..., 0], config.lags) for draws in runs]
    truth = exact(target, key_true, config.draws)
    return columns | {
        "chain": np.stack([*(d.positions[0] for d in runs), truth]).astype(np.float32),
        "autocorrelation": np.array(curves),
        "extent": float(target.extent or 1.0),
    }


def table(data: Any) -> list[dict[str, Any]]:
    """One row a sampler."""
    names = [name for name in data if np.shape(data[name]) == (2,)]
    return [
        {"sampler": sampler}
        | {name: data[name][i].item() for name in names}
        | {
            f"autocorrelation of x at lag {k}": float(data["autocorrelation"][i][k])
            for k in (1, 10)
        }
        for i, sampler in enumerate(NAMES)
    ]


def claims(data: Any) -> dict[str, bool]:
    """What the caption of Figure 4 says."""
    curve, visited = data["autocorrelation"], data["modes visited, fewest of a chain"]
    return {
        "the learned involution mixes completely within 10 steps": bool(abs(curve[0][10]) < 0.05),
        "every learned chain visits all six modes": bool(visited[0] == 6),
        "the learned chains' mode weights are right": bool(data["mode weights off by"][0] < 0.03),
        "HMC does not mix: fewer than one step in 10 000 changes the mode": bool(
            data["mode changes per draw"][1] < 1e-4 and curve[1][10] > 0.9
        ),
    }


def draw(data: Any) -> dict[str, Any]:
    """Densities by number of draws, and the two autocorrelations."""
    total = data["chain"].shape[1]
    counts = [count for count in (100, 1000, 10_000) if count <= total]
    figure, axes = panels(
        3, len(counts) + 1, (2.2 * len(counts) + 3.6, 6.6), width_ratios=[1] * len(counts) + [1.5]
    )
    for row, i in enumerate((0, 2, 1)):
        for column, count in enumerate(counts):
            density_image(axes[row, column], data["chain"][i][:count], data["extent"])
            if row == 2:
                axes[row, column].set_xlabel(f"{count} draws")
        axes[row, 0].set_ylabel((*NAMES, "exact draws")[i])
    for row, i in ((0, 0), (2, 1)):
        axis, curve = axes[row, -1], data["autocorrelation"][i]
        axis.plot(np.arange(curve.size), curve, color="black")
        axis.axhline(0.0, color="#999999", linewidth=0.7)
        axis.set(xlabel="steps", ylabel="autocorrelation of x", ylim=(-0.2, 1.05), title=NAMES[i])
    axes[1, -1].set_axis_off()
    return {"chains": figure}

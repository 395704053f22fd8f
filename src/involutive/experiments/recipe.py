"""The default recipe over all benchmark targets, from exact draws and from nothing.

For every target and seed, `learn` is run twice: with exact draws as `samples`, and with nothing but
the density and X = N(0, 3² I). The table shows the least rank-normalised ESS per draw over
coordinates, |x|² and mode indicators (64 chains × 1000 draws), the total variation of the mode
weights, R-hat and the time of learning; the worst seed counts. The first seed's time includes all
compilation.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.random as jr
import numpy as np

from involutive import targets
from involutive.experiments.drawing import panels
from involutive.experiments.proposals import exact
from involutive.sampling.diagnostics import ess_per_draw, mode_weights
from involutive.sampling.run import sample
from involutive.targets import Target
from involutive.training.learn import learn

TARGETS: dict[str, Callable[[], Target]] = {
    "mog2_1d": targets.mog2_1d,
    "mog6": targets.mog6,
    "ring5": targets.ring5,
    "two_modes(10)": targets.two_modes,
    "eight_modes(20)": targets.eight_modes,
    "funnel(10)": targets.funnel,
    "correlated_gaussian(50)": targets.correlated_gaussian,
}
FIGURES = ("ess", "acceptance", "total_variation", "r_hat", "seconds")


@dataclass(frozen=True)
class Config:
    """Which targets, how many seeds, how much data."""

    seed: int = 0
    seeds: int = 5
    targets: tuple[str, ...] = tuple(TARGETS)
    ways: tuple[str, ...] = ("exact draws", "nothing")
    training_draws: int = 20_000
    chains: int = 64
    draws: int = 1000

    @staticmethod
    def quick() -> "Config":
        """The one-dimensional target, once, both ways."""
        return Config(seeds=1, targets=("mog2_1d",), training_draws=4000, draws=400)


def run(config: Config) -> dict[str, Any]:
    """Return the figures as an array over ways, targets and seeds."""
    found = np.full((len(config.ways), len(config.targets), config.seeds, len(FIGURES)), np.nan)
    for j, name in enumerate(config.targets):
        target = TARGETS[name]()  # one object, so that seeds after the first compile nothing
        for i, way in enumerate(config.ways):
            for k in range(config.seeds):
                found[i, j, k] = _once(target, way, config.seed + k, config)
        jax.clear_caches()  # thousands of compiled programs exhaust the process's memory maps
    return {
        "figures": found,
        "ways": np.array(config.ways),
        "targets": np.array(config.targets),
    }


def _once(target: Target, way: str, seed: int, config: Config) -> list[float]:
    key_data, key_learn, key_sample = jr.split(jr.key(seed), 3)
    rows = exact(target, key_data, config.training_draws) if way == "exact draws" else None
    began = time.perf_counter()
    kernel = learn(target, key=key_learn, samples=rows)
    seconds = time.perf_counter() - began
    draws = sample(kernel, key=key_sample, num_chains=config.chains, num_samples=config.draws)
    off = mode_weights(draws).total_variation if target.modes else np.nan
    r_hat = float(np.nanmax(draws.summary().table["r_hat"]))
    return [ess_per_draw(draws).least, float(draws.accepted.mean()), off, r_hat, seconds]


def table(data: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a target and way: the worst seed."""
    rows = []
    for i, way in enumerate(data["ways"]):
        for j, name in enumerate(data["targets"]):
            ess, acceptance, off, r_hat, seconds = np.moveaxis(data["figures"][i, j], -1, 0)
            rows.append(
                {
                    "target": str(name),
                    "learned from": str(way),
                    "seeds": ess.size,
                    "ESS per draw (worst)": ess.min(),
                    "acceptance (worst)": acceptance.min(),
                    "mode weights off by (worst)": "" if np.isnan(off).all() else off.max(),
                    "R-hat (worst)": r_hat.max(),
                    "learning seconds (worst)": seconds.max(),
                }
            )
    return rows


def claims(data: dict[str, Any]) -> dict[str, bool]:
    """What the recipe is for."""
    ess, off = data["figures"][..., 0], data["figures"][..., 2]
    known = off[~np.isnan(off)]
    return {
        "mode weights are within 0.03 total variation": bool((known < 0.03).all()),
        "every target has at least 0.1 effective draws per draw": bool((ess > 0.1).all()),
    }


def draw(data: dict[str, Any]) -> dict[str, Any]:
    """ESS per draw of every target, both ways side by side."""
    figure, ((axes,),) = panels(1, 1, (7.0, 3.4))
    names, ways = [str(t) for t in data["targets"]], [str(w) for w in data["ways"]]
    places = np.arange(len(names))
    for i, way in enumerate(ways):
        heights = data["figures"][i, :, :, 0].min(axis=1)
        shade = ["0.25", "0.65"][i % 2]
        axes.bar(places + 0.38 * (i - 0.5), heights, 0.36, color=shade, label=f"from {way}")
    axes.set_xticks(places, names, rotation=20, ha="right")
    axes.set_ylim(0, 1.05)
    axes.set_ylabel("ESS per draw (worst seed)")
    axes.legend(loc="lower left")
    return {"recipe": figure}

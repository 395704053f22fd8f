"""The default recipe on all benchmark targets, from exact draws and from the density alone.

For every target and seed, `learn` is run twice: with exact draws as `samples`, where there are any,
and with only the density and X = N(0, 3² I). The table shows the minimum rank-normalised ESS per
draw over coordinates, |x|² and mode indicators (64 chains × 1000 draws), the total variation of
the mode weights, the largest error of a mean of a coordinate or |x|² in Monte Carlo standard errors
(of the share below the median where tails are too heavy for means), R-hat and the time of learning;
the worst seed counts. The first seed's time includes all compilation (of programs that are not in
JAX's cache on disk; `JAX_ENABLE_COMPILATION_CACHE=false` turns that off).
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.random as jr
import numpy as np

from involutive.bench.suites import known_reference as reference
from involutive.bench.suites import make
from involutive.bench.targets import DEFAULT, LEVELS, Reference, with_square
from involutive.core.statistics import ess
from involutive.core.types import Figure
from involutive.diagnostics.metrics import ess_per_draw, mode_weights
from involutive.experiments.measures import exact
from involutive.learning.learn import learn
from involutive.plotting.panels import panels
from involutive.sampling.sample import sample
from involutive.targets.target import Target

FIGURES = ("ess", "acceptance", "total_variation", "score", "r_hat", "seconds")


@dataclass(frozen=True)
class Config:
    """Which targets, how many seeds, how much data."""

    seed: int = 0
    seeds: int = 5
    targets: tuple[str, ...] = tuple(DEFAULT)
    ways: tuple[str, ...] = ("exact draws", "density")
    training_draws: int = 20_000
    chains: int = 64
    draws: int = 1000

    @staticmethod
    def quick() -> "Config":
        """The one-dimensional target, once, both ways."""
        return Config(seeds=1, targets=("mog2_1d",), training_draws=4000, draws=400)


def run(config: Config) -> Iterator[dict[str, Any]]:
    """Yield the figures after every seed: an array over ways, targets and seeds."""
    found = np.full((len(config.ways), len(config.targets), config.seeds, len(FIGURES)), np.nan)
    for j, name in enumerate(config.targets):
        target = make(name)  # one object, so that seeds after the first compile nothing
        for i, way in enumerate(config.ways):
            if way == "exact draws" and target.sample is None:
                continue
            for k in range(config.seeds):
                found[i, j, k] = _once(target, reference(name), way, config.seed + k, config)
                yield {
                    "figures": found,
                    "ways": np.array(config.ways),
                    "targets": np.array(config.targets),
                }
            # each way pays for its own compilation; and thousands of compiled programs would
            # exhaust the process's memory maps
            jax.clear_caches()


def _once(target: Target, known: Reference, way: str, seed: int, config: Config) -> list[float]:
    key_data, key_learn, key_sample = jr.split(jr.key(seed), 3)
    rows = exact(target, key_data, config.training_draws) if way == "exact draws" else None
    began = time.perf_counter()
    kernel = learn(target, key=key_learn, samples=rows)
    seconds = time.perf_counter() - began
    draws = sample(kernel, key=key_sample, num_chains=config.chains, num_samples=config.draws)
    off = mode_weights(draws).total_variation if target.modes else np.nan
    r_hat = float(np.nanmax(draws.summary().table["r_hat"]))
    least, accepted = ess_per_draw(draws).least, float(draws.accepted.mean())
    return [least, accepted, off, score(known, draws.positions), r_hat, seconds]


def score(known: Reference, positions: np.ndarray) -> float:
    """The largest error of a mean, or of the share below a median, in Monte Carlo errors."""
    values = with_square(positions)
    centre, spread = known.mean, known.sd
    if not known.moments:
        values = (values <= known.quantiles[LEVELS.index(0.5)]).astype(float)
        centre, spread = np.full(values.shape[2], 0.5), np.full(values.shape[2], 0.5)
    errors = spread * np.sqrt(1 / ess(values) + 1 / known.draws)
    return float(np.max(np.abs(values.mean(axis=(0, 1)) - centre) / errors))


def table(data: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per target and way: the worst seed."""
    rows = []
    for i, way in enumerate(data["ways"]):
        for j, name in enumerate(data["targets"]):
            seeds = data["figures"][i, j]
            seeds = seeds[~np.isnan(seeds[:, 0])]
            if not len(seeds):
                continue
            ess, acceptance, off, errors, r_hat, seconds = seeds.T
            rows.append(
                {
                    "target": str(name),
                    "learned from": str(way),
                    "seeds": ess.size,
                    "ESS per draw (worst)": ess.min(),
                    "acceptance (worst)": acceptance.min(),
                    "mode weights off by (worst)": "" if np.isnan(off).all() else off.max(),
                    "Monte Carlo errors (worst)": errors.max(),
                    "R-hat (worst)": r_hat.max(),
                    "learning seconds (worst)": seconds.max(),
                }
            )
    return rows


def claims(data: dict[str, Any]) -> dict[str, bool]:
    """What the recipe is for."""
    ess, off, errors = (data["figures"][..., i] for i in (0, 2, 3))
    known, ess, errors = (row[~np.isnan(row)] for row in (off, ess, errors))
    return {
        "mode weights are within 0.03 total variation": bool((known < 0.03).all()),
        "every mean is within 4 Monte Carlo errors": bool((errors < 4.0).all()),
        "every target has at least 0.1 effective draws per draw": bool((ess > 0.1).all()),
    }


def draw(data: dict[str, Any]) -> dict[str, Figure]:
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

"""Finding where a density lives, from nothing but the density and an initial law X.

Two starts complement each other. **Climbs** (`climbs.py`) find separate modes in high dimension.
**Annealing**: adaptive tempered SMC carries particles from X to the target through the laws
`X^(1-β) p^β`. It finds curved and flat shapes, needs no gradient, and is not drawn into narrow
spikes of no mass. Where the draws of X weigh evenly enough they are **resampled** by weight
instead, which costs nothing.

Neither has to weigh the modes: importance weights do that, or the learned kernel, which is exact.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Key

from involutive._xla.batched import LawRows, Rows
from involutive.core.keys import generator, split
from involutive.learning.find.moves import Places, move

ENOUGH = 500  # effective draws among those of X with which annealing adds nothing
KEPT = 0.7  # share of the particles that count in effect after a change of temperature
MOVES = 5  # MCMC moves a temperature
TEMPERATURES = 100  # more than ever needed; a density that needs more has no path from X


def finite_draws(
    rows: Rows, law: LawRows, key: Key[Array, ""], count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw `count` points of X at which the density is finite, from up to 100 times as many.

    Returns them with their log weights `log p(x) - log X(x)`.
    """
    kept, heights = list[np.ndarray](), list[np.ndarray]()
    for key_attempt in split(key, 100):
        points = law.draws(key_attempt, count)
        weights = rows.values(points) - law.values(points)
        finite = np.isfinite(weights)
        kept.append(points[finite])
        heights.append(weights[finite])
        if sum(map(len, kept)) >= count:
            break
    found, weights = np.concatenate(kept), np.concatenate(heights)
    places = np.resize(np.arange(len(found)), count if len(found) else 0)
    return found[places], weights[places]


def finite_rows(rows: Rows, points: np.ndarray) -> np.ndarray:
    """The points that are finite and at which the density is."""
    return points[np.isfinite(points).all(axis=1) & np.isfinite(rows.values(points))]


def relative(log_weights: np.ndarray) -> np.ndarray:
    """Weights relative to the largest; all zero if none is positive."""
    top = np.max(log_weights, initial=-np.inf)
    if not np.isfinite(top):
        return np.zeros(len(log_weights))
    return np.exp(log_weights.astype(np.float64) - top)


def log_mean(log_weights: np.ndarray) -> float:
    """The logarithm of the mean weight."""
    return float(np.max(log_weights) + np.log(np.mean(relative(log_weights))))


def effective(log_weights: np.ndarray) -> float:
    """How many equal draws weighted ones are worth, `(Σw)²/Σw²`."""
    weights = relative(log_weights)
    return float(weights.sum() ** 2 / np.sum(weights**2))


def resampled(
    points: np.ndarray, log_weights: np.ndarray, count: int, key: Key[Array, ""]
) -> np.ndarray | None:
    """Draws of X picked by weight, where they are draws of the target: the weights are even.

    None if fewer than `ENOUGH` count in effect: then the target must be approached from X through
    laws between them.
    """
    if effective(log_weights) < ENOUGH:
        return None
    weights = relative(log_weights)
    return points[generator(key).choice(len(points), count, p=weights / weights.sum())]


class Tempered(NamedTuple):
    """`log X(x) + β (log p(x) - log X(x))` at rows, with slopes where they are asked for."""

    rows: Rows
    law: LawRows
    heat: float

    def values(self, points: np.ndarray) -> np.ndarray:
        return self._joined(self.law.values(points), self.rows.values(points))

    def slopes(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        (prior, prior_slope), (value, slope) = self.law.slopes(points), self.rows.slopes(points)
        return self._joined(prior, value), prior_slope + self.heat * (slope - prior_slope)

    def _joined(self, prior: np.ndarray, value: np.ndarray) -> np.ndarray:
        return np.where(np.isfinite(value), prior + self.heat * (value - prior), -np.inf)


def anneal(
    rows: Rows,
    law: LawRows,
    points: np.ndarray,
    log_weights: np.ndarray,
    key: Key[Array, ""],
    *,
    gradients: bool,
    spent: Callable[[], bool] = lambda: False,
) -> tuple[np.ndarray, float]:
    """Carry draws of X to the target by adaptive tempered SMC; they stop on the way once `spent()`.

    Returns them with the logarithm of the density's integral as they saw it, -inf if they stopped.

    `log_weights` are `log p - log X` at the points. Each temperature keeps `KEPT` of the particles
    in effect; they are resampled and moved there, by HMC with the particles' spread as its metric
    or by a random walk with their covariance.
    """
    rng, dim, mass = generator(key), rows.dim, 0.0
    size, heat = (0.5 if gradients else 2.38 / np.sqrt(dim)), 0.0
    for _ in range(TEMPERATURES):
        step = _next_step(log_weights, 1.0 - heat)
        mass += log_mean(step * log_weights)
        points = points[_systematic(step * log_weights, rng)]
        heat = min(heat + step, 1.0)
        tempered, factor = Tempered(rows, law, heat), _factor(points, gradients)
        places = Places.at(tempered, points, gradients)
        for _ in range(MOVES):
            places, rate = move(tempered, places, factor, size, rng)
            size *= float(np.exp(np.clip(rate.mean() - (0.75 if gradients else 0.3), -0.5, 0.5)))
            size = min(size, 3.0)
        points = places.points
        if heat >= 1.0 or spent():
            break
        log_weights = rows.values(points) - law.values(points)
        log_weights = np.where(np.isfinite(log_weights), log_weights, -np.inf)
    return points, mass if heat >= 1.0 else -np.inf


def _next_step(log_weights: np.ndarray, most: float) -> float:
    """The largest rise of β, at most `most`, with `KEPT` of the particles left in effect."""
    goal = KEPT * len(log_weights)
    if effective(most * log_weights) >= goal:
        return most
    low, high = 0.0, most
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective(middle * log_weights) >= goal else (low, middle)
    return max(low, 1e-6)


def _systematic(log_weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Places picked by weight, with one random number for all of them."""
    weights = relative(log_weights)
    levels, count = np.cumsum(weights / weights.sum()), len(weights)
    return np.minimum(
        np.searchsorted(levels, (np.arange(count) + rng.uniform()) / count), count - 1
    )


def _factor(points: np.ndarray, gradients: bool) -> np.ndarray:
    """Scales of the particles: of every coordinate, or a factor of their covariance."""
    wide = points.astype(np.float64)
    spread = np.var(wide, axis=0) + 1e-12
    if gradients:
        return np.diag(np.sqrt(spread)).astype(points.dtype)
    covariance = np.cov(wide.T).reshape(spread.size, spread.size) + 1e-9 * np.diag(spread)
    return np.linalg.cholesky(covariance).astype(points.dtype)

"""Metropolis-Hastings moves of many points on the host, for the search: nothing of them is kept.

`density` has `values(points)` and `slopes(points)`; `factor` is one matrix S for all points or one
each, and a move is of size `size` in the coordinates `S⁻¹x`, one size for all or one each.
"""

from typing import Any, NamedTuple

import numpy as np

LEAPS = 4


class Places(NamedTuple):
    """Points with their log densities, and slopes where moves use them."""

    points: np.ndarray
    values: np.ndarray
    slopes: np.ndarray | None

    @classmethod
    def at(cls, density: Any, points: np.ndarray, gradients: bool) -> "Places":
        """The places at given points."""
        if gradients:
            return cls(points, *density.slopes(points))
        return cls(points, density.values(points), None)


def move(
    density: Any, places: Places, factor: np.ndarray, size: Any, rng: np.random.Generator
) -> tuple[Places, np.ndarray]:
    """HMC where slopes are known, else a random walk; also the acceptance probabilities."""
    size = size[:, None] if isinstance(size, np.ndarray) and size.ndim else size
    size = np.asarray(size, places.points.dtype)
    noise = rng.normal(size=places.points.shape).astype(places.points.dtype)
    if places.slopes is None:
        new = Places.at(density, places.points + size * _apply(factor, noise), False)
        with np.errstate(invalid="ignore"):  # of two that are -inf
            gain = new.values - places.values
    else:
        new, gain = _leaps(density, places, places.slopes, factor, size, noise)
    with np.errstate(invalid="ignore"):
        lost = np.isnan(gain) | ~np.isfinite(new.points).all(axis=1)
    gain = np.where(lost, -np.inf, gain)
    accepted = -rng.exponential(size=len(gain)) < gain
    return _chosen(accepted, new, places), np.exp(np.minimum(gain, 0.0))


def _chosen(accepted: np.ndarray, new: Places, old: Places) -> Places:
    """The new places where accepted, else the old."""
    column = accepted[:, None]
    slopes = None
    if new.slopes is not None and old.slopes is not None:
        slopes = np.where(column, new.slopes, old.slopes)
    points = np.where(column, new.points, old.points)
    return Places(points, np.where(accepted, new.values, old.values), slopes)


def _leaps(
    density: Any, places: Places, slope: Any, factor: np.ndarray, size: np.ndarray, v: np.ndarray
) -> tuple[Places, np.ndarray]:
    """`LEAPS` leapfrog steps from momentum v, and what they gain of `log p - |v|²/2`."""
    points, back = places.points, np.swapaxes(factor, -1, -2)
    start = places.values - 0.5 * np.sum(v**2, axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(LEAPS):
            v = v + 0.5 * size * _apply(back, slope)
            points = points + size * _apply(factor, v)
            values, slope = density.slopes(points)
            v = v + 0.5 * size * _apply(back, slope)
        gain = values - 0.5 * np.sum(v**2, axis=1) - start
    return Places(points, values, slope), gain


def _apply(factor: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """`S x` of every row, with one S for all or one each."""
    return rows @ factor.T if factor.ndim == 2 else (factor @ rows[:, :, None])[:, :, 0]

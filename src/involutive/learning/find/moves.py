"""Metropolis-Hastings moves of many points on the host, for the search alone.

The moves place particles; no draw of them is kept. `factor` is one matrix S for all points or one
per point, and a move has size `size` in the coordinates `S⁻¹x`.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class DensityOfRows(Protocol):
    """A density that moves can evaluate: log densities of rows, and gradients for HMC."""

    def values(self, points: np.ndarray) -> np.ndarray: ...

    def gradients(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...


class Particles(NamedTuple):
    """Points with their log densities, and with gradients if the moves are HMC."""

    points: np.ndarray
    values: np.ndarray
    gradients: np.ndarray | None

    @classmethod
    def at(cls, density: DensityOfRows, points: np.ndarray, gradients: bool) -> "Particles":
        """Evaluate the density at points."""
        if gradients:
            return cls(points, *density.gradients(points))
        return cls(points, density.values(points), None)


def move(
    density: DensityOfRows,
    particles: Particles,
    factor: np.ndarray,
    size: float | np.ndarray,
    rng: np.random.Generator,
    leaps: int,
) -> tuple[Particles, np.ndarray]:
    """Move by HMC of `leaps` leapfrog steps if particles have gradients, else by a random walk.

    Returns the particles, and the acceptance probability of each proposal.
    """
    size = size[:, None] if isinstance(size, np.ndarray) and size.ndim else size
    size = np.asarray(size, particles.points.dtype)
    noise = rng.normal(size=particles.points.shape).astype(particles.points.dtype)
    if particles.gradients is None:
        new = Particles.at(density, particles.points + size * _apply(factor, noise), False)
        with np.errstate(invalid="ignore"):  # both may be -inf
            gain = new.values - particles.values
    else:
        new, gain = _leapfrog(density, particles, particles.gradients, factor, size, noise, leaps)
    with np.errstate(invalid="ignore"):
        lost = np.isnan(gain) | ~np.isfinite(new.points).all(axis=1)
    gain = np.where(lost, -np.inf, gain)
    accepted = -rng.exponential(size=len(gain)) < gain
    return _where_accepted(accepted, new, particles), np.exp(np.minimum(gain, 0.0))


def _where_accepted(accepted: np.ndarray, new: Particles, old: Particles) -> Particles:
    """The new particles where they were accepted, else the old ones."""
    column = accepted[:, None]
    gradients = None
    if new.gradients is not None and old.gradients is not None:
        gradients = np.where(column, new.gradients, old.gradients)
    points = np.where(column, new.points, old.points)
    return Particles(points, np.where(accepted, new.values, old.values), gradients)


def _leapfrog(
    density: DensityOfRows,
    particles: Particles,
    gradient: np.ndarray,
    factor: np.ndarray,
    size: np.ndarray,
    momentum: np.ndarray,
    leaps: int,
) -> tuple[Particles, np.ndarray]:
    """The end of leapfrog steps from a momentum v, and the gain of `log p - |v|²/2` there."""
    points, back, v = particles.points, np.swapaxes(factor, -1, -2), momentum
    values, start = particles.values, particles.values - 0.5 * np.sum(v**2, axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(leaps):
            v = v + 0.5 * size * _apply(back, gradient)
            points = points + size * _apply(factor, v)
            values, gradient = density.gradients(points)
            v = v + 0.5 * size * _apply(back, gradient)
        gain = values - 0.5 * np.sum(v**2, axis=1) - start
    return Particles(points, values, gradient), gain


def _apply(factor: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """`S x` of every row, with one S for all or one per row."""
    return rows @ factor.T if factor.ndim == 2 else (factor @ rows[:, :, None])[:, :, 0]

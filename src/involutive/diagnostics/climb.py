"""Climbs: many points moved uphill on a log density, at once and on the host.

Steps are Barzilai and Borwein's, `|s|² / |s·Δgradient|`, taken only where the density rises and
never longer than `reach`, so that a climb ends on the hill it began on.
"""

import numpy as np

from involutive._xla.batched import BatchedDensity

FIRST = 0.02  # the first step, in units of `reach`; a guess: later steps follow the curvature
GROWS, SHRINKS = 2.0, 0.25  # of a step where the curvature tells nothing, and after a refusal
SETTLED = 1e-4  # nats that a step must gain, or the climb has ended; a guess
STEEPEST = 1e100  # derivatives are cut there: no square overflows, eigenvalues are reliable


def climb_by_gradient(
    rows: BatchedDensity, points: np.ndarray, scale: np.ndarray, reach: np.ndarray, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Move every point uphill.

    Args:
        rows: the log density.
        points: `(n, dim)`; each should have a finite density.
        scale: `(dim,)`, the unit of length of every coordinate.
        reach: `(n,)`, the longest step of every point, in those units.
        steps: the most gradients of a point.

    Returns:
        The points reached and their log densities.
    """
    x = np.asarray(points, np.float64) / scale
    value, slope = _look(rows, x, scale)
    step = FIRST * reach / np.maximum(np.linalg.norm(slope, axis=1), 1e-300)
    alive = np.isfinite(value)
    for _ in range(steps):
        at = np.flatnonzero(alive)
        if at.size == 0:
            break
        move = step[at, None] * slope[at]
        length = np.linalg.norm(move, axis=1)
        move *= np.minimum(1.0, reach[at] / np.maximum(length, 1e-300))[:, None]
        new_value, new_slope = _look(rows, x[at] + move, scale)
        better = new_value > value[at]
        step[at] = np.where(better, _next_step(step[at], move, new_slope - slope[at]), step[at])
        step[at[~better]] *= SHRINKS
        gain = new_value - value[at]
        won = at[better]
        x[won], value[won], slope[won] = x[won] + move[better], new_value[better], new_slope[better]
        alive[won[gain[better] < SETTLED]] = False
        alive[at[~better]] = np.linalg.norm(move[~better], axis=1) > 1e-7 * reach[at[~better]]
    return (x * scale).astype(rows.dtype), value


def climb_blind(
    rows: BatchedDensity,
    points: np.ndarray,
    scale: np.ndarray,
    steps: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Move every point uphill without a gradient, by random steps that are kept where they rise.

    Returns:
        The points reached, their log densities, and the length of the last steps in units of
        `scale`, which is about the width of the hill.
    """
    x = np.asarray(points, np.float64)
    value = np.nan_to_num(rows.values(x.astype(rows.dtype)).astype(np.float64), nan=-np.inf)
    length = np.ones(len(x))
    for _ in range(steps):
        new = x + length[:, None] * scale * rng.normal(size=x.shape)
        found = np.nan_to_num(rows.values(new.astype(rows.dtype)).astype(np.float64), nan=-np.inf)
        better = found > value
        x[better], value[better] = new[better], found[better]
        # one success in about five keeps the length: the rule of Rechenberg (1973)
        length *= np.where(better, 1.5, 0.9)
    return x.astype(rows.dtype), value, length


def _next_step(step: np.ndarray, move: np.ndarray, change: np.ndarray) -> np.ndarray:
    bend = -np.sum(move * change, axis=1)
    straight = np.sum(move**2, axis=1) / np.maximum(bend, 1e-300)
    return np.where(bend > 0, np.minimum(straight, 10 * step), GROWS * step)


def _look(rows: BatchedDensity, x: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The density and its gradient, in units of `scale`; -inf and 0 where they are not numbers."""
    value, slope = rows.gradients((x * scale).astype(rows.dtype))
    fine = np.isfinite(value) & np.isfinite(slope).all(axis=1)
    value = np.where(fine, value.astype(np.float64), -np.inf)
    slope = np.where(fine[:, None], slope.astype(np.float64), 0.0) * scale
    return value, np.clip(slope, -STEEPEST, STEEPEST)

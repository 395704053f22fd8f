"""Climbs: points of X climb the density, then spread over the mode they reached.

Each climbs by its own step along every coordinate (Rprop, so scales from 1e-4 to 1e4 do not
matter), then HMC or a random walk with the local curvature as its metric spreads it. It finds
separate modes in high dimension.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Key

from involutive._xla.batched import Rows
from involutive.core.keys import generator
from involutive.learning.find.moves import Places, move

SCREEN_STEPS = 12
CLIMB_STEPS = 200
SPREAD_STEPS = 60
LOOK = 25  # steps, in which some point must rise
RISE = 0.01  # by that much
PASSED = 4  # places that are looked at on the way into a spike
BOUNDS = (1e-6, 30.0)  # of the scales of moves
FIRST_STEP, LEAST_STEP, MOST_STEP = 0.1, 1e-9, 1e3


def ascend(
    rows: Rows, points: np.ndarray, steps: int, path: list[np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The highest point on the way up from every row, and its log density.

    Rprop: a coordinate's step grows by 1.2 while its slope keeps its sign, and halves when not.
    Every step of the way is appended to `path`.
    """
    x, best, height = points, points, np.full(len(points), -np.inf, points.dtype)
    size, before = np.full_like(points, FIRST_STEP), np.zeros_like(points)
    last = height
    for step in range(steps + 1):
        if step % LOOK == 0:
            with np.errstate(invalid="ignore"):  # of two that are -inf
                if step and not np.any(height - last > RISE):
                    break
            last = height
        if path is not None:
            path.append(x)
        value, slope = rows.slopes(x)
        higher = value > height
        best, height = np.where(higher[:, None], x, best), np.where(higher, value, height)
        slope = np.where(np.isfinite(slope), np.sign(slope), 0.0).astype(points.dtype)
        same = slope * before
        size = np.clip(size * (1 + 0.2 * (same > 0) - 0.5 * (same < 0)), LEAST_STEP, MOST_STEP)
        before = np.where(same < 0, 0.0, slope).astype(points.dtype)
        x = x + before * size
    return best, height


def promising(rows: Rows, points: np.ndarray, count: int) -> np.ndarray:
    """Of many points, the `count` that stand highest after a few steps up.

    A narrow mode catches few points of X, and they are lost among those of the wide ones; a few
    steps up lift them above.
    """
    tops, heights = ascend(rows, points, SCREEN_STEPS)
    return tops[np.argsort(-np.where(np.isnan(heights), -np.inf, heights), kind="stable")[:count]]


class Climbed(NamedTuple):
    """Points over the modes that `starts` climbed to, and the log mass of those modes.

    The mass is by the height and the curvature of the top alone.
    """

    starts: np.ndarray
    points: np.ndarray
    masses: np.ndarray


def climb(rows: Rows, points: np.ndarray, key: Key[Array, ""], *, gradients: bool) -> Climbed:
    """Climb from every point to its mode, then spread over it in the local metric.

    By HMC, or by a random walk, which spreads as well in few dimensions. Step sizes are adapted
    along the way: the moves only have to find the mode's bulk.
    """
    tops, heights = ascend(rows, points, CLIMB_STEPS)
    scales, axes = local_scales(rows.curvatures(tops))
    spread = _spread(rows, tops, scales, axes, generator(key), gradients)
    return Climbed(points, spread, laplace(heights, scales))


def on_the_way(
    rows: Rows, points: np.ndarray, least: float, key: Key[Array, ""], *, gradients: bool
) -> np.ndarray:
    """Places passed on the climbs from points, spread locally, where the log mass is above `least`.

    Some at random: the way into a spike leads through what lies between it and the bulk.
    """
    rng, path = generator(key), list[np.ndarray]()
    ascend(rows, points, CLIMB_STEPS, path)
    times = rng.integers(len(path), size=(PASSED, len(points)))
    passed = np.stack(path)[times, np.arange(len(points))].reshape(-1, rows.dim)
    scales, axes = local_scales(rows.curvatures(passed))
    heights = rows.values(passed)
    kept = np.flatnonzero(np.isfinite(heights) & (laplace(heights, scales) >= least))
    kept = rng.permutation(kept)[: len(points)]
    if not len(kept):
        return points[:0]
    return _spread(rows, passed[kept], scales[kept], axes[kept], rng, gradients)


def _spread(
    rows: Rows,
    points: np.ndarray,
    scales: np.ndarray,
    axes: np.ndarray,
    rng: np.random.Generator,
    gradients: bool,
) -> np.ndarray:
    """Moves from points, each in its own metric."""
    dim = rows.dim
    factor = (axes * np.clip(scales, *BOUNDS)[:, None, :]).astype(points.dtype)
    if gradients:
        first, most, goal = 0.5 / dim**0.25, 1.5, 0.75
    else:
        first, most, goal = 1.0 / dim**0.5, 3.0, 0.3
    size, places = np.full(len(points), first, points.dtype), Places.at(rows, points, gradients)
    for _ in range(SPREAD_STEPS):
        places, rate = move(rows, places, factor, size, rng)
        size = np.clip(size * np.exp(0.3 * (rate - goal)), 1e-4, most).astype(points.dtype)
    return places.points


def laplace(heights: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """`log p + Σ log(√(2π) scale)`: the log mass of a normal of that height and those scales."""
    return heights + np.sum(np.log(np.sqrt(2 * np.pi) * scales), axis=1)


def local_scales(curvatures: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scales `1/√|eigenvalue|` of curvatures, and their axes."""
    curvatures = np.where(np.isfinite(curvatures), -curvatures, 0.0)
    curvatures = 0.5 * (curvatures + np.swapaxes(curvatures, 1, 2))
    values, axes = np.linalg.eigh(curvatures.astype(np.float64))
    return 1 / np.sqrt(np.maximum(np.abs(values), 1e-12)), axes

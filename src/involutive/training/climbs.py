"""Climbs: points of X climb the density, then spread over the mode they reached.

Each climbs by its own step along every coordinate (Rprop, so scales from 1e-4 to 1e4 do not
matter), then HMC or a random walk with the local curvature as its metric spreads it. It finds
separate modes in high dimension.
"""

import numpy as np
from jaxtyping import Array, Key

from involutive.keys import generator
from involutive.training.moves import Places, move
from involutive.training.rows import Rows

SCREEN_STEPS = 12
CLIMB_STEPS = 200
SPREAD_STEPS = 60
LOOK = 25  # steps, in which some point must rise
RISE = 0.01  # by that much
FIRST_STEP, LEAST_STEP, MOST_STEP = 0.1, 1e-9, 1e3


def ascend(rows: Rows, points: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The highest point on the way up from every row, and its log density.

    Rprop: a coordinate's step grows by 1.2 while its slope keeps its sign, and halves when not.
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


def climb(rows: Rows, points: np.ndarray, key: Key[Array, ""], *, gradients: bool) -> np.ndarray:
    """Climb from every point to its mode, then spread over it in the local metric.

    By HMC, or by a random walk, which spreads as well in few dimensions. Step sizes are adapted
    along the way: the moves only have to find the mode's bulk.
    """
    rng, dim = generator(key), rows.dim
    tops, _ = ascend(rows, points, CLIMB_STEPS)
    factor = local_factors(rows.curvatures(tops))
    if gradients:
        first, most, goal = 0.5 / dim**0.25, 1.5, 0.75
    else:
        first, most, goal = 1.0 / dim**0.5, 3.0, 0.3
    size, places = np.full(len(tops), first, tops.dtype), Places.at(rows, tops, gradients)
    for _ in range(SPREAD_STEPS):
        places, rate = move(rows, places, factor, size, rng)
        size = np.clip(size * np.exp(0.3 * (rate - goal)), 1e-4, most).astype(tops.dtype)
    return places.points


def local_factors(curvatures: np.ndarray) -> np.ndarray:
    """Factors of the inverse curvatures, their axes kept between 1e-6 and 30."""
    curvatures = np.where(np.isfinite(curvatures), -curvatures, 0.0)
    curvatures = 0.5 * (curvatures + np.swapaxes(curvatures, 1, 2))
    values, axes = np.linalg.eigh(curvatures.astype(np.float64))
    scales = np.clip(1 / np.sqrt(np.maximum(np.abs(values), 1e-12)), 1e-6, 30.0)
    return (axes * scales[:, None, :]).astype(curvatures.dtype)

"""Climbs: points ascend the density to a mode, then spread over it.

Each climbs by its own step along every coordinate (Rprop, so scales from 1e-4 to 1e4 do not
matter), then HMC or a random walk with the local Hessian as its metric spreads it. Climbs find
separate modes in high dimension.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Key

from involutive._xla.batched import BatchedDensity
from involutive.core.keys import generator
from involutive.core.types import Number
from involutive.learning.find.moves import Particles, move
from involutive.learning.settings import LearnSettings

CHECK_EVERY = 25  # ascent steps in which some point must rise by RISE nats; a guess
RISE = 0.01
PATH_POINTS = 4  # places per climb that are examined on the way into a spike; a guess
SCALE_BOUNDS = (1e-6, 30.0)  # of the local scales that spreading uses; a guess
TOP_SCALE_BOUNDS = (1e-8, 1e5)  # of those that a mode's normal has: weights judge it; a guess
FIRST_STEP, STEP_BOUNDS = 0.1, (1e-9, 1e3)  # of Rprop; its growth 1.2 and cut 0.5 are standard
SAME_TOP = 1.0  # local sds within which two tops are one mode; a guess
RESOLVES = 8.0  # representable numbers per local scale, below which a density is rounding; a guess
STEEPEST = 1e100  # of second derivatives, beyond which eigenvalues are not computed reliably
WIDEST = 1e6  # times the narrowest, that an axis of a mode's normal may be wide
NEWTON_STEPS = 4  # most Newton steps after the ascent: one reaches the top of a normal; a guess


class Climbed(NamedTuple):
    """Climbs from `starts`: their `tops`, points spread over the modes, and the modes' log masses.

    The mass of a mode is that of a normal with its top's height and curvature (Laplace).
    """

    starts: np.ndarray
    tops: np.ndarray
    points: np.ndarray
    log_masses: np.ndarray
    scales: np.ndarray  # 1/√|eigenvalue| of the Hessian at the top
    axes: np.ndarray  # its eigenvectors

    @classmethod
    def none(cls, dim: int, dtype: np.dtype) -> "Climbed":
        """No climb at all."""
        rows = np.zeros((0, dim), dtype)
        return cls(rows, rows, rows, np.zeros(0), rows, np.zeros((0, dim, dim), dtype))

    def laplace(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Different tops with square roots of their covariances and their log masses."""
        chosen = different_tops(self) if len(self.tops) else []
        scales = np.clip(self.scales[chosen], *TOP_SCALE_BOUNDS)
        # else the covariance could not be factorised
        scales = np.minimum(scales, WIDEST * scales.min(axis=1, initial=np.inf, keepdims=True))
        return self.tops[chosen], self.axes[chosen] * scales[:, None, :], self.log_masses[chosen]


def different_tops(climbed: Climbed, most: int = 256) -> list[int]:
    """One climb per mode: tops within a local sd of each other are one, the highest mass first."""
    chosen: list[int] = []
    inverse = climbed.axes / np.clip(climbed.scales, *TOP_SCALE_BOUNDS)[:, None, :]
    for i in np.argsort(-np.nan_to_num(climbed.log_masses, nan=-np.inf), kind="stable"):
        gaps = climbed.tops[chosen] - climbed.tops[i]
        white = np.einsum("kij,ki->kj", inverse[chosen], gaps)
        if not chosen or not (np.sum(white**2, axis=1) < SAME_TOP).any():
            chosen.append(int(i))
        if len(chosen) == most:
            break
    return chosen


def ascend(
    density: BatchedDensity, points: np.ndarray, steps: int, path: list[np.ndarray] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The highest point on the way up from every row, and its log density.

    Rprop: a coordinate's step grows by 1.2 while its gradient keeps its sign, and halves when not.
    Every step of the way is appended to `path`.
    """
    x, best, height = points, points, np.full(len(points), -np.inf, points.dtype)
    size, before = np.full_like(points, FIRST_STEP), np.zeros_like(points)
    last = height
    for step in range(steps + 1):
        if step % CHECK_EVERY == 0:
            with np.errstate(invalid="ignore"):  # of two that are -inf
                if step and not np.any(height - last > RISE):
                    break
            last = height
        if path is not None:
            path.append(x)
        value, gradient = density.gradients(x)
        higher = value > height
        best, height = np.where(higher[:, None], x, best), np.where(higher, value, height)
        sign = np.where(np.isfinite(gradient), np.sign(gradient), 0.0).astype(points.dtype)
        same = sign * before
        size = np.clip(size * (1 + 0.2 * (same > 0) - 0.5 * (same < 0)), *STEP_BOUNDS)
        before = np.where(same < 0, 0.0, sign).astype(points.dtype)
        x = x + before * size
    return best, height


def promising(density: BatchedDensity, points: np.ndarray, count: int, steps: int) -> np.ndarray:
    """Of many points, the `count` that stand highest after a few steps up.

    A narrow mode catches few points of X, and they are lost among those of the wide ones; a few
    steps up lift them above.
    """
    tops, heights = ascend(density, points, steps)
    return tops[np.argsort(-np.where(np.isnan(heights), -np.inf, heights), kind="stable")[:count]]


def climb(
    density: BatchedDensity,
    points: np.ndarray,
    key: Key[Array, ""],
    settings: LearnSettings,
    *,
    gradients: bool,
) -> Climbed:
    """Climb from every point to its mode, then spread over it in the local metric.

    Points spread by HMC with `gradients`, else by a random walk, which spreads as well in few
    dimensions. Step sizes adapt along the way: the moves only have to find the mode's bulk.
    """
    tops, heights = ascend(density, points, settings.climb_steps)
    tops, heights, scales, axes = newton(density, tops, heights)
    spread = _spread(density, tops, scales, axes, generator(key), settings.spread_steps, gradients)
    return Climbed(points, tops, spread, laplace(heights, scales), scales, axes)


def newton(
    density: BatchedDensity, tops: np.ndarray, heights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Newton steps from where ascents have ended, with the local scales and axes there.

    The step is `|H|⁻¹ g`, with the absolute eigenvalues of the Hessian H, and is kept where the
    density rises. Rprop treats every coordinate alone, so that in a narrow oblique ridge it ends
    short of the top, each climb elsewhere; a Newton step reaches the top of a normal at once.
    """
    for _ in range(NEWTON_STEPS):
        scales, axes = local_scales(density.hessians(tops))
        gradients = np.nan_to_num(density.gradients(tops)[1], posinf=0.0, neginf=0.0)
        along = np.einsum("nij,ni->nj", axes, gradients)
        with np.errstate(over="ignore", invalid="ignore"):
            if not np.any(0.5 * np.sum((along * scales) ** 2, axis=1) > RISE):
                break
            steps = np.einsum("nij,nj->ni", axes, along * scales**2)
            new = (tops + steps).astype(tops.dtype)
            values = density.values(new)
            higher = values > heights
            rose = np.any(values - heights > RISE)
        tops, heights = np.where(higher[:, None], new, tops), np.where(higher, values, heights)
        if not rose:
            break
    else:
        scales, axes = local_scales(density.hessians(tops))
    return tops, heights, scales, axes


def on_the_way(
    density: BatchedDensity,
    points: np.ndarray,
    least: Number,
    key: Key[Array, ""],
    settings: LearnSettings,
    *,
    gradients: bool,
) -> np.ndarray:
    """Places passed on the climbs from points, spread locally, where the log mass exceeds `least`.

    Random ones: the way into a spike leads through what lies between it and the bulk.
    """
    rng, path = generator(key), list[np.ndarray]()
    ascend(density, points, settings.climb_steps, path)
    times = rng.integers(len(path), size=(PATH_POINTS, len(points)))
    passed = np.stack(path)[times, np.arange(len(points))].reshape(-1, density.dim)
    scales, axes = local_scales(density.hessians(passed))
    heights = density.values(passed)
    # a slope has no second derivative and would seem to be endlessly wide
    masses = laplace(heights, np.clip(scales, *SCALE_BOUNDS))
    kept = np.isfinite(heights) & (masses >= least) & resolved(passed, scales)
    kept = np.flatnonzero(kept)
    kept = rng.permutation(kept)[: len(points)]
    if not len(kept):
        return points[:0]
    steps = settings.spread_steps
    return _spread(density, passed[kept], scales[kept], axes[kept], rng, steps, gradients)


def _spread(
    density: BatchedDensity,
    points: np.ndarray,
    scales: np.ndarray,
    axes: np.ndarray,
    rng: np.random.Generator,
    steps: int,
    gradients: bool,
) -> np.ndarray:
    """Moves from points, each in its own metric."""
    dim = density.dim
    factor = (axes * np.clip(scales, *SCALE_BOUNDS)[:, None, :]).astype(points.dtype)
    if gradients:
        first, most, goal = 0.5 / dim**0.25, 1.5, 0.75
    else:
        first, most, goal = 1.0 / dim**0.5, 3.0, 0.3
    size = np.full(len(points), first, points.dtype)
    particles = Particles.at(density, points, gradients)
    for _ in range(steps):
        particles, rate = move(density, particles, factor, size, rng)
        size = np.clip(size * np.exp(0.3 * (rate - goal)), 1e-4, most).astype(points.dtype)
    return particles.points


def resolved(points: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Whether numbers of this precision tell points within the local scales apart.

    A density without bound, such as a hierarchy's where its scale vanishes, is climbed until
    rounding makes of it what it likes.
    """
    spacing = np.finfo(points.dtype).eps * np.abs(points).max(axis=1)
    return scales.min(axis=1) > RESOLVES * spacing


def laplace(heights: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """`log p + Σ log(√(2π) scale)`: the log mass of a normal of that height and those scales."""
    with np.errstate(divide="ignore"):  # of scales that have overflowed
        return heights + np.sum(np.log(np.sqrt(2 * np.pi) * scales), axis=1)


def local_scales(hessians: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scales `1/√|eigenvalue|` of Hessians, and their axes; zero where one has overflowed."""
    hessians = hessians.astype(np.float64)
    overflown = np.asarray(~np.isfinite(hessians).all(axis=(1, 2)))
    hessians = np.where(np.isfinite(hessians), np.clip(-hessians, -STEEPEST, STEEPEST), 0.0)
    hessians = 0.5 * (hessians + np.swapaxes(hessians, 1, 2))
    values, axes = np.linalg.eigh(hessians)
    scales = 1 / np.sqrt(np.maximum(np.abs(values), 1e-12))
    return np.where(overflown[:, None], 0.0, scales), axes

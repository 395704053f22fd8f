"""Climbs: points ascend the density to a mode, then spread over it.

Each point ascends with a step of its own along every coordinate (Rprop, so that scales from 1e-4 to
1e4 do not matter). Then HMC or a random walk, with the local Hessian as its metric, spreads it over
its mode. Climbs find separate modes in high dimension.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Key

from involutive._xla.batched import BatchedDensity
from involutive.core.keys import generator
from involutive.core.types import Number
from involutive.diagnostics.climb import STEEPEST
from involutive.learning.find.moves import Particles, move
from involutive.learning.settings import LearnSettings, SearchSettings


class Climbed(NamedTuple):
    """Climbs from `starts`: their `tops`, points spread over the modes, and the modes' log masses.

    The mass of a mode is its Laplace approximation: that of a normal with the height and the
    Hessian of its top.
    """

    starts: np.ndarray
    tops: np.ndarray
    points: np.ndarray
    log_masses: np.ndarray
    scales: np.ndarray  # 1/√|eigenvalue| of the Hessian at the top
    axes: np.ndarray  # eigenvectors of that Hessian

    @classmethod
    def none(cls, dim: int, dtype: np.dtype) -> "Climbed":
        """An empty set of climbs."""
        rows = np.zeros((0, dim), dtype)
        return cls(rows, rows, rows, np.zeros(0), rows, np.zeros((0, dim, dim), dtype))

    def laplace(self, settings: SearchSettings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Distinct tops, with square roots of their covariances and their log masses."""
        chosen = different_tops(self, settings) if len(self.tops) else []
        scales = np.clip(self.scales[chosen], *settings.top_scale_bounds)
        # so that the covariance can be factorised
        narrowest = scales.min(axis=1, initial=np.inf, keepdims=True)
        scales = np.minimum(scales, settings.widest * narrowest)
        return self.tops[chosen], self.axes[chosen] * scales[:, None, :], self.log_masses[chosen]


def different_tops(climbed: Climbed, settings: SearchSettings) -> list[int]:
    """One climb per mode, in order of mass; tops within a local sd of each other are one mode."""
    chosen: list[int] = []
    inverse = climbed.axes / np.clip(climbed.scales, *settings.top_scale_bounds)[:, None, :]
    for i in np.argsort(-np.nan_to_num(climbed.log_masses, nan=-np.inf), kind="stable"):
        gaps = climbed.tops[chosen] - climbed.tops[i]
        white = np.einsum("kij,ki->kj", inverse[chosen], gaps)
        if not chosen or not (np.sum(white**2, axis=1) < settings.same_top**2).any():
            chosen.append(int(i))
        if len(chosen) == settings.most_tops:
            break
    return chosen


def ascend(
    density: BatchedDensity,
    points: np.ndarray,
    steps: int,
    settings: SearchSettings,
    path: list[np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The highest point on the ascent from every row, and its log density.

    Rprop: the step along a coordinate grows while the gradient keeps its sign there, and is cut
    when the sign changes. The points of every step are appended to `path`.
    """
    x, best, height = points, points, np.full(len(points), -np.inf, points.dtype)
    size, before = np.full_like(points, settings.first_step), np.zeros_like(points)
    last, growth, cut = height, settings.step_growth, settings.step_cut
    for step in range(steps + 1):
        if step % settings.check_every == 0:
            with np.errstate(invalid="ignore"):  # both may be -inf
                if step and not np.any(height - last > settings.rise):
                    break
            last = height
        if path is not None:
            path.append(x)
        value, gradient = density.gradients(x)
        higher = value > height
        best, height = np.where(higher[:, None], x, best), np.where(higher, value, height)
        sign = np.where(np.isfinite(gradient), np.sign(gradient), 0.0).astype(points.dtype)
        same = sign * before
        factor = 1 + growth * (same > 0) - cut * (same < 0)
        size = np.clip(size * factor, *settings.step_bounds)
        before = np.where(same < 0, 0.0, sign).astype(points.dtype)
        x = x + before * size
    return best, height


def highest_after_screening(
    density: BatchedDensity, points: np.ndarray, count: int, settings: LearnSettings
) -> np.ndarray:
    """Of many points, the `count` with the largest density after a few ascent steps.

    Few draws of X lie in a narrow mode, and at first many others exceed their density; a few steps
    lift them above the others.
    """
    tops, heights = ascend(density, points, settings.screen_steps, settings.search)
    return tops[np.argsort(-np.where(np.isnan(heights), -np.inf, heights), kind="stable")[:count]]


def climb(
    density: BatchedDensity,
    points: np.ndarray,
    key: Key[Array, ""],
    settings: LearnSettings,
    *,
    gradients: bool,
) -> Climbed:
    """Ascend from every point to the top of its mode, then spread the points in the local metric.

    With `gradients` HMC spreads them, else a random walk, which does as well in few dimensions.
    Step sizes adapt all the time: no draw is kept, the moves only have to find the mode's bulk.
    """
    tops, heights = ascend(density, points, settings.climb_steps, settings.search)
    tops, heights, scales, axes = newton(density, tops, heights, settings.search)
    spread = _spread(density, tops, scales, axes, generator(key), settings, gradients)
    return Climbed(points, tops, spread, laplace(heights, scales), scales, axes)


def newton(
    density: BatchedDensity, tops: np.ndarray, heights: np.ndarray, settings: SearchSettings
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Newton steps from the ends of ascents; returns tops, heights, local scales and axes.

    The step is `|H|⁻¹ g`, where |H| has the absolute eigenvalues of the Hessian H. It is kept where
    the density rises. Rprop treats every coordinate separately, so in a narrow oblique ridge each
    ascent ends short of the top at a place of its own; a Newton step reaches the top of a normal at
    once.
    """
    for _ in range(settings.newton_steps):
        scales, axes = local_scales(density.hessians(tops))
        gradients = np.nan_to_num(density.gradients(tops)[1], posinf=0.0, neginf=0.0)
        along = np.einsum("nij,ni->nj", axes, gradients)
        with np.errstate(over="ignore", invalid="ignore"):
            if not np.any(0.5 * np.sum((along * scales) ** 2, axis=1) > settings.rise):
                break
            steps = np.einsum("nij,nj->ni", axes, along * scales**2)
            new = (tops + steps).astype(tops.dtype)
            values = density.values(new)
            higher = values > heights
            rose = np.any(values - heights > settings.rise)
        tops, heights = np.where(higher[:, None], new, tops), np.where(higher, values, heights)
        if not rose:
            break
    else:
        scales, axes = local_scales(density.hessians(tops))
    return tops, heights, scales, axes


def points_along_climbs(
    density: BatchedDensity,
    points: np.ndarray,
    least: Number,
    key: Key[Array, ""],
    settings: LearnSettings,
    *,
    gradients: bool,
) -> np.ndarray:
    """Random places on the ascents from points whose local log mass exceeds `least`, spread out.

    The ascent into a spike passes through the region between the spike and the bulk of the mass.
    """
    rng, path, search = generator(key), list[np.ndarray](), settings.search
    ascend(density, points, settings.climb_steps, search, path)
    times = rng.integers(len(path), size=(search.path_points, len(points)))
    passed = np.stack(path)[times, np.arange(len(points))].reshape(-1, density.dim)
    scales, axes = local_scales(density.hessians(passed))
    heights = density.values(passed)
    # bounded scales: a plain slope has no second derivative, and its scale would be infinite
    masses = laplace(heights, np.clip(scales, *search.scale_bounds))
    kept = np.isfinite(heights) & (masses >= least) & scales_resolved(passed, scales, search)
    kept = np.flatnonzero(kept)
    kept = rng.permutation(kept)[: len(points)]
    if not len(kept):
        return points[:0]
    return _spread(density, passed[kept], scales[kept], axes[kept], rng, settings, gradients)


def _spread(
    density: BatchedDensity,
    points: np.ndarray,
    scales: np.ndarray,
    axes: np.ndarray,
    rng: np.random.Generator,
    settings: LearnSettings,
    gradients: bool,
) -> np.ndarray:
    """Points after MCMC moves, each in its own local metric."""
    dim, search = density.dim, settings.search
    factor = (axes * np.clip(scales, *search.scale_bounds)[:, None, :]).astype(points.dtype)
    if gradients:
        (first, most), goal, power = search.spread_hmc, search.hmc_acceptance, 0.25
    else:
        (first, most), goal, power = search.spread_walk, search.walk_acceptance, 0.5
    size, least = np.full(len(points), first / dim**power, points.dtype), search.spread_least
    particles = Particles.at(density, points, gradients)
    for _ in range(settings.spread_steps):
        particles, rate = move(density, particles, factor, size, rng, search.leaps)
        size = size * np.exp(search.spread_gain * (rate - goal))
        size = np.clip(size, least, most).astype(points.dtype)
    return particles.points


def scales_resolved(points: np.ndarray, scales: np.ndarray, settings: SearchSettings) -> np.ndarray:
    """Whether floating-point numbers of this precision resolve the local scales of each point.

    Climbs in an unbounded density, such as a hierarchy's where its scale vanishes, end where
    rounding errors dominate.
    """
    spacing = np.finfo(points.dtype).eps * np.abs(points).max(axis=1)
    return scales.min(axis=1) > settings.resolves * spacing


def laplace(heights: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """`log p + Σ log(√(2π) scale)`: the log mass of a normal of that height and those scales."""
    with np.errstate(divide="ignore"):  # a scale is zero where its Hessian has overflowed
        return heights + np.sum(np.log(np.sqrt(2 * np.pi) * scales), axis=1)


def local_scales(hessians: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scales `1/√|eigenvalue|` of Hessians, zero where a Hessian has overflowed, and their axes."""
    hessians = hessians.astype(np.float64)
    overflown = np.asarray(~np.isfinite(hessians).all(axis=(1, 2)))
    hessians = np.where(np.isfinite(hessians), np.clip(-hessians, -STEEPEST, STEEPEST), 0.0)
    hessians = 0.5 * (hessians + np.swapaxes(hessians, 1, 2))
    values, axes = np.linalg.eigh(hessians)
    scales = 1 / np.sqrt(np.maximum(np.abs(values), 1e-12))
    return np.where(overflown[:, None], 0.0, scales), axes

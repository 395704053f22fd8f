"""Ascents in groups until few modes are rarely reached, and which tops belong to one mode."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Array, Key

from involutive._xla.batched import BatchedDistribution, OutOfBudget
from involutive.core.keys import generator
from involutive.learning.find.climbs import Climbed, different_tops, laplace, local_scales
from involutive.learning.find.search import gradients_useful
from involutive.learning.fit.mixture import Components
from involutive.learning.frugal.archive import Archive
from involutive.learning.frugal.ascents import Frame, Trail, ascend_quasi_newton
from involutive.learning.problem import Problem, Spending
from involutive.learning.settings import LearnSettings


@dataclass(frozen=True)
class SearchResult:
    """The result of a search by ascents.

    Attributes:
        archive: all evaluations, those of the search included.
        climbed: all ascents that ended.
        cut: whether the budget cut the search short.
    """

    archive: Archive
    climbed: Climbed
    cut: bool = False


def search(
    problem: Problem,
    spending: Spending,
    archive: Archive,
    frame: Frame,
    starts: tuple[np.ndarray, np.ndarray],
    most: int,
    key: Key[Array, ""],
) -> SearchResult:
    """Ascend from starting points, a group at a time, until few modes are rarely reached.

    Args:
        problem: the density, with sizes.
        spending: what the search may spend.
        archive: the evaluations so far.
        frame: units of length.
        starts: points `(n, dim)` in the order of use, with their log densities.
        most: maximum number of ascents.
        key: randomness.
    """
    settings, frugal, rng = problem.settings, problem.settings.frugal, generator(key)
    density, parties = spending.density, list[Climbed]()
    x = BatchedDistribution(problem.initial, density.block)
    gradients = _gradients_available(problem, spending, archive)
    limit = spending.evaluations + frugal.ascent_share * spending.allowance.evaluations
    trail, cut = Trail(density, frame), False
    points, heights = (part[:most] for part in starts)
    try:
        for low in range(0, len(points), frugal.ascents):
            rows = slice(low, low + frugal.ascents)
            climbed = ascend_quasi_newton(
                trail, points[rows], heights[rows], rng, frugal, gradients
            )
            parties.append(_with_hessians(spending, climbed, settings) if gradients else climbed)
            done = merge_tops_of_one_hill(trail, _concatenated(parties, density.dim), settings)
            parties = [done]
            if _enough_ascents(done, settings) or spending.evaluations > limit:
                break
        if parties:
            _draw_around_tops(trail, distinct_modes(parties[0], settings)[0], rng, settings)
    except OutOfBudget:
        cut = True
    if trail.points:
        normals = Components(*(np.concatenate(p) for p in zip(*trail.normals, strict=True)))
        rows, values = np.concatenate(trail.points), np.concatenate(trail.log_p)
        archive = archive.with_draws(rows, values, x, 0, normals)
    return SearchResult(archive, _concatenated(parties, density.dim), cut)


def distinct_modes(climbed: Climbed, settings: LearnSettings) -> tuple[Climbed, np.ndarray]:
    """One ascent per mode, and how many ascents ended in each mode."""
    chosen = different_tops(climbed, settings.search) if len(climbed.tops) else []
    modes = Climbed(*(part[chosen] for part in climbed))
    return modes, np.bincount(_nearest(climbed, modes), minlength=len(chosen))


def merge_tops_of_one_hill(trail: Trail, climbed: Climbed, settings: LearnSettings) -> Climbed:
    """Replace tops of one hill, without a valley between them, by the one of largest mass.

    An ascent in a narrow oblique ridge may end short of the top. Each top is compared with the
    nearest one among those of more mass.
    """
    modes, _ = distinct_modes(climbed, settings)
    if len(modes.tops) < 2:
        return climbed
    frugal, head = settings.frugal, np.arange(len(modes.tops))
    inverse = modes.axes / modes.scales[:, None, :]
    heights = modes.log_masses - laplace(np.zeros(len(modes.tops)), modes.scales)
    rows = np.arange(1, len(modes.tops))
    gaps = modes.tops[:, None] - modes.tops[None]
    white = np.sum(np.einsum("kij,nki->nkj", inverse, gaps) ** 2, axis=2)
    white = np.where(np.tri(len(modes.tops), k=-1, dtype=bool), np.minimum(white, white.T), np.inf)
    other = np.argmin(white, axis=1)[rows]
    ends = trail.frame.whiten(modes.tops)
    centres = np.concatenate([ends[rows] + t * (ends[other] - ends[rows]) for t in frugal.along])
    values = trail.draw(centres[:, None], centres, np.full(len(centres), frugal.probe_least))
    lowest = values.reshape(len(frugal.along), -1).min(axis=0)
    for row, to, low in zip(rows, other, lowest, strict=True):
        if low > min(heights[row], heights[to]) - frugal.valley:
            head[row] = head[to]
    chosen = head[_nearest(climbed, modes)]
    return Climbed(climbed.starts, *(part[chosen] for part in modes[1:]))


def _nearest(climbed: Climbed, modes: Climbed) -> np.ndarray:
    """The mode nearest to each top, in local sds of the mode."""
    if not len(climbed.tops):
        return np.zeros(0, int)
    inverse = modes.axes / modes.scales[:, None, :]
    gaps = climbed.tops[:, None] - modes.tops[None]
    return np.argmin(np.sum(np.einsum("kij,nki->nkj", inverse, gaps) ** 2, axis=2), axis=1)


def _draw_around_tops(
    trail: Trail, modes: Climbed, rng: np.random.Generator, settings: LearnSettings
) -> None:
    """Evaluate draws of every mode's normal, so that a regression has points all over the mode."""
    dim, frugal = modes.tops.shape[1], settings.frugal
    count = int(np.ceil(frugal.regressed_draws * (dim + 1) * (dim + 2) / 2))
    roots = modes.axes * modes.scales[:, None, :]
    trail.normal(modes.tops, roots, rng.normal(size=(len(roots), count, dim)))


def _enough_ascents(climbed: Climbed, settings: LearnSettings) -> bool:
    """Whether there were many ascents per mode, and few modes that ascents rarely reached."""
    counts, frugal = distinct_modes(climbed, settings)[1], settings.frugal
    enough = counts.sum() >= max(frugal.least_ascents, frugal.per_mode * len(counts))
    return bool(enough and np.sum(counts <= frugal.rare) <= frugal.unseen * counts.sum())


def _concatenated(parties: list[Climbed], dim: int) -> Climbed:
    if not parties:
        return Climbed.none(dim, np.dtype(np.float64))
    return Climbed(*map(np.concatenate, zip(*parties, strict=True)))


def _gradients_available(problem: Problem, spending: Spending, archive: Archive) -> bool:
    """Whether the density has useful gradients, which replace pairs of evaluations."""
    if not problem.target.has_gradient:
        return False
    rows = archive.points[: problem.settings.search.gradient_points]
    return gradients_useful(
        spending.density, rows.astype(spending.density.dtype), problem.settings.search
    )


def _with_hessians(spending: Spending, climbed: Climbed, settings: LearnSettings) -> Climbed:
    """The same climbs with exact Hessians at the tops, evaluated once per mode."""
    modes, _ = distinct_modes(climbed, settings)
    rows = modes.tops.astype(spending.density.dtype)
    scales, axes = local_scales(spending.density.hessians(rows))
    scales = np.clip(scales, *settings.search.top_scale_bounds)
    heights = modes.log_masses - laplace(np.zeros(len(modes.tops)), modes.scales)
    near = _nearest(climbed, modes)
    masses = laplace(heights, scales)
    return climbed._replace(scales=scales[near], axes=axes[near], log_masses=masses[near])

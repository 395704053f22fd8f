"""The first evaluations: X at several widths, and ascents from there until no new mode appears."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Array, Key

from involutive._xla.batched import BatchedDistribution, OutOfBudget
from involutive.core.errors import check
from involutive.core.keys import generator, split
from involutive.learning.find.climbs import Climbed, different_tops, laplace, local_scales
from involutive.learning.find.search import gradients_useful
from involutive.learning.fit.mixture import Components
from involutive.learning.frugal.archive import Archive, evaluated
from involutive.learning.frugal.ascents import Frame, Trail, ascend
from involutive.learning.problem import Problem, Spending
from involutive.learning.settings import LearnSettings
from involutive.learning.weights import relative


@dataclass(frozen=True)
class Searched:
    """What a search by ascents left.

    Attributes:
        archive: with its evaluations.
        climbed: all ascents that ended.
        cut: whether the budget cut it short.
    """

    archive: Archive
    climbed: Climbed
    cut: bool = False


def frame_of(law: BatchedDistribution, key: Key[Array, ""]) -> Frame:
    """Mean and sd of X."""
    draws = law.draws(key, 2000).astype(np.float64)
    low, centre, high = np.quantile(draws, [0.16, 0.5, 0.84], axis=0)
    return Frame(centre, np.maximum((high - low) / 2, 1e-30))


def first_batch(
    problem: Problem, spending: Spending, frame: Frame, given: Components | None, key: Key[Array, ""]
) -> tuple[Archive, list[np.ndarray]]:
    """Draws of X, of normals of its widths, and of a given proposal, evaluated.

    Returns them with the rows of each group.

    Raises:
        OutOfBudget: if the budget does not allow them.
        InputError: if the density is finite at none.
    """
    key_x, key_rest = split(key, 2)
    density, frugal, rng = spending.density, problem.settings.frugal, generator(key_rest)
    law, dim = BatchedDistribution(problem.law, density.block), density.dim
    size = int(min(frugal.first[0] + frugal.first[1] * dim, 0.25 * density.left))
    if size < 1:
        raise OutOfBudget
    share = frugal.given_share if given is not None else 0.0
    counts = [int((1 - share) * frugal.width_share * size / len(frugal.widths))] * len(frugal.widths)
    of_x = max(int((1 - share) * size) - sum(counts), 1)
    squares = np.stack([np.diag((width * frame.scale) ** 2) for width in frugal.widths])
    levels = np.log(np.maximum(counts, 1e-300))
    normals = Components(levels, np.tile(frame.centre, (len(counts), 1)), squares)
    points = [law.draws(key_x, of_x)]
    points += [
        frame.centre + width * frame.scale * rng.normal(size=(count, dim))
        for width, count in zip(frugal.widths, counts, strict=True)
    ]
    if given is not None:
        count = int(share * size)
        points.append(given.draws(count, rng))
        more = given._replace(log_weights=given.log_weights + np.log(count))
        normals = Components(*(np.concatenate(part) for part in zip(normals, more, strict=True)))
    rows = np.concatenate(points).astype(density.dtype).astype(np.float64)
    values = evaluated(density, rows)
    check(
        np.isfinite(values).any(),
        f"the log density is not finite at any of {len(rows):,} draws of the initial distribution; "
        "pass initial=, a distribution or points inside the support",
    )
    ends = np.cumsum([len(part) for part in points])[:-1]
    groups = np.split(np.arange(len(rows)), ends)
    narrow = [group for group, width in zip(groups[1:], frugal.widths, strict=False) if width < 1]
    others = [group for group, width in zip(groups[1:], frugal.widths, strict=False) if width >= 1]
    groups = [groups[0], *others, *([np.concatenate(narrow)] if narrow else [])]
    return Archive.empty(dim).with_draws(rows, values, law, of_x, normals), groups


def search(
    problem: Problem,
    spending: Spending,
    archive: Archive,
    frame: Frame,
    starts: tuple[np.ndarray, np.ndarray],
    most: int,
    key: Key[Array, ""],
) -> Searched:
    """Ascend from starting points in parties, until hardly a mode is seen only once.

    Args:
        problem: the density, with sizes.
        spending: what may be spent.
        archive: the evaluations so far.
        frame: units of length.
        starts: points `(n, dim)` in the order of use, with their log densities.
        most: ascents at most.
        key: randomness.
    """
    settings, frugal, rng = problem.settings, problem.settings.frugal, generator(key)
    density, parties = spending.density, list[Climbed]()
    law = BatchedDistribution(problem.law, density.block)
    gradients = _gradients(problem, spending, archive)
    limit = spending.evaluations + frugal.ascent_share * spending.allowance.evaluations
    trail, cut = Trail(density, frame), False
    points, heights = (part[:most] for part in starts)
    try:
        for low in range(0, len(points), frugal.ascents):
            rows = slice(low, low + frugal.ascents)
            climbed = ascend(trail, points[rows], heights[rows], rng, frugal, gradients)
            parties.append(_sharpened(spending, climbed, settings) if gradients else climbed)
            done = without_valleys(trail, _joined(parties, density.dim), settings)
            parties = [done]
            if _all_seen(done, settings) or spending.evaluations > limit:
                break
        if parties:
            _around_tops(trail, unique(parties[0], settings)[0], rng, settings)
    except OutOfBudget:
        cut = True
    if trail.points:
        normals = Components(*(np.concatenate(p) for p in zip(*trail.normals, strict=True)))
        rows, values = np.concatenate(trail.points), np.concatenate(trail.log_p)
        archive = archive.with_draws(rows, values, law, 0, normals)
    return Searched(archive, _joined(parties, density.dim), cut)


def starting_points(
    archive: Archive, groups: list[np.ndarray], count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Evaluated points to ascend from: of every group, and of the heaviest, in turns."""
    finite = np.isfinite(archive.log_p)
    order = np.argsort(-np.where(finite, archive.log_weights, -np.inf), kind="stable")
    lists = [rng.permutation(rows[finite[rows]]) for rows in (*groups, order[:count])]
    longest = max(map(len, lists))
    turns = np.full((longest, len(lists)), -1)
    for column, rows in enumerate(lists):
        turns[: len(rows), column] = rows
    rows = turns[turns >= 0]
    rows = rows[np.sort(np.unique(rows, return_index=True)[1])][:count]
    return archive.points[rows], archive.log_p[rows]


def unique(climbed: Climbed, settings: LearnSettings) -> tuple[Climbed, np.ndarray]:
    """One ascent per mode, and how many ended in each."""
    chosen = different_tops(climbed, settings.search) if len(climbed.tops) else []
    modes = Climbed(*(part[chosen] for part in climbed))
    return modes, np.bincount(_nearest(climbed, modes), minlength=len(chosen))


def _nearest(climbed: Climbed, modes: Climbed) -> np.ndarray:
    """The mode that each top is nearest to, in local sds of the mode."""
    if not len(climbed.tops):
        return np.zeros(0, int)
    inverse = modes.axes / modes.scales[:, None, :]
    gaps = climbed.tops[:, None] - modes.tops[None]
    return np.argmin(np.sum(np.einsum("kij,nki->nkj", inverse, gaps) ** 2, axis=2), axis=1)


def without_valleys(trail: Trail, climbed: Climbed, settings: LearnSettings) -> Climbed:
    """The same tops, those of one hill drawn together: no valley lies between them.

    An ascent in a narrow oblique ridge may end short of the top. Each is compared with the
    nearest of those of more mass.
    """
    modes, _ = unique(climbed, settings)
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


def regressed(archive: Archive, modes: Climbed, settings: LearnSettings) -> Climbed:
    """The same modes with tops and Hessians by regression, where a quadratic fits.

    `log p` of all evaluations near a top, and nearer to it than to others, is regressed on the
    terms of a quadratic: of a normal mode that is exact, and it costs no evaluation.
    """
    tops, dim, frugal = modes.tops.copy(), modes.tops.shape[1], settings.frugal
    masses, scales, axes = modes.log_masses.copy(), modes.scales.copy(), modes.axes.copy()
    i, j = np.triu_indices(dim)
    terms = 1 + dim + len(i)
    radius = (np.sqrt(dim) + frugal.regressed_radius) ** 2
    inverse = modes.axes / modes.scales[:, None, :]
    rows = np.flatnonzero(np.isfinite(archive.log_p))
    white = np.einsum("kij,nki->nkj", inverse, archive.points[rows, None] - modes.tops[None])
    squares = np.sum(white**2, axis=2)
    nearest = np.argmin(squares, axis=1) if len(tops) else np.zeros(0, int)
    for k in range(len(tops)):
        near = np.flatnonzero((nearest == k) & (squares[:, k] < radius))
        if len(near) < frugal.regressed_points * terms:
            continue
        z, values = white[near, k], archive.log_p[rows[near]]
        features = np.concatenate([np.ones((len(z), 1)), z, z[:, i] * z[:, j]], axis=1)
        found = np.linalg.lstsq(features, values, rcond=1e-10)[0]
        rest = float(np.sqrt(np.mean((features @ found - values) ** 2)))
        hessian = np.zeros((dim, dim))
        hessian[i, j] = found[1 + dim :]
        hessian = hessian + hessian.T
        precisions, turned = np.linalg.eigh(-hessian)
        if rest > frugal.regressed_rest or precisions.min() < frugal.regressed_least:
            continue
        shift = turned @ ((turned.T @ found[1 : 1 + dim]) / precisions)
        if np.sum(shift**2) > radius:
            continue
        root = modes.axes[k] * modes.scales[k]
        tops[k] = modes.tops[k] + root @ shift
        wide = root @ turned / np.sqrt(precisions)
        spread, axes[k] = np.linalg.eigh(wide @ wide.T)
        scales[k] = np.sqrt(np.maximum(spread, 1e-300))
        height = found[0] + 0.5 * shift @ found[1 : 1 + dim]
        masses[k] = laplace(np.array([height]), scales[k : k + 1])[0]
    return Climbed(modes.starts, tops, tops, masses, scales, axes)


def laplace_components(climbed: Climbed, settings: LearnSettings) -> Components:
    """One normal per mode, by the Hessian at its top, with its share of the mass."""
    tops, factors, log_masses = climbed.laplace(settings.search)
    weights = np.maximum(relative(log_masses), settings.fit.least_share)
    covariances = factors @ np.swapaxes(factors, 1, 2)
    return Components(np.log(weights / weights.sum()), tops, covariances)


def _around_tops(
    trail: Trail, modes: Climbed, rng: np.random.Generator, settings: LearnSettings
) -> None:
    """Draws of the normal of every mode, so that a regression sees all of it."""
    dim, frugal = modes.tops.shape[1], settings.frugal
    count = int(np.ceil(frugal.regressed_draws * (dim + 1) * (dim + 2) / 2))
    roots = modes.axes * modes.scales[:, None, :]
    trail.normal(modes.tops, roots, rng.normal(size=(len(roots), count, dim)))


def _all_seen(climbed: Climbed, settings: LearnSettings) -> bool:
    """Whether ascents are many for the modes found, and few ended where no other did."""
    counts, frugal = unique(climbed, settings)[1], settings.frugal
    enough = counts.sum() >= max(frugal.least_ascents, frugal.per_mode * len(counts))
    return bool(enough and np.sum(counts == 1) <= frugal.unseen * counts.sum())


def _joined(parties: list[Climbed], dim: int) -> Climbed:
    if not parties:
        return Climbed.none(dim, np.dtype(np.float64))
    return Climbed(*map(np.concatenate, zip(*parties, strict=True)))


def _gradients(problem: Problem, spending: Spending, archive: Archive) -> bool:
    """Whether gradients are to be had for less than the pairs of evaluations they replace."""
    if not problem.target.has_gradient:
        return False
    rows = archive.points[: problem.settings.search.gradient_points]
    return gradients_useful(
        spending.density, rows.astype(spending.density.dtype), problem.settings.search
    )


def _sharpened(spending: Spending, climbed: Climbed, settings: LearnSettings) -> Climbed:
    """The same with the Hessians at the tops, one evaluation of them per mode."""
    modes, _ = unique(climbed, settings)
    rows = modes.tops.astype(spending.density.dtype)
    scales, axes = local_scales(spending.density.hessians(rows))
    scales = np.clip(scales, *settings.search.top_scale_bounds)
    heights = modes.log_masses - laplace(np.zeros(len(modes.tops)), modes.scales)
    near = _nearest(climbed, modes)
    masses = laplace(heights, scales)
    return climbed._replace(scales=scales[near], axes=axes[near], log_masses=masses[near])

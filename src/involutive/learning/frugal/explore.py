"""The first evaluations: draws of X at several widths, and ascents until no new mode appears."""

import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive._xla.batched import BatchedDistribution, OutOfBudget
from involutive.core.errors import check
from involutive.core.keys import generator, split
from involutive.core.types import Number
from involutive.learning.fit.mixture import Components
from involutive.learning.frugal.archive import Archive, evaluated
from involutive.learning.frugal.ascents import Frame
from involutive.learning.frugal.regress import laplace_components, refine_by_regression
from involutive.learning.frugal.search import distinct_modes, search
from involutive.learning.frugal.state import Weighed, frame_of_x, wide_normal
from involutive.learning.problem import Problem, Spending
from involutive.learning.stages import Cost


def explore(problem: Problem, given: Components | None) -> Weighed:
    """Evaluate the first batch and ascend from it; with a given proposal evaluate the batch alone.

    Raises:
        OutOfBudget: if the budget does not allow the first batch.
    """
    spending, frugal = problem.spend(1.0, Cost()), problem.settings.frugal
    key_first, key_starts, key_search = split(jr.fold_in(problem.keys.find, 1), 3)
    units = frame_of_x(problem)
    archive, groups = first_batch(problem, spending, units, given, key_first)
    wide = wide_normal(problem, archive, units)
    if given is not None:
        return Weighed(archive, given, 0.0, 0.0, given, cost=spending.cost)
    starts = starting_points(archive, groups, frugal.most_ascents, generator(key_starts))
    found = search(problem, spending, archive, units, starts, frugal.most_ascents, key_search)
    modes = refine_by_regression(
        found.archive, distinct_modes(found.climbed, problem.settings)[0], problem.settings
    )
    teaching = laplace_components(modes, problem.settings) if len(modes.tops) else None
    ended = "budget" if found.cut else ""
    return Weighed(
        found.archive, wide if teaching is None else teaching, 0.0, 0.0, teaching, len(modes.tops),
        len(found.climbed.tops), ended=ended, cost=spending.cost,
    )  # fmt: skip


def first_batch(
    problem: Problem,
    spending: Spending,
    units: Frame,
    given: Components | None,
    key: Key[Array, ""],
) -> tuple[Archive, list[np.ndarray]]:
    """Evaluate draws of X, of normals at several widths of X, and of a given proposal.

    Returns:
        The archive, and the rows of each group of draws.

    Raises:
        OutOfBudget: if the budget does not allow them.
        InputError: if the density is finite at none.
    """
    key_x, key_rest = split(key, 2)
    density, frugal, rng = spending.density, problem.settings.frugal, generator(key_rest)
    x, dim = BatchedDistribution(problem.initial, density.block), density.dim
    size = int(min(frugal.first[0] + frugal.first[1] * dim, frugal.first_share * density.left))
    if size < 1:
        raise OutOfBudget
    share = frugal.given_share if given is not None else 0.0
    counts = [int((1 - share) * frugal.width_share * size / len(frugal.widths))] * len(
        frugal.widths
    )
    of_x = max(int((1 - share) * size) - sum(counts), 1)
    normals = _normals_at_widths(units, frugal.widths, counts)
    points = [x.draws(key_x, of_x)]
    points += [
        units.centre + width * units.scale * rng.normal(size=(count, dim))
        for width, count in zip(frugal.widths, counts, strict=True)
    ]
    if given is not None:
        count = int(share * size)
        points.append(given.draws(count, rng))
        more = given._replace(log_weights=given.log_weights + np.log(max(count, 1e-300)))
        normals = Components(*(np.concatenate(part) for part in zip(normals, more, strict=True)))
    rows = np.concatenate(points).astype(density.dtype).astype(np.float64)
    values = evaluated(density, rows)
    check(
        np.isfinite(values).any(),
        f"the log density is not finite at any of {len(rows):,} draws of the initial distribution; "
        "pass initial=, a distribution or points inside the support",
    )
    archive = Archive.empty(dim).with_draws(rows, values, x, of_x, normals)
    return archive, _row_groups(points, frugal.widths)


def _normals_at_widths(units: Frame, widths: tuple[Number, ...], counts: list[int]) -> Components:
    """One normal per width of X; its log weight is the log number of its draws."""
    squares = np.stack([np.diag((width * units.scale) ** 2) for width in widths])
    levels = np.log(np.maximum(counts, 1e-300))
    return Components(levels, np.tile(units.centre, (len(counts), 1)), squares)


def _row_groups(points: list[np.ndarray], widths: tuple[Number, ...]) -> list[np.ndarray]:
    """Rows of X, rows of each width from 1 upwards, and the rows of all narrower widths as one."""
    ends = np.cumsum([len(part) for part in points])
    groups = np.split(np.arange(ends[-1]), ends[:-1])
    narrow = [group for group, width in zip(groups[1:], widths, strict=False) if width < 1]
    others = [group for group, width in zip(groups[1:], widths, strict=False) if width >= 1]
    return [groups[0], *others, *([np.concatenate(narrow)] if narrow else [])]


def starting_points(
    archive: Archive, groups: list[np.ndarray], count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Evaluated points to ascend from: in turns of every group and of the largest weights."""
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

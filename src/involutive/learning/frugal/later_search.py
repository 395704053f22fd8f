"""A later search of frugal learning, for modes that the fitted mixture misses."""

from dataclasses import replace

import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive._xla.batched import BatchedDistribution, OutOfBudget
from involutive.core.keys import generator, split
from involutive.learning.find.climbs import Climbed, laplace
from involutive.learning.fit.mixture import Components, joined
from involutive.learning.frugal.archive import Archive, evaluated
from involutive.learning.frugal.ascents import Frame
from involutive.learning.frugal.regress import laplace_components, refine_by_regression
from involutive.learning.frugal.search import distinct_modes, search
from involutive.learning.frugal.state import Weighed, frame_of_x, unwhitened_space, wide_normal
from involutive.learning.problem import Problem, Spending
from involutive.learning.settings import FrugalSettings
from involutive.learning.weights import log_mean, relative


def later_search(problem: Problem, weighed: Weighed) -> Weighed:
    """Ascend from other places; a mode that the mixture does not cover joins it."""
    spending, frugal = problem.spend(1.0, weighed.cost), problem.settings.frugal
    key = jr.fold_in(problem.keys.structure, weighed.searches)
    key_starts, key_search = split(key, 2)
    units = frame_of_x(problem)
    wide = wide_normal(problem, weighed.archive, units)
    try:
        archive, starts = _places(problem, spending, weighed, units, key_starts)
    except OutOfBudget:
        return replace(weighed, ended="budget", cost=spending.cost)
    found = search(problem, spending, archive, units, starts, frugal.later_ascents, key_search)
    modes = refine_by_regression(
        found.archive, distinct_modes(found.climbed, problem.settings)[0], problem.settings
    )
    missed = uncovered(problem, weighed, wide, modes)
    new = int(missed.sum())
    ended = "budget" if found.cut else "" if new else "finished"
    more = replace(
        weighed, archive=found.archive, ascents=weighed.ascents + len(found.climbed.tops),
        searches=weighed.searches + 1, new=new, ended=ended, cost=spending.cost,
    )  # fmt: skip
    if not new:
        return more
    kept = Climbed(*(part[missed] for part in modes))
    share = new / (new + len(weighed.mixture.means))
    extra = laplace_components(kept, problem.settings)
    teaching = joined([weighed.mixture, extra], (1 - share, share))
    return replace(more, teaching=teaching, mixture=teaching, ess=0.0, acceptance=0.0, idle=0,
                   fresh=True, modes=weighed.modes + new)  # fmt: skip


def uncovered(problem: Problem, weighed: Weighed, wide: Components, modes: Climbed) -> np.ndarray:
    """Whether p/q at the top of each mode is far above p/q at nearly all of the known mass."""
    if not len(modes.tops):
        return np.zeros(0, bool)
    space, archive = unwhitened_space(problem.settings, wide), weighed.archive
    q = space.with_wide_normal(weighed.mixture)
    ratio = archive.log_p - q.log_density(archive.points)
    weights = relative(archive.log_weights)
    order = np.argsort(ratio)
    # the quantile of p/q, weighted by mass, that nearly all of the mass lies below
    levels = np.cumsum(weights[order]) / max(weights.sum(), 1e-300)
    level = ratio[order][
        min(np.searchsorted(levels, problem.settings.frugal.below_level), len(order) - 1)
    ]
    heights = modes.log_masses - laplace(np.zeros(len(modes.tops)), modes.scales)
    return heights - q.log_density(modes.tops) > level + np.log(problem.settings.fit.beyond)


def _places(
    problem: Problem,
    spending: Spending,
    weighed: Weighed,
    units: Frame,
    key: Key[Array, ""],
) -> tuple[Archive, tuple[np.ndarray, np.ndarray]]:
    """Starting places of ascents: in turns evaluations that no known mode explains, and new draws.

    The new draws come from normals at the widths of X and from the mixture stretched; they are
    evaluated here and join the archive.
    """
    frugal, rng = problem.settings.frugal, generator(key)
    density = spending.density
    x = BatchedDistribution(problem.initial, density.block)
    widths = (1.0, *(width for width in frugal.widths if width > 1))
    squares = np.stack([np.diag((width * units.scale) ** 2) for width in widths])
    near = Components(
        np.full(len(widths), -np.log(len(widths))), np.tile(units.centre, (len(widths), 1)), squares
    )
    stretched = weighed.mixture.inflated(max(problem.settings.search.again_stretches) ** 2)
    proposal = joined([near, stretched], frugal.later_shares)
    count = frugal.later_places * frugal.later_ascents
    if density.left < count:
        raise OutOfBudget
    points = proposal.draws(count, rng).astype(density.dtype).astype(np.float64)
    values = evaluated(density, points)
    normals = proposal._replace(log_weights=proposal.log_weights + np.log(count))
    archive = weighed.archive.with_draws(points, values, x, 0, normals)
    finite = np.flatnonzero(np.isfinite(values))
    heavy = _unexplained(weighed, frugal)[: len(finite)]
    fresh = finite[: count - len(heavy)]
    both = np.argsort(np.concatenate([np.arange(len(heavy)), np.arange(len(fresh))]), kind="stable")
    places = np.concatenate([weighed.archive.points[heavy], points[fresh]])[both]
    return archive, (places, np.concatenate([weighed.archive.log_p[heavy], values[fresh]])[both])


def _unexplained(weighed: Weighed, settings: FrugalSettings) -> np.ndarray:
    """Evaluations where p is far above the tails of all known modes, the largest p first.

    q is the mixture without its wide normal: in the tails of a known mode p/q is about as large as
    at its top, and it is larger in the basin of an unknown mode.
    """
    archive = weighed.archive
    with np.errstate(invalid="ignore"):
        ratio = archive.log_p - weighed.mixture.log_density(archive.points)
    above = ratio > log_mean(archive.log_weights) + settings.unexplained
    rows = np.flatnonzero(above & np.isfinite(archive.log_p))
    return rows[np.argsort(-archive.log_p[rows], kind="stable")]

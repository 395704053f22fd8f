"""Batches of adaptive importance sampling, each drawn from what all evaluations before it taught.

Where weights are uneven a batch explores: a part of it is drawn around the points at which p/q is
largest, which q covers least, and more of it from q stretched and from one wide normal over X. A
batch judges the mixture it was drawn from before it teaches the next one. Fitting ends when
batches cost more evaluations than they will save: `goal` effective draws take `goal`/ess of them.
Then ascents look for what the mixture misses.
"""

from dataclasses import dataclass, field, replace

import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive._xla.batched import BatchedDistribution, OutOfBudget
from involutive.core.keys import generator, split
from involutive.core.types import Number
from involutive.learning.fit.mixture import Components, joined
from involutive.learning.fit.weighted import Space, WeightedSample, normal_around
from involutive.learning.frugal.archive import Archive, evaluated
from involutive.learning.frugal.ascents import Frame
from involutive.learning.frugal.explore import (
    first_batch,
    frame_of,
    laplace_components,
    regressed,
    search,
    starting_points,
    unique,
)
from involutive.learning.frugal.refit import NeverAsked, refit
from involutive.learning.problem import Problem, Spending
from involutive.learning.settings import LearnSettings
from involutive.learning.stages import Cost, Row
from involutive.learning.weights import relative
from involutive.storage.codec import register


@register
@dataclass(frozen=True)
class Weighed:
    """The result of every batch of frugal learning.

    Attributes:
        archive: every evaluation so far.
        mixture: the best mixture so far, judged on a batch that it was not fitted to.
        ess: effective draws per draw of chains that propose from it.
        acceptance: of such chains.
        teaching: the mixture that the next refit starts from.
        modes: modes that ascents have found.
        ascents: ascents made.
        batches: batches made, in all.
        idle: batches in a row that did not pay for themselves.
        fresh: whether modes joined since the last batch, with normals by their Hessians.
        searches: searches made after the first.
        new: modes that the last of them found and the mixture did not cover.
        gradients: whether ascents had gradients.
        ended: "" while it goes on, else "finished", "budget" or "interrupted".
        cost: what it took.
        history: one row per batch.
        reached: seconds and effective draws per draw after every batch.
    """

    archive: Archive
    mixture: Components
    ess: Number
    acceptance: Number
    teaching: Components | None
    modes: int = 0
    ascents: int = 0
    batches: int = 0
    idle: int = 0
    fresh: bool = True
    searches: int = 0
    new: int = 0
    gradients: bool = False
    ended: str = ""
    cost: Cost = field(default_factory=Cost)
    history: list[Row] = field(default_factory=list)
    reached: list[Row] = field(default_factory=list)


def explore(problem: Problem, given: Components | None) -> Weighed:
    """The first batch and the first ascents; with a given proposal only the batch.

    Raises:
        OutOfBudget: if not even the first batch was affordable.
    """
    spending, frugal = problem.spend(1.0, Cost()), problem.settings.frugal
    _, key_first, key_starts, key_search = split(problem.keys.find, 4)
    units = frame(problem)
    archive, groups = first_batch(problem, spending, units, given, key_first)
    wide = wide_normal(problem, archive, units)
    if given is not None:
        return Weighed(archive, given, 0.0, 0.0, given, cost=spending.cost)
    starts = starting_points(archive, groups, frugal.most_ascents, generator(key_starts))
    found = search(problem, spending, archive, units, starts, frugal.most_ascents, key_search)
    modes = regressed(found.archive, unique(found.climbed, problem.settings)[0], problem.settings)
    teaching = laplace_components(modes, problem.settings) if len(modes.tops) else None
    ended = "budget" if found.cut else ""
    return Weighed(
        found.archive, wide if teaching is None else teaching, 0.0, 0.0, teaching, len(modes.tops),
        len(found.climbed.tops), ended=ended, cost=spending.cost,
    )  # fmt: skip


def next_batch(problem: Problem, weighed: Weighed) -> Weighed:
    """Refit the mixture, draw a batch from it, evaluate, weigh and judge."""
    spending, frugal = problem.spend(1.0, weighed.cost), problem.settings.frugal
    key = jr.fold_in(problem.keys.fit, weighed.batches)
    key_fit, key_draw = split(key, 2)
    units = frame(problem)
    wide = wide_normal(problem, weighed.archive, units)
    try:
        mixture, beta = _next_mixture(problem, weighed, wide, key_fit)
        archive, sample = _drawn(problem, spending, weighed, mixture, wide, key_draw)
    except OutOfBudget:
        return replace(weighed, ended="budget", cost=spending.cost)
    judged = raw_space(problem.settings, wide).judged(mixture, sample)
    row: Row = {
        "stage": f"batch of {len(sample.points)} weighed for {len(mixture.means)} components",
        "acceptance": judged.acceptance, "ess": judged.ess, "tempered": beta,
        "evaluations": spending.cost.evaluations,
    }  # fmt: skip
    pays = _pays(weighed, judged.ess, archive, beta, len(sample.points), frugal.goal)
    better = judged.ess > weighed.ess
    return replace(
        weighed,
        archive=archive,
        mixture=mixture if better else weighed.mixture,
        ess=max(judged.ess, weighed.ess),
        acceptance=judged.acceptance if better else weighed.acceptance,
        teaching=mixture,
        fresh=False,
        batches=weighed.batches + 1,
        idle=0 if pays else weighed.idle + 1,
        cost=spending.cost,
        history=[*weighed.history, row],
        reached=[*weighed.reached, {"seconds": spending.cost.seconds, "ess": judged.ess}],
    )


def _next_mixture(
    problem: Problem, weighed: Weighed, wide: Components, key: Key[Array, ""]
) -> tuple[Components, float]:
    """What the next batch is drawn from: normals by Hessians as they are, or a refit."""
    if weighed.fresh and weighed.teaching is not None:
        return weighed.teaching, 1.0
    return refit(weighed.archive, weighed.teaching, wide, key, problem.settings)


def search_again(problem: Problem, weighed: Weighed) -> Weighed:
    """Ascend from other places; a mode that the mixture does not cover joins it."""
    spending, frugal = problem.spend(1.0, weighed.cost), problem.settings.frugal
    key = jr.fold_in(problem.keys.structure, weighed.searches)
    key_starts, key_search = split(key, 2)
    units = frame(problem)
    wide = wide_normal(problem, weighed.archive, units)
    try:
        archive, starts = _places(problem, spending, weighed, units, wide, key_starts)
    except OutOfBudget:
        return replace(weighed, ended="budget", cost=spending.cost)
    found = search(problem, spending, archive, units, starts, frugal.later_ascents, key_search)
    modes = regressed(found.archive, unique(found.climbed, problem.settings)[0], problem.settings)
    missed = uncovered(problem, replace(weighed, archive=found.archive), wide, modes.tops)
    new = int(missed.sum())
    last = weighed.searches + 1 >= frugal.searches
    ended = "budget" if found.cut else "" if new and not last else "finished"
    more = replace(
        weighed, archive=found.archive, ascents=weighed.ascents + len(found.climbed.tops),
        searches=weighed.searches + 1, new=new, ended=ended, cost=spending.cost,
    )  # fmt: skip
    if not new:
        return more
    kept = type(modes)(*(part[missed] for part in modes))
    share = new / (new + len(weighed.mixture.means))
    extra = laplace_components(kept, problem.settings)
    teaching = joined([weighed.mixture, extra], (1 - share, share))
    return replace(more, teaching=teaching, mixture=teaching, ess=0.0, acceptance=0.0, idle=0,
                   fresh=True, modes=weighed.modes + new)  # fmt: skip


def more_batches(problem: Problem, weighed: Weighed) -> bool:
    """Whether another batch may pay."""
    frugal = problem.settings.frugal
    most = frugal.most_batches * (1 + weighed.searches)
    return not weighed.ended and weighed.idle < frugal.patience and weighed.batches < most


def wide_normal(problem: Problem, archive: Archive, units: Frame) -> Components:
    """One normal over X and over what was reached."""
    dim = len(units.centre)
    rng = np.random.default_rng(0)  # the normal of a sample: any will do, the same each time
    around = units.colour(rng.normal(size=(1000, dim)))
    weights = relative(archive.log_weights)
    heavy = archive.points[np.argsort(-weights, kind="stable")[: max(int(archive.effective), 1)]]
    return normal_around(np.concatenate([around, heavy[:1000]]), problem.settings.fit)


def raw_space(settings: LearnSettings, wide: Components) -> Space:
    """Judges mixtures in the coordinates of the density itself."""
    dim = wide.means.shape[1]
    return Space(NeverAsked(dim), np.zeros(dim), np.eye(dim), wide, settings)


def uncovered(
    problem: Problem, weighed: Weighed, wide: Components, points: np.ndarray
) -> np.ndarray:
    """Whether p/q at points is far above what the mixture's own draws have."""
    if not len(points):
        return np.zeros(0, bool)
    space, archive = raw_space(problem.settings, wide), weighed.archive
    q = space.covered(weighed.mixture)
    ratio = archive.log_p - q.log_density(archive.points)
    weights = relative(archive.log_weights)
    order = np.argsort(ratio)
    # the level that all but a thousandth of the mass lies below
    levels = np.cumsum(weights[order]) / max(weights.sum(), 1e-300)
    level = ratio[order][min(np.searchsorted(levels, 0.999), len(order) - 1)]
    near = np.array([np.argmin(np.sum((archive.points - p) ** 2, axis=1)) for p in points])
    at = archive.log_p[near] - q.log_density(points)
    return at > level + np.log(problem.settings.fit.beyond)


def frame(problem: Problem) -> Frame:
    """Units of length: those of X."""
    return frame_of(BatchedDistribution(problem.law), split(problem.keys.find, 4)[0])


def _pays(
    weighed: Weighed, ess: Number, archive: Archive, beta: float, size: int, goal: Number
) -> bool:
    """Whether a batch saved more evaluations than it cost, or brought more effective draws."""
    if weighed.ess <= 0 or goal / weighed.ess - goal / max(ess, weighed.ess) > size:
        return True
    return beta < 1 and archive.effective > 1.2 * weighed.archive.effective


def _drawn(
    problem: Problem,
    spending: Spending,
    weighed: Weighed,
    mixture: Components,
    wide: Components,
    key: Key[Array, ""],
) -> tuple[Archive, WeightedSample]:
    """A batch, as part of the archive and as a weighted sample of its own."""
    frugal, density, rng = problem.settings.frugal, spending.density, generator(key)
    archive, dim = weighed.archive, density.dim
    size = (frugal.batch[0] + frugal.batch[1] * dim) * (1 + frugal.batch_growth * weighed.batches)
    if density.left < frugal.batch[0] / 2:
        raise OutOfBudget
    size = int(min(size, density.left))
    shares = frugal.exploring if weighed.ess < frugal.poor else frugal.settled
    stretch = 1 + problem.settings.fit.stretch / np.sqrt(dim)
    scouts = _scouts(archive, mixture, wide, frugal.scouts, rng, problem.settings)
    parts = [mixture, mixture.inflated(stretch), scouts, wide]
    proposal = joined(parts, shares)
    points = proposal.draws(size, rng).astype(density.dtype).astype(np.float64)
    values = evaluated(density, points)
    sample = WeightedSample(points, values, proposal.log_density(points))
    law = BatchedDistribution(problem.law, density.block)
    normals = proposal._replace(log_weights=proposal.log_weights + np.log(size))
    return archive.with_draws(points, values, law, 0, normals), sample


def _scouts(
    archive: Archive,
    mixture: Components,
    wide: Components,
    count: int,
    rng: np.random.Generator,
    settings: LearnSettings,
) -> Components:
    """Normals around the heaviest points that q covers least, shaped like the nearest component."""
    q = raw_space(settings, wide).covered(mixture)
    with np.errstate(invalid="ignore"):
        lack = archive.log_p - q.log_density(archive.points)
    lack = np.where(np.isfinite(lack), lack, -np.inf)
    rows = np.argsort(-lack, kind="stable")[: 20 * count]
    rows = rng.permutation(rows)[:count]
    centres = archive.points[rows]
    gaps = centres[:, None] - mixture.means[None]
    white = np.linalg.solve(np.linalg.cholesky(mixture.covariances)[None], gaps[..., None])[..., 0]
    nearest = np.argmin(np.sum(white**2, axis=2), axis=1)
    return Components(np.full(len(rows), -np.log(len(rows))), centres, mixture.covariances[nearest])


def _places(
    problem: Problem,
    spending: Spending,
    weighed: Weighed,
    units: Frame,
    wide: Components,
    key: Key[Array, ""],
) -> tuple[Archive, tuple[np.ndarray, np.ndarray]]:
    """Places for ascents: where q covers least of what was evaluated, and fresh ones in turns.

    The fresh ones are draws of X, of its widths, and of the mixture stretched.
    """
    frugal, rng = problem.settings.frugal, generator(key)
    density, dim = spending.density, spending.density.dim
    law = BatchedDistribution(problem.law, density.block)
    widths = (1.0, *frugal.widths)
    squares = np.stack([np.diag((width * units.scale) ** 2) for width in widths])
    near = Components(
        np.full(len(widths), -np.log(len(widths))), np.tile(units.centre, (len(widths), 1)), squares
    )
    stretched = weighed.mixture.inflated(max(problem.settings.search.again_stretches) ** 2)
    proposal = joined([near, stretched], (0.5, 0.5))
    count = 2 * frugal.later_ascents
    if density.left < count:
        raise OutOfBudget
    points = proposal.draws(count, rng).astype(density.dtype).astype(np.float64)
    values = evaluated(density, points)
    normals = proposal._replace(log_weights=proposal.log_weights + np.log(count))
    archive = weighed.archive.with_draws(points, values, law, 0, normals)
    finite = np.flatnonzero(np.isfinite(values))
    q = raw_space(problem.settings, wide).covered(weighed.mixture)
    with np.errstate(invalid="ignore"):
        lack = weighed.archive.log_p - q.log_density(weighed.archive.points)
    lack = np.where(np.isfinite(lack), lack, -np.inf)
    heavy = np.argsort(-lack, kind="stable")[:count]  # where q covers least
    heavy = rng.permutation(heavy)[: len(finite)]
    fresh = finite[: len(heavy)]
    both = np.stack([np.arange(len(heavy)), len(heavy) + np.arange(len(fresh))], axis=1).ravel()
    places = np.concatenate([weighed.archive.points[heavy], points[fresh]])[both]
    return archive, (places, np.concatenate([weighed.archive.log_p[heavy], values[fresh]])[both])

"""Batches of adaptive importance sampling, each drawn from a mixture fitted to all evaluations.

While weights are uneven a batch explores: part of it is drawn around the points with the largest
p/q, which q covers worst, and more of it from q stretched and from one wide normal over X. A batch
judges the mixture that it was drawn from before the next mixture is fitted to it. Fitting ends when
batches cost more evaluations than they will save: `goal` effective draws take `goal`/ess
evaluations.
"""

from dataclasses import replace

import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive._xla.batched import BatchedDistribution, OutOfBudget
from involutive.core.keys import generator, split
from involutive.core.types import Number
from involutive.learning.fit.mixture import Components, joined
from involutive.learning.fit.weighted import WeightedSample
from involutive.learning.frugal.archive import Archive, evaluated
from involutive.learning.frugal.refit import refit
from involutive.learning.frugal.state import Weighed, frame_of_x, unwhitened_space, wide_normal
from involutive.learning.problem import Problem, Spending
from involutive.learning.settings import FrugalSettings, LearnSettings
from involutive.learning.stages import Row


def next_batch(problem: Problem, weighed: Weighed) -> Weighed:
    """Refit the mixture, evaluate a batch drawn from it, and judge the mixture by its weights."""
    spending, frugal = problem.spend(1.0, weighed.cost), problem.settings.frugal
    key = jr.fold_in(problem.keys.fit, weighed.batches)
    key_fit, key_draw = split(key, 2)
    units = frame_of_x(problem)
    wide = wide_normal(problem, weighed.archive, units)
    try:
        mixture, beta = _next_mixture(problem, weighed, wide, key_fit)
        archive, sample = _draw_batch(problem, spending, weighed, mixture, wide, key_draw)
    except OutOfBudget:
        return replace(weighed, ended="budget", cost=spending.cost)
    judged = unwhitened_space(problem.settings, wide).judged(mixture, sample)
    row: Row = {
        "stage": f"batch of {len(sample.points)} weighed for {len(mixture.means)} components",
        "acceptance": judged.acceptance, "ess": judged.ess, "tempered": beta,
        "evaluations": spending.cost.evaluations,
    }  # fmt: skip
    pays = _batch_paid(weighed, judged.ess, archive, beta, len(sample.points), frugal)
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
        idle=0 if pays else weighed.idle + len(sample.points),
        cost=spending.cost,
        history=[*weighed.history, row],
        reached=[*weighed.reached, {"seconds": spending.cost.seconds, "ess": judged.ess}],
    )


def another_batch_pays(problem: Problem, weighed: Weighed) -> bool:
    """Whether another batch may save more evaluations than it costs."""
    frugal = problem.settings.frugal
    most = frugal.most_batches * (1 + weighed.searches)
    saves = frugal.goal * (1 / max(weighed.ess, 1e-6) - 1)
    tried = weighed.idle > frugal.patience * saves
    return not (weighed.ended or tried or weighed.batches >= most)


def _next_mixture(
    problem: Problem, weighed: Weighed, wide: Components, key: Key[Array, ""]
) -> tuple[Components, float]:
    """The mixture that the next batch is drawn from, and the tempering of its fit.

    After a search it is the mixture with the Laplace components of the new modes, else a refit.
    """
    if weighed.fresh and weighed.teaching is not None:
        return weighed.teaching, 1.0
    return refit(weighed.archive, weighed.teaching, wide, key, problem.settings)[:2]


def _batch_paid(
    weighed: Weighed,
    ess: Number,
    archive: Archive,
    beta: float,
    size: int,
    frugal: FrugalSettings,
) -> bool:
    """Whether a batch saves more evaluations than it cost, or gained effective draws."""
    goal = frugal.goal
    if weighed.ess <= 0 or goal / weighed.ess - goal / max(ess, weighed.ess) > size:
        return True
    return beta < 1 and archive.effective > frugal.gains * weighed.archive.effective


def _draw_batch(
    problem: Problem,
    spending: Spending,
    weighed: Weighed,
    mixture: Components,
    wide: Components,
    key: Key[Array, ""],
) -> tuple[Archive, WeightedSample]:
    """Draw and evaluate a batch; returns the archive with it, and it as a weighted sample."""
    frugal, density, rng = problem.settings.frugal, spending.density, generator(key)
    archive, dim = weighed.archive, density.dim
    size = (frugal.batch[0] + frugal.batch[1] * dim) * (1 + frugal.batch_growth * weighed.batches)
    if density.left < frugal.least_batch * frugal.batch[0]:
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
    x = BatchedDistribution(problem.initial, density.block)
    normals = proposal._replace(log_weights=proposal.log_weights + np.log(size))
    return archive.with_draws(points, values, x, 0, normals), sample


def _scouts(
    archive: Archive,
    mixture: Components,
    wide: Components,
    count: int,
    rng: np.random.Generator,
    settings: LearnSettings,
) -> Components:
    """Normals around points with the largest p/q, shaped like the component nearest to each."""
    q = unwhitened_space(settings, wide).with_wide_normal(mixture)
    with np.errstate(invalid="ignore"):
        lack = archive.log_p - q.log_density(archive.points)
    lack = np.where(np.isfinite(lack), lack, -np.inf)
    rows = np.argsort(-lack, kind="stable")[: settings.frugal.scout_pool * count]
    rows = rng.permutation(rows)[:count]
    centres = archive.points[rows]
    gaps = centres[:, None] - mixture.means[None]
    white = np.linalg.solve(np.linalg.cholesky(mixture.covariances)[None], gaps[..., None])[..., 0]
    nearest = np.argmin(np.sum(white**2, axis=2), axis=1)
    return Components(np.full(len(rows), -np.log(len(rows))), centres, mixture.covariances[nearest])

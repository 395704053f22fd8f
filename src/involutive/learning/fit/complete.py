"""Complete the modes that a search has found, by climbs from where they explain too little.

A normal at every top, with its inverse Hessian as covariance, makes a first mixture q. Weighted
draws at which p/q is far above its mean, which is Z, lie near modes that q lacks: climbs from there
reach their tops, which join the others. EM could only stretch components of other modes over them.
"""

import numpy as np
from jaxtyping import Array, Key

from involutive._xla.batched import GRADIENT, OutOfBudget
from involutive.core.keys import generator, split
from involutive.learning.find.climbs import Climbed, climb
from involutive.learning.fit.importance import laplace_mixture
from involutive.learning.fit.mixture import Components
from involutive.learning.fit.weighted import FittedMixture, Space
from involutive.learning.problem import Problem, Spending
from involutive.learning.settings import LearnSettings
from involutive.learning.stages import Found


def complete_modes(
    problem: Problem, spending: Spending, space: Space, found: Found, key: Key[Array, ""]
) -> Found:
    """Add modes that weighted draws of the found ones lead to, until they lead to no others.

    Nothing is added where normals at the tops do not describe most of the target, since p/q is
    large everywhere then.
    """
    settings, fit = problem.settings, problem.settings.fit
    for key_turn in split(key, fit.complete_turns):
        if not 1 < found.modes <= fit.most_modes:
            break
        key_sample, key_climb = split(key_turn, 2)
        guess = laplace_mixture(space, found.tops, found.factors, found.log_masses)
        try:
            size = int(fit.judged_share * settings.fit_draws)
            judged = space.judged(guess, space.sample(guess, size, generator(key_sample)))
            if judged.acceptance < fit.complete_above:
                break
            new = _climbed(problem, spending, space, judged, key_climb)
        except OutOfBudget:
            break
        modes = new.laplace(settings.search)
        if not len(modes[0]):
            break
        found = found.joined_by(new.points, modes)
    return found


def _climbed(
    problem: Problem, spending: Spending, space: Space, judged: FittedMixture, key: Key[Array, ""]
) -> Climbed:
    """Climbs from the weighted draws that q explains worst; those whose tops it lacks as well."""
    settings, sample = problem.settings, judged.sample
    level = sample.log_z + np.log(settings.fit.beyond)
    excess = _log_ratio(space, judged.mixture, sample.points)
    worst = np.argsort(-excess, kind="stable")[: _affordable_climbs(settings, spending)]
    worst = worst[excess[worst] > level]
    starts = space.colour(sample.points[worst]).astype(spending.density.dtype)
    if not len(starts):
        return Climbed.none(problem.target.dim, starts.dtype)
    hmc = problem.target.dim > settings.search.walk_dims
    climbed = climb(spending.density, starts, key, settings, gradients=hmc)
    lacking = _log_ratio(space, judged.mixture, space.whiten(climbed.tops)) > level
    lacking &= climbed.log_masses > sample.log_z - settings.search.lighter_nats
    return Climbed(*(part[lacking] for part in climbed))


def _affordable_climbs(settings: LearnSettings, spending: Spending) -> int:
    """As many climbs as in a second search, within a share of the evaluations that are left."""
    most = settings.fit.complete_share * spending.density.left / (GRADIENT * settings.climb_steps)
    return int(min(settings.second_search * settings.climbers, most))


def _log_ratio(space: Space, mixture: Components, points: np.ndarray) -> np.ndarray:
    """log p/q, with -inf for what is not a number."""
    at = space.log_p(points) - space.with_wide_normal(mixture).log_density(points)
    return np.nan_to_num(at, nan=-np.inf)

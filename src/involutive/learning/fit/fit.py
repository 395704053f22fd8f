"""The second stage of learning: fit a proposal to the target by importance weights."""

from dataclasses import replace
from functools import partial

import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive._xla.batched import BatchedDistribution, OutOfBudget
from involutive._xla.threads import one_thread
from involutive.bijections.whitening import whitening
from involutive.core.keys import generator, split
from involutive.involutions.blocks import FunctionBlock
from involutive.kernel.kernel import Kernel
from involutive.learning.find.second_search import around_mixture, second_search
from involutive.learning.fit.complete import complete_modes
from involutive.learning.fit.importance import (
    component_counts,
    components_of_missed,
    fit_by_weights,
    laplace_mixture,
    with_components,
)
from involutive.learning.fit.trained import train_proposal, training_evaluations
from involutive.learning.fit.weighted import FittedMixture, Space
from involutive.learning.problem import Problem, Spending
from involutive.learning.stages import Fitted, Found, Looked, Proposal, Row
from involutive.learning.weights import effective


def fit_proposal(problem: Problem, found: Found) -> Fitted | Found:
    """Fit a mixture to the target by importance sampling, from points that cover it.

    A second search looks for modes that the mixture has missed. It adds those to the mixture, which
    is then fitted again.

    Returns:
        The fit; `found`, with what was spent, if the budget did not allow one.
    """
    spending = problem.spend(problem.settings.budget.fit, found.cost)
    key_fit, key_again, key_pick = split(problem.keys.fit, 3)
    with one_thread():
        try:
            found, space, fitted = _fit_by_weights(problem, spending, found, key_fit)
        except OutOfBudget:
            return replace(found, cost=spending.cost)
        found, fitted, looked = _search_again(problem, spending, found, space, fitted, key_again)
    return _as_fitted(problem, spending, found, space, fitted, looked, key_pick)


def _search_again(
    problem: Problem,
    spending: Spending,
    found: Found,
    space: Space,
    fitted: FittedMixture,
    key: Key[Array, ""],
) -> tuple[Found, FittedMixture, Looked]:
    """Look for modes that the mixture has missed, and add them, until a search finds none.

    If the budget ends on the way, the mixture stays as it is and the record says what is missing.
    """
    settings, looked = problem.settings, Looked(len(found.starts), problem.settings.widths)
    lacking = found.points[:0]
    # a poor mixture fails to cover modes that the first search did find
    turns = settings.fit.searches if fitted.ess >= settings.fit.reaches else 0
    for key_turn in split(key, turns):
        key_search, key_refit, key_seeds = split(key_turn, 3)
        seen = second_search(
            problem, spending, around_mixture(space, fitted), partial(_uncovered, space, fitted),
            fitted.sample.log_z, found.gradients, key_search,
        )  # fmt: skip
        # a search that reached nothing says nothing of places that are known to be missed
        lacking = np.concatenate([lacking, seen.points])
        looked = replace(looked, second=looked.second + seen.num_reached, new=len(lacking))
        if not len(seen.points):
            break
        found = found.joined_by(seen.points)
        try:
            new = components_of_missed(space, fitted, seen, key_seeds)
            fitted = with_components(space, fitted, new, generator(key_refit))
            lacking = lacking[_uncovered(space, fitted, lacking)]
            looked = replace(looked, new=len(lacking))
        except OutOfBudget:
            break
    return found, fitted, looked


def _uncovered(space: Space, fitted: FittedMixture, points: np.ndarray) -> np.ndarray:
    return space.uncovered(fitted, space.whiten(points))


def _fit_by_weights(
    problem: Problem, spending: Spending, found: Found, key: Key[Array, ""]
) -> tuple[Found, Space, FittedMixture]:
    key_far, key_weigh = split(key, 2)
    settings, density = problem.settings, spending.density
    g = whitening(found.points)
    mean, factor = (np.asarray(part.unwrap()) for part in (g.mean, g.factor))
    far = BatchedDistribution(problem.initial, density.block).draws(key_far, settings.fit.far_draws)
    space = Space.around(density, mean, factor, settings, far, found.points)
    found = complete_modes(problem, spending, space, found, jr.fold_in(problem.keys.early, 6))
    white = space.whiten(found.points)
    counts = component_counts(found.modes, len(white), problem.target.dim, settings)
    guess = None
    if 0 < found.modes <= counts[0]:
        guess = laplace_mixture(space, found.tops, found.factors, found.log_masses)
    return found, space, fit_by_weights(space, white, key_weigh, counts, settings, guess)


def _as_fitted(
    problem: Problem,
    spending: Spending,
    found: Found,
    space: Space,
    fitted: FittedMixture,
    looked: Looked,
    key: Key[Array, ""],
) -> Fitted:
    settings, rng, dtype = problem.settings, generator(key), found.points.dtype
    g = whitening(found.points)
    kernel = Kernel(
        problem.target, FunctionBlock(g), fitted.mixture.distribution(), problem.initial
    )
    count = len(fitted.mixture.means)
    row: Row = {
        "stage": f"weighted mixture of {count}",
        "acceptance": fitted.acceptance,
        "ess": fitted.ess,
    }
    proposal = Proposal(kernel, fitted.acceptance, fitted.ess, count, [row])
    draws = found.points
    if fitted.ess > settings.fit.reaches:  # else a few large weights would represent the target
        picked = fitted.sample.picked(settings.training_draws, rng)
        draws = space.colour(picked).astype(dtype)
    try:
        missed = float(np.mean(space.uncovered(fitted, space.whiten(found.must_cover))))
    except OutOfBudget:  # all that is known is whether a second search has found something
        missed = float(looked.new > 0)
    helped = found.gradients and problem.target.dim > settings.search.walk_dims
    helped = helped and settings.fit.reaches <= fitted.ess < settings.poor
    suffices = (fitted.ess >= settings.suffices or helped) and missed <= settings.missed
    states = found.points[rng.permutation(len(found.points))[: settings.round_chains]]
    cost = spending.cost
    reached: list[Row] = [{"seconds": cost.seconds, "ess": fitted.ess}]
    sample = fitted.sample
    looked = replace(
        looked, log_z_search=found.log_z, log_z_weights=sample.log_z,
        effective=effective(sample.log_p - sample.log_s),
    )  # fmt: skip
    return Fitted(
        found, proposal, draws, states, found.points[:0], 0, suffices, missed, looked, cost, reached
    )


def train_on_points(problem: Problem, fitted: Fitted) -> Fitted:
    """Train on the points found, if importance weights are too uneven; keep the better proposal.

    Couplings come in rounds.
    """
    if fitted.suffices or fitted.proposal.ess >= problem.settings.fit.reaches:
        return fitted
    spending = problem.spend(problem.settings.budget.structure, fitted.cost)
    settings = replace(problem.settings.brief(0.0), components=None)
    if not spending.allows(training_evaluations(settings)):
        return fitted
    if not problem.has_time(settings.refine.training_seconds):
        return fitted
    proposal, evaluations = train_proposal(
        problem.target, fitted.found.points, problem.keys.points,
        settings=settings, initial=problem.initial, progress=problem.progress,
        deadline=spending.allowance.deadline,
        most=spending.allowance.evaluations - spending.evaluations,
    )  # fmt: skip
    spending.note(evaluations)
    cost = spending.cost
    better = proposal if proposal.ess > fitted.proposal.ess else fitted.proposal
    history = [*fitted.proposal.history, *proposal.history]
    return replace(
        fitted,
        proposal=replace(better, history=history),
        draws=fitted.found.points,
        suffices=False,
        cost=cost,
        reached=[*fitted.reached, {"seconds": cost.seconds, "ess": better.ess}],
    )

"""Rounds: chains repair the weights of the modes, and their draws train the next proposal.

The kernel leaves the target invariant whatever was learned, so its chains forget wrong weights of
the modes. Their states train the proposal of the next round. Rounds end when the effective draws
per draw and the spread of the draws no longer change; a last training at full length follows.
"""

from dataclasses import replace

import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive._xla.compilation import on_device
from involutive.auxiliary.hierarchical import evaluations_within
from involutive.core.keys import split
from involutive.core.types import Number
from involutive.kernel.composite import Mixture
from involutive.learning.fit.tails import with_wide_component
from involutive.learning.fit.trained import (
    scoring_evaluations,
    train_proposal,
    training_evaluations,
)
from involutive.learning.judge.independence import independence_metrics
from involutive.learning.judge.pilot import run_chains
from involutive.learning.problem import Problem, Spending
from involutive.learning.refine.local import local_move, tuning_evaluations
from involutive.learning.settings import LearnSettings, RefineSettings
from involutive.learning.stages import Fitted, Found, Looked, Proposal, Row
from involutive.sampling.devices import batches_over, gathered
from involutive.sampling.trace import Trace


def another_round_allowed(problem: Problem, fitted: Fitted, last_seconds: Number) -> bool:
    """Whether the budget allows another round, judged by the duration of the last."""
    settings = problem.settings
    ended = fitted.suffices or fitted.unchanged or fitted.polished
    if ended or fitted.rounds >= settings.most_rounds:
        return False
    if not problem.has_time(settings.refine.training_seconds) or _hopeless(fitted, settings):
        return False
    spending, refine = problem.spend(settings.budget.rounds, fitted.cost), settings.refine
    evaluations = len(fitted.states) * _steps(fitted, settings) + 2 * refine.judged
    evaluations += tuning_evaluations(_gradients(problem, fitted), refine)
    evaluations += training_evaluations(settings.brief(0.0))
    return spending.allows(evaluations, last_seconds)


def next_round(problem: Problem, fitted: Fitted) -> Fitted:
    """Run chains, train a proposal briefly on their draws, and record whether both still change."""
    key = jr.fold_in(problem.keys.rounds, fitted.rounds)
    key_local, key_cover, key_chains, key_judge, key_train = split(key, 5)
    settings, refine = problem.settings, problem.settings.refine
    spending = problem.spend(settings.budget.rounds, fitted.cost)
    trace = _run(problem, spending, fitted, (key_local, key_cover, key_chains))
    kept = trace.position[:, trace.position.shape[1] // 2 :]
    fresh = kept.reshape(-1, problem.target.dim)
    draws = np.concatenate([fitted.fresh[len(fitted.fresh) // 2 :], fresh])
    # score the proposal on draws that it was not trained on, which show modes that it lacks
    rows = np.linspace(0, len(fresh) - 1, refine.judged).astype(int)
    q, held = fitted.proposal.kernel, on_device(fresh[rows])
    seen = independence_metrics(q, held, key_judge, refine.judged)["ess"]
    # couplings are trained only where the proposal is very poor; `polish` comes later
    brief = settings.brief(min(settings.fit.reaches, settings.couplings_below))
    proposal = _trained(problem, spending, draws, fitted.proposal, brief, key_train)
    unchanged = len(fitted.fresh) > 0 and _same_spread(fitted.fresh, fresh, refine)
    cost = spending.cost
    corrected: list[Row] = [row | {"ess": seen} for row in fitted.reached[-1:]]
    return replace(
        fitted,
        proposal=proposal,
        draws=draws,
        states=_finite_states(trace),
        fresh=fresh,
        rounds=fitted.rounds + 1,
        unchanged=unchanged and proposal.ess < refine.gains * seen,
        cost=cost,
        reached=[
            *fitted.reached[:-1],
            *corrected,
            {"seconds": cost.seconds, "ess": proposal.ess},
        ],
    )


def _run(
    problem: Problem, spending: Spending, fitted: Fitted, keys: tuple[Key[Array, ""], ...]
) -> Trace:
    """Run the chains of a round, which mix the proposal with a local move."""
    key_local, key_cover, key_chains = keys
    settings, refine = problem.settings, problem.settings.refine
    gradients = _gradients(problem, fitted)
    local = local_move(
        problem.target, on_device(fitted.draws), key_local, settings, gradients=gradients,
        initial=problem.initial,
    )  # fmt: skip
    judged = 2 * refine.judged * (1 + evaluations_within(fitted.proposal.kernel.auxiliary))
    spending.note(tuning_evaluations(gradients, refine) + judged)
    shares = [refine.local_share, 1 - refine.local_share]
    mover = Mixture(
        [local, with_wide_component(fitted.proposal.kernel, key_cover, settings)], shares
    )
    return run_chains(mover, fitted.states, _steps(fitted, settings), key_chains, spending)


def _finite_states(trace: Trace) -> np.ndarray:
    """The last states; those of chains that an infinite density has stopped give way to others."""
    states, finite = trace.position[:, -1], np.flatnonzero(np.isfinite(trace.log_density[:, -1]))
    if len(finite) in (0, len(states)):
        return states
    return states[np.resize(finite, len(states))]


def polish(problem: Problem, fitted: Fitted) -> Fitted:
    """Train at full length on the last draws if the budget allows; return the better proposal.

    A result that is polished, such as that of a resumed run, is returned as it is.
    """
    if fitted.polished or _hopeless(fitted, problem.settings):
        return fitted
    spending = problem.spend(problem.settings.budget.rounds, fitted.cost)
    if not spending.allows(training_evaluations(problem.settings)):
        return fitted
    if not problem.has_time(problem.settings.refine.training_seconds):
        return fitted
    proposal = _trained(
        problem, spending, fitted.draws, fitted.proposal, problem.settings, problem.keys.polish
    )
    cost = spending.cost
    better = proposal if proposal.ess > fitted.proposal.ess else fitted.proposal
    better = replace(better, history=proposal.history)
    reached: list[Row] = [*fitted.reached, {"seconds": cost.seconds, "ess": better.ess}]
    return replace(fitted, proposal=better, cost=cost, reached=reached, polished=True)


def _hopeless(fitted: Fitted, settings: LearnSettings) -> bool:
    """Whether rounds have left the proposal without effective draws; replicas can use the time."""
    refine = settings.refine
    return fitted.rounds >= refine.hopeless_rounds and fitted.proposal.ess < refine.hopeless


def train_on_draws(problem: Problem, found: Found) -> Fitted | Found:
    """Train the proposal on draws that the user has given.

    Returns:
        The fit; `found`, with what was spent, if the budget does not allow to judge a proposal.
    """
    spending = problem.spend(problem.settings.budget.rounds, found.cost)
    settings = _affordable_training(spending, problem.settings)
    if settings is None:
        return replace(found, cost=spending.cost)
    draws = found.points
    proposal = _trained(problem, spending, draws, None, settings, problem.keys.given)
    cost = spending.cost
    reached: list[Row] = [{"seconds": cost.seconds, "ess": proposal.ess}]
    states = draws[: problem.settings.round_chains]
    looked = Looked(len(found.starts))
    enough = proposal.ess >= problem.settings.poor  # else structures are tried first
    return Fitted(found, proposal, draws, states, draws[:0], 0, enough, 0.0, looked, cost, reached)


def _affordable_training(spending: Spending, settings: LearnSettings) -> LearnSettings | None:
    """The settings of a training that the budget allows: whole, EM alone, or None."""
    if spending.allows(training_evaluations(settings)):
        return settings
    alone = replace(settings, tune_steps=0, couplings_below=0.0)
    return alone if spending.allows(scoring_evaluations(settings)) else None


def _trained(
    problem: Problem,
    spending: Spending,
    draws: np.ndarray,
    previous: Proposal | None,
    settings: LearnSettings,
    key: Key[Array, ""],
) -> Proposal:
    with batches_over(problem.devices):
        proposal, evaluations = train_proposal(
            problem.target, draws, key,
            settings=settings, initial=problem.initial, progress=problem.progress,
            previous=previous, deadline=spending.allowance.deadline,
            most=spending.allowance.evaluations - spending.evaluations,
        )  # fmt: skip
    spending.note(evaluations)
    return replace(proposal, kernel=gathered(proposal.kernel, problem.devices))


def _gradients(problem: Problem, fitted: Fitted) -> bool:
    """Whether local moves use gradients."""
    return problem.target.dim > problem.settings.search.walk_dims and fitted.found.gradients


def _steps(fitted: Fitted, settings: LearnSettings) -> int:
    """The number of steps of the next round's chains."""
    reaches = fitted.proposal.ess >= settings.fit.reaches
    return settings.round_steps * (1 if reaches else settings.refine.longer)


def _same_spread(old: np.ndarray, fresh: np.ndarray, settings: RefineSettings) -> bool:
    """Whether two quantiles of two sets of draws agree, relative to the range between them."""
    quantiles = settings.same_quantiles
    before, now = (np.quantile(draws, quantiles, axis=0) for draws in (old, fresh))
    width = np.maximum(before[1] - before[0], 1e-300)
    return bool((np.abs(before - now) < settings.same * width).all())

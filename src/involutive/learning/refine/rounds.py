"""Rounds: chains repair the weights of the modes, and their draws train the next proposal.

The kernel leaves the target invariant whatever was learned, so chains that it makes forget wrong
weights. Their states train the proposal of the next round. Rounds end when the effective draws per
draw and the spread of the draws no longer change; a last training at full length follows.
"""

from dataclasses import replace

import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive._xla.compilation import on_device
from involutive.core.keys import split
from involutive.core.types import Number
from involutive.kernel.composite import Mixture
from involutive.learning.budget import ROUNDS
from involutive.learning.find.search import WALK_DIMS
from involutive.learning.fit.fit import REACHES
from involutive.learning.fit.tails import covered
from involutive.learning.fit.trained import train_proposal, training_evaluations
from involutive.learning.judge.independence import independence_metrics
from involutive.learning.judge.pilot import run_chains
from involutive.learning.problem import Problem, Spending
from involutive.learning.refine.local import local_move, tuning_evaluations
from involutive.learning.settings import LearnSettings
from involutive.learning.stages import Fitted, Found, Looked, Proposal, Row
from involutive.sampling.devices import batches_over, gathered

LONGER = 4  # factor of steps for chains whose proposal hardly reaches anything; a guess
GAINS = 1.1  # factor of effective draws that a round must gain to be followed by another; a guess
JUDGED = 2000  # fresh draws that the previous proposal is scored on; a guess
SAME = 0.1  # of the spread, within which quantiles of two sets of draws count as equal; a guess


def more_rounds(problem: Problem, fitted: Fitted, last_seconds: Number) -> bool:
    """Whether the budget allows another round, judged by the duration of the last."""
    settings = problem.settings
    if fitted.settled or fitted.rounds >= settings.most_rounds:
        return False
    spending = problem.spend(ROUNDS, fitted.cost)
    evaluations = len(fitted.states) * _steps(fitted, settings) + 2 * JUDGED
    evaluations += tuning_evaluations(_gradients(problem, fitted))
    evaluations += training_evaluations(settings.brief(0.0))
    return spending.allows(evaluations, last_seconds)


def next_round(problem: Problem, fitted: Fitted) -> Fitted:
    """Let chains repair the weights, train briefly, and see whether anything changed."""
    key = jr.fold_in(problem.keys.rounds, fitted.rounds)
    key_local, key_cover, key_chains, key_judge, key_train = split(key, 5)
    spending, settings = problem.spend(ROUNDS, fitted.cost), problem.settings
    gradients = _gradients(problem, fitted)
    local = local_move(
        problem.target, on_device(fitted.draws), key_local, gradients=gradients,
        initial=problem.law,
    )  # fmt: skip
    spending.note(tuning_evaluations(gradients) + 2 * JUDGED)
    mover = Mixture([local, covered(fitted.proposal.kernel, key_cover, settings)], [0.5, 0.5])
    trace = run_chains(mover, fitted.states, _steps(fitted, settings), key_chains, spending)
    kept = trace.position[:, trace.position.shape[1] // 2 :]
    fresh = kept.reshape(-1, problem.target.dim)
    draws = np.concatenate([fitted.fresh[len(fitted.fresh) // 2 :], fresh])
    # on draws it was not trained on: a mode that few chains had reached shows here
    rows = np.linspace(0, len(fresh) - 1, JUDGED).astype(int)
    seen = independence_metrics(fitted.proposal.kernel, on_device(fresh[rows]), key_judge)["ess"]
    brief = settings.brief(min(REACHES, settings.couplings_below))  # couplings can wait
    proposal = _trained(problem, spending, draws, fitted.proposal, brief, key_train)
    unchanged = len(fitted.fresh) > 0 and _same_spread(fitted.fresh, fresh)
    cost = spending.cost
    corrected: list[Row] = [row | {"ess": seen} for row in fitted.reached[-1:]]
    return replace(
        fitted,
        proposal=proposal,
        draws=draws,
        states=trace.position[:, -1],
        fresh=fresh,
        rounds=fitted.rounds + 1,
        settled=unchanged and proposal.ess < GAINS * seen,
        cost=cost,
        reached=[
            *fitted.reached[:-1],
            *corrected,
            {"seconds": cost.seconds, "ess": proposal.ess},
        ],
    )


def polish(problem: Problem, fitted: Fitted) -> Fitted:
    """Train at full length on the last draws, unless the budget is spent; keep the better."""
    spending = problem.spend(ROUNDS, fitted.cost)
    if not spending.allows(training_evaluations(problem.settings)):
        return fitted
    proposal = _trained(
        problem, spending, fitted.draws, fitted.proposal, problem.settings, problem.keys.polish
    )
    cost = spending.cost
    better = proposal if proposal.ess > fitted.proposal.ess else fitted.proposal
    better = replace(better, history=proposal.history)
    reached: list[Row] = [*fitted.reached, {"seconds": cost.seconds, "ess": better.ess}]
    return replace(fitted, proposal=better, cost=cost, reached=reached, settled=True)


def train_on_draws(problem: Problem, draws: np.ndarray, found: Found) -> Fitted:
    """Train the proposal on draws that the user has given."""
    spending = problem.spend(ROUNDS, found.cost)
    proposal = _trained(problem, spending, draws, None, problem.settings, problem.keys.rounds)
    cost = spending.cost
    reached: list[Row] = [{"seconds": cost.seconds, "ess": proposal.ess}]
    states = draws[: problem.settings.round_chains]
    looked = Looked(len(found.starts))
    return Fitted(found, proposal, draws, states, draws[:0], 0, True, 0.0, looked, cost, reached)


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
            settings=settings, initial=problem.law, progress=problem.progress,
            previous=previous, deadline=spending.allowance.deadline,
        )  # fmt: skip
    spending.note(evaluations)
    return replace(proposal, kernel=gathered(proposal.kernel, problem.devices))


def _gradients(problem: Problem, fitted: Fitted) -> bool:
    """Whether local moves follow gradients."""
    return problem.target.dim > WALK_DIMS and fitted.found.gradients


def _steps(fitted: Fitted, settings: LearnSettings) -> int:
    """Steps that the chains of the next round make."""
    return settings.round_steps * (1 if fitted.proposal.ess >= REACHES else LONGER)


def _same_spread(old: np.ndarray, fresh: np.ndarray) -> bool:
    """Whether the 10 % and 90 % quantiles of two sets of draws agree, relative to their gap."""
    before, now = (np.quantile(draws, [0.1, 0.9], axis=0) for draws in (old, fresh))
    width = np.maximum(before[1] - before[0], 1e-300)
    return bool((np.abs(before - now) < SAME * width).all())

"""Replicas, tried where the proposal alone does not mix: a ladder from the learned q to the target.

The ladder's hot end draws from q mixed with a share of X; the better q is, the fewer replicas the
ladder has. Pilot chains measure it as they measure the composed kernel, which it replaces if it has
more effective draws for the same work (`judge/merit.py`). It comes before the rounds where q
reaches little, and again after them if they have made q better.
"""

from dataclasses import replace

import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.compilation import on_device
from involutive.auxiliary import Joined
from involutive.auxiliary.hierarchical import evaluations_within
from involutive.core.keys import split
from involutive.core.types import Number
from involutive.kernel.adaptation import MOST, Adaptation, adapt_ladder
from involutive.kernel.ladder import trip_rate
from involutive.kernel.replicas import Tempered
from involutive.learning.judge.measure import pilot_starts, run_pilot
from involutive.learning.judge.merit import best_measured, merit, rank, suffices
from involutive.learning.outcome import Learned
from involutive.learning.problem import Problem, Spending
from involutive.learning.refine.local import within_mode_factor
from involutive.learning.settings import ReplicaSettings
from involutive.learning.stages import Cost, Fitted, Row
from involutive.training.likelihood import proposal_law


def replicas_before_rounds(problem: Problem, fitted: Fitted) -> Fitted:
    """Measure a ladder where the proposal has few effective draws, before rounds train it.

    Rounds train on what chains of the proposal reach. Where that is little, a ladder reaches more
    in less time; if it does not suffice, rounds train on its draws.
    """
    settings = problem.settings
    if fitted.ladder_ess is not None or fitted.proposal.ess >= settings.fit.reaches:
        return fitted
    if sufficient(problem, fitted) is not None:
        return fitted
    spending = problem.spend(settings.budget.rounds, fitted.cost)
    if not _adaptation_fits(spending, settings.replicas, fitted):
        return fitted
    key = jr.fold_in(problem.keys.early, 4)
    learned, draws = _measured_ladder(problem, spending, fitted, key)
    outcome = learned.outcome
    after = replace(
        fitted,
        measured=best_measured(problem, fitted, learned),
        cost=Cost(outcome.evaluations, outcome.seconds),
        ladder_ess=fitted.proposal.ess,
    )
    if not outcome.converged:
        return after
    rows = np.linspace(0, len(draws) - 1, len(fitted.states)).astype(int)
    return replace(after, draws=draws, fresh=draws, states=draws[rows])


def sufficient(problem: Problem, fitted: Fitted) -> Learned | None:
    """The best kernel measured before the rounds, at the cost so far, if it makes them needless."""
    learned, cost = fitted.measured, fitted.cost
    if not isinstance(learned, Learned) or not suffices(learned, problem):
        return None
    spent = replace(learned.outcome, evaluations=cost.evaluations, seconds=cost.seconds)
    return learned.recorded(spent)


def try_replicas(problem: Problem, fitted: Fitted, learned: Learned) -> Learned:
    """The better of a composed kernel and a ladder of replicas from its proposal to the target.

    A kernel that suffices is better than one that does not, then one that converged; of two that
    did, the one with more effective draws per unit of work is better, of two that did not, the one
    with the lower R-hat.
    """
    outcome, settings = learned.outcome, problem.settings
    if outcome.converged and outcome.ess_per_draw >= settings.replicas_below:
        return learned
    gain = settings.replicas.again * (fitted.ladder_ess or 0.0)
    if fitted.ladder_ess is not None and fitted.proposal.ess <= gain:
        return learned  # a ladder from as good a proposal was measured before
    spending = problem.spend(settings.budget.replicas, Cost(outcome.evaluations, outcome.seconds))
    if not _adaptation_fits(spending, settings.replicas, fitted):
        return learned
    try:
        rival, _ = _measured_ladder(problem, spending, fitted, problem.keys.replicas)
    except KeyboardInterrupt:  # return the composed kernel
        return learned.recorded(replace(outcome, ended="interrupted"))
    row = _row("proposal and local move", learned, merit(learned, problem, fitted))
    mine, theirs = (rank(one, problem, fitted) for one in (learned, rival))
    best = rival if theirs > mine else learned
    spent = {"evaluations": rival.outcome.evaluations, "seconds": rival.outcome.seconds}
    history = [*outcome.history, row, rival.outcome.history[-1]]
    return best.recorded(replace(best.outcome, history=history, **spent))


def _measured_ladder(
    problem: Problem, spending: Spending, fitted: Fitted, key: Key[Array, ""]
) -> tuple[Learned, np.ndarray]:
    """A ladder of replicas, measured by pilot chains, and their draws after warm-up."""
    key_ladder, key_start, key_pilot = split(key, 3)
    kernel = _adapted_ladder(problem, spending, fitted, key_ladder)
    assert kernel.ladder is not None
    # replicas estimate log Z better than the weights of q
    log_z = float(kernel.ladder.log_z)
    looked = replace(fitted.looked, log_z_weights=log_z, effective=float("inf"))
    fitted = replace(fitted, looked=looked)
    places, elsewhere = pilot_starts(problem, spending, fitted, key_start)
    learned, draws = run_pilot(
        problem, spending, fitted, fitted.proposal, kernel, kernel.reference, kernel.warmup,
        places, elsewhere, key_pilot,
    )  # fmt: skip
    row = _row(str(kernel.ladder), learned, merit(learned, problem, fitted))
    history = [*learned.outcome.history, row]
    return learned.recorded(replace(learned.outcome, history=history)), draws


def _adaptation_fits(spending: Spending, settings: ReplicaSettings, fitted: Fitted) -> bool:
    """Whether the budget allows the longest adaptation: the number of replicas is not known yet."""
    scans = 2 * settings.scans * 2**settings.rounds
    evaluations = scans * settings.ladders * MOST * (3 * (settings.leaps + 1) + 1)
    evaluations *= 1 + evaluations_within(fitted.proposal.kernel.auxiliary)
    return spending.allows(evaluations, settings.least_seconds)


def _adapted_ladder(
    problem: Problem, spending: Spending, fitted: Fitted, key: Key[Array, ""]
) -> Tempered:
    """A ladder from q and X to the target, after adaptation; it is fixed from here on."""
    key_factor, key_adapt = split(key, 2)
    how, dim = problem.settings.replicas, problem.target.dim
    q: AbstractDistribution = proposal_law(fitted.proposal.kernel)
    reference = Joined(q, problem.initial, how.wide)
    betas = np.linspace(0.0, 1.0, how.first) ** how.spacing
    draws = on_device(fitted.draws)
    factor = np.asarray(within_mode_factor(draws, key_factor, problem.settings))
    kernel = Tempered(
        problem.target, reference, betas, steps=how.step / dim**0.25,
        scales=np.diag(factor @ factor.T) ** 0.5 * np.ones((how.first - 1, 1)),
        leaps=how.leaps if fitted.found.gradients else None,
    )  # fmt: skip
    seconds = how.adapting * spending.allowance.seconds
    sizes = how.rounds, how.scans, how.ladders
    adaptation = Adaptation(*sizes, None, learned_swaps=False, seconds=seconds)
    kernel = adapt_ladder(kernel, key=key_adapt, settings=adaptation)
    assert kernel.ladder is not None
    spending.note(float(kernel.ladder.evaluations) * (1 + evaluations_within(q)))
    rate = trip_rate(kernel.ladder.swap_acceptance)
    return kernel.repeated(int(np.clip(np.ceil(how.trips_per_draw / rate), 1, how.most_scans)))


def _row(stage: str, learned: Learned, merit: Number) -> Row:
    outcome = learned.outcome
    return {
        "stage": f"pilot of {stage}",
        "acceptance": outcome.acceptance,
        "ess": outcome.ess_per_draw,
        "r_hat": outcome.r_hat,
        "merit": merit,
    }

"""Replicas, tried where the proposal alone does not mix: a ladder from the learned q to the target.

The ladder's hot end draws from q mixed with a share of X; the better q is, the fewer replicas the
ladder has. Pilot chains measure it as they measure the composed kernel, which it replaces if it has
more effective draws for the same work.
"""

from dataclasses import replace

import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.compilation import on_device
from involutive._xla.cost import operations
from involutive.auxiliary import Joined
from involutive.core.keys import split
from involutive.core.types import Number
from involutive.kernel.adaptation import MOST, Adaptation, adapt_ladder
from involutive.kernel.kernel import AbstractKernel
from involutive.kernel.ladder import Ladder, trip_rate
from involutive.kernel.replicas import Tempered
from involutive.learning.judge.measure import pilot_starts, run_pilot
from involutive.learning.judge.pilot import evaluations_per_step
from involutive.learning.outcome import Learned
from involutive.learning.problem import Problem, Spending
from involutive.learning.refine.local import within_mode_factor
from involutive.learning.settings import ReplicaSettings
from involutive.learning.stages import Cost, Fitted, Row
from involutive.training.likelihood import proposal_law


def try_replicas(problem: Problem, fitted: Fitted, learned: Learned) -> Learned:
    """The better of a composed kernel and a ladder of replicas from its proposal to the target.

    A kernel that converged is better than one that did not; of two that did, the one with more
    effective draws per unit of work is better, of two that did not, the one with the lower R-hat.
    Work is the number of operations in evaluations of
    the density and of q, which unlike seconds does not depend on the load of the machine.
    """
    outcome, settings = learned.outcome, problem.settings
    if outcome.converged and outcome.ess_per_draw >= settings.replicas_below:
        return learned
    cost = Cost(outcome.evaluations, outcome.seconds)
    spending = problem.spend(settings.budget.replicas, cost)
    if not _adaptation_fits(spending, settings.replicas):
        return learned
    try:
        rival, ladder = _measured_ladder(problem, spending, fitted)
    except KeyboardInterrupt:  # return the composed kernel
        return learned.recorded(replace(outcome, ended="interrupted"))
    mine, theirs = (_ess_per_work(one, problem, fitted) for one in (learned, rival))
    rows = [
        _row("proposal and local move", learned, mine),
        _row(str(ladder), rival, theirs),
    ]
    best = rival if theirs > mine else learned
    spent = {"evaluations": rival.outcome.evaluations, "seconds": rival.outcome.seconds}
    return best.recorded(replace(best.outcome, history=[*outcome.history, *rows], **spent))


def _measured_ladder(
    problem: Problem, spending: Spending, fitted: Fitted
) -> tuple[Learned, Ladder]:
    """A ladder of replicas, measured by pilot chains."""
    key_ladder, key_start, key_pilot = split(problem.keys.replicas, 3)
    kernel = _adapted_ladder(problem, spending, fitted, key_ladder)
    assert kernel.ladder is not None
    # replicas estimate log Z better than the weights of q
    looked = replace(fitted.looked, log_z_weights=float(kernel.ladder.log_z))
    fitted = replace(fitted, looked=looked)
    places, elsewhere = pilot_starts(problem, spending, fitted, key_start)
    learned = run_pilot(
        problem, spending, fitted, fitted.proposal, kernel, kernel.reference, kernel.warmup,
        places, elsewhere, key_pilot,
    )  # fmt: skip
    return learned, kernel.ladder


def _adaptation_fits(spending: Spending, settings: ReplicaSettings) -> bool:
    """Whether the budget allows the longest adaptation: the number of replicas is not known yet."""
    scans = 2 * settings.scans * 2**settings.rounds
    evaluations = scans * settings.ladders * MOST * (3 * (settings.leaps + 1) + 1)
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
    spending.note(float(kernel.ladder.evaluations))
    rate = trip_rate(kernel.ladder.swap_acceptance)
    return kernel.repeated(int(np.clip(np.ceil(how.trips_per_draw / rate), 1, how.most_scans)))


def _ess_per_work(learned: Learned, problem: Problem, fitted: Fitted) -> float:
    """Effective draws per million counted operations; minus R-hat where chains disagree.

    A cheap step that leads nowhere has many effective draws per operation, so work does not count
    before chains agree.
    """
    outcome = learned.outcome
    if not outcome.converged:
        return -outcome.r_hat if np.isfinite(outcome.r_hat) else -np.inf
    return outcome.ess_per_draw / work_per_step(learned.kernel, problem, fitted) * 1e6


def work_per_step(kernel: AbstractKernel, problem: Problem, fitted: Fitted) -> float:
    """Counted operations of one step: of the density, and of q where it is evaluated."""
    dim, evaluations = problem.target.dim, evaluations_per_step(kernel)
    law = proposal_law(fitted.proposal.kernel)
    density, q = operations(problem.target.log_density, dim), operations(law.log_prob, dim)
    times_q = evaluations if isinstance(kernel, Tempered) else 2
    return evaluations * density + times_q * q


def _row(stage: str, learned: Learned, merit: Number) -> Row:
    outcome = learned.outcome
    return {
        "stage": f"pilot of {stage}",
        "acceptance": outcome.acceptance,
        "ess": outcome.ess_per_draw,
        "r_hat": outcome.r_hat,
        "merit": merit,
    }

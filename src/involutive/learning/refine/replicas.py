"""Replicas, where the proposal alone does not mix: a ladder from the learned q to the target.

The ladder's hot end draws from q, together with a share of X; the better q is, the fewer replicas
it has. It is judged by pilot chains as the composed kernel is, and takes its place if it does
better for the same work.
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
from involutive.learning.budget import REPLICAS
from involutive.learning.judge.compose import judged, places_apart
from involutive.learning.judge.pilot import evaluations_per_step
from involutive.learning.outcome import Learned
from involutive.learning.problem import Problem, Spending
from involutive.learning.refine.local import within_mode_factor
from involutive.learning.stages import Fitted, Row
from involutive.training.likelihood import proposal_law

WIDE = 0.1  # weight of X beside q in the reference; a guess
FIRST = 6  # replicas of the first round; a guess
LEAPS = 8  # leapfrog steps per local move; a guess
LADDERS, SCANS, ROUNDS = 32, 25, 4  # of the adaptation; guesses
PER_DRAW = 0.4  # round trips per draw that scans are repeated for; a guess
MOST_SCANS = 8  # scans per draw at most; a guess
ADAPTING = 0.6  # share of the stage's time that adaptation may take; a guess
LEAST_SECONDS = 5.0  # below which nothing is begun; a guess


def try_replicas(problem: Problem, fitted: Fitted, learned: Learned) -> Learned:
    """The better of a composed kernel and a ladder of replicas from its proposal to the target.

    Better is who converged, and of two that did, who has more effective draws per unit of work:
    density evaluations and evaluations of q, in counted operations, which stand for seconds and
    do not depend on what else the machine does.
    """
    outcome, settings = learned.outcome, problem.settings
    if outcome.converged and outcome.ess_per_draw >= settings.replicas_below:
        return learned
    spending = problem.spend(REPLICAS, replace(fitted.cost, evaluations=outcome.evaluations))
    if not _affordable(spending):
        return learned
    try:
        rival, ladder = _rival(problem, spending, fitted)
    except KeyboardInterrupt:  # the composed kernel is there
        return learned.recorded(replace(outcome, ended="interrupted"))
    mine, theirs = (_merit(one, problem, fitted) for one in (learned, rival))
    rows = [
        _row("proposal and local move", learned, mine),
        _row(str(ladder), rival, theirs),
    ]
    best = rival if theirs > mine else learned
    spent = {"evaluations": rival.outcome.evaluations, "seconds": rival.outcome.seconds}
    return best.recorded(replace(best.outcome, history=[*outcome.history, *rows], **spent))


def _rival(problem: Problem, spending: Spending, fitted: Fitted) -> tuple[Learned, Ladder]:
    """A ladder of replicas with what pilot chains say of it."""
    key_ladder, key_start, key_pilot = split(problem.keys.replicas, 3)
    kernel = _ladder(problem, spending, fitted, key_ladder)
    assert kernel.ladder is not None
    # log Z by the replicas is known better than by the weights of q
    looked = replace(fitted.looked, log_z_weights=float(kernel.ladder.log_z))
    fitted = replace(fitted, looked=looked)
    places, elsewhere = places_apart(problem, spending, fitted, key_start)
    learned = judged(
        problem, spending, fitted, fitted.proposal, kernel, kernel.reference, kernel.warmup,
        places, elsewhere, key_pilot,
    )  # fmt: skip
    return learned, kernel.ladder


def _affordable(spending: Spending) -> bool:
    """Whether the longest adaptation fits: the barrier, which sets the replicas, is not known."""
    scans = 2 * SCANS * 2**ROUNDS
    evaluations = scans * LADDERS * MOST * (3 * (LEAPS + 1) + 1)
    return spending.allows(evaluations, LEAST_SECONDS)


def _ladder(problem: Problem, spending: Spending, fitted: Fitted, key: Key[Array, ""]) -> Tempered:
    """A ladder from q and X to the target, adapted and then fixed."""
    key_factor, key_adapt = split(key, 2)
    q: AbstractDistribution = proposal_law(fitted.proposal.kernel)
    reference = Joined(q, problem.law, WIDE)
    betas = np.linspace(0.0, 1.0, FIRST) ** 2
    factor = np.asarray(within_mode_factor(on_device(fitted.draws), key_factor))
    leaps = LEAPS if fitted.found.gradients else None
    kernel = Tempered(
        problem.target, reference, betas, steps=0.5 / problem.target.dim**0.25,
        scales=np.diag(factor @ factor.T) ** 0.5 * np.ones((FIRST - 1, 1)), leaps=leaps,
    )  # fmt: skip
    seconds = ADAPTING * spending.allowance.seconds
    how = Adaptation(ROUNDS, SCANS, LADDERS, None, learned_swaps=False, seconds=seconds)
    kernel = adapt_ladder(kernel, key=key_adapt, settings=how)
    assert kernel.ladder is not None
    spending.note(float(kernel.ladder.evaluations))
    rate = trip_rate(kernel.ladder.swap_acceptance)
    return kernel.repeated(int(np.clip(np.ceil(PER_DRAW / rate), 1, MOST_SCANS)))


def _merit(learned: Learned, problem: Problem, fitted: Fitted) -> float:
    """Effective draws per million counted operations; negative where chains disagree."""
    outcome = learned.outcome
    value = outcome.ess_per_draw / work_per_step(learned.kernel, problem, fitted) * 1e6
    return value if outcome.converged else value - 1e6


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

"""Which of two measured kernels is better: by effective draws for the same work.

A kernel with enough effective draws per draw comes before one without. Work is counted in
operations of the density and of the proposal, so that the choice, unlike one by seconds, does not
depend on what else the machine does.
"""

from dataclasses import replace

import numpy as np

from involutive._xla.cost import operations
from involutive.kernel.kernel import AbstractKernel
from involutive.kernel.replicas import Tempered
from involutive.learning.judge.pilot import evaluations_per_step
from involutive.learning.outcome import Learned
from involutive.learning.problem import Problem
from involutive.learning.stages import Fitted, Row
from involutive.training.likelihood import proposal_law


def merit(learned: Learned, problem: Problem, fitted: Fitted) -> float:
    """Effective draws per million counted operations; minus R-hat where chains disagree.

    A cheap step that leads nowhere has many effective draws per operation, so work does not count
    before chains agree.
    """
    outcome = learned.outcome
    if not outcome.converged:
        return -outcome.r_hat if np.isfinite(outcome.r_hat) else -np.inf
    return outcome.ess_per_draw / work_per_step(learned.kernel, problem, fitted) * 1e6


def rank(learned: Learned, problem: Problem, fitted: Fitted) -> tuple[bool, float]:
    """What measured kernels are compared by: whether they suffice, then their merit."""
    return suffices(learned, problem), merit(learned, problem, fitted)


def suffices(learned: Learned, problem: Problem) -> bool:
    """Whether a kernel converged and has enough effective draws per draw to end learning."""
    outcome = learned.outcome
    return outcome.converged and outcome.ess_per_draw >= problem.settings.replicas.suffices


def work_per_step(kernel: AbstractKernel, problem: Problem, fitted: Fitted) -> float:
    """Counted operations of one step: of the density, and of q where it is evaluated."""
    # the operations of q include those of the density in it
    dim, evaluations = problem.target.dim, evaluations_per_step(kernel, of_proposal=False)
    law = proposal_law(fitted.proposal.kernel)
    density, q = operations(problem.target.log_density, dim), operations(law.log_prob, dim)
    times_q = evaluations if isinstance(kernel, Tempered) else 2
    return evaluations * density + times_q * q


def best_measured(problem: Problem, fitted: Fitted, last: Learned) -> Learned:
    """The better of the best kernel measured so far and the last one; rounds can make it worse.

    The outcome keeps the cost and the history of both.
    """
    before = fitted.measured
    if not isinstance(before, Learned):
        return last
    if rank(last, problem, fitted) >= rank(before, problem, fitted):
        return last
    then, now = before.outcome, last.outcome
    kept: Row = {"stage": "kernel measured before, kept", "ess": then.ess_per_draw}
    outcome = replace(
        then, rounds=now.rounds, evaluations=now.evaluations, seconds=now.seconds,
        history=[*now.history, kept], reached=now.reached, ended=now.ended,
    )  # fmt: skip
    return before.recorded(outcome)

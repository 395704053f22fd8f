"""Learning that ends early: a kernel from the newest result, without another evaluation."""

from dataclasses import replace

import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive._xla.batched import BatchedDistribution
from involutive._xla.compilation import on_device
from involutive.bijections.whitening import whitening
from involutive.core.keys import split
from involutive.involutions.blocks import FunctionBlock
from involutive.kernel.classical import random_walk
from involutive.kernel.kernel import Kernel
from involutive.learning.fit.em import fit_components
from involutive.learning.fit.tails import with_wide_component
from involutive.learning.judge.compose import compose, is_mixture
from involutive.learning.outcome import Learned, Outcome
from involutive.learning.problem import Problem
from involutive.learning.refine.local import move_within_modes
from involutive.learning.stages import Cost, Fitted, Found, Proposal
from involutive.training.likelihood import proposal_law


def best_so_far(problem: Problem, last: Found | Fitted | None, ended: str) -> Learned:
    """Make a kernel from the newest result, without another evaluation.

    A kernel that pilot chains have confirmed before comes first. Else a fit gives its proposal
    composed with a random walk; a search gives a mixture fitted to its points; without a result
    the kernel is a random walk with the scales of X.
    """
    confirmed = _confirmed(last, ended)
    if confirmed is not None:
        return confirmed
    # a folded key: this may run twice where the budget allows no pilot, with the same result
    key_fit, key_cover, key_scale = split(jr.fold_in(problem.keys.early, 0), 3)
    settings, judge = problem.settings, problem.settings.judge
    cost = Cost() if last is None else last.cost
    if last is None or (isinstance(last, Found) and len(last.points) < judge.early_points):
        return _random_walk_alone(problem, cost, ended, key_scale)
    if isinstance(last, Found):
        proposal, looked, reached = _mixture_of_points(problem, last, key_fit), None, []
        found, rounds = last, 0
    else:
        proposal, looked, reached = last.proposal, last.looked, last.reached
        found, rounds = last.found, last.rounds
    start = proposal_law(proposal.kernel)
    kernel = proposal.kernel
    if is_mixture(kernel):
        local = move_within_modes(kernel, False, settings.refine)
        kernel = compose(
            with_wide_component(kernel, key_cover, settings), local, judge.early_chance
        )
    outcome = Outcome(
        proposal.acceptance, proposal.ess, float("nan"), rounds, cost.evaluations, cost.seconds,
        False, _ended_advice(problem, ended), proposal.history, reached, ended, found.modes, looked,
    )  # fmt: skip
    starts = on_device(found.starts) if len(found.starts) else None
    return Learned(problem.target, start, kernel, judge.warmup[1], outcome, starts)


def _confirmed(last: Found | Fitted | None, ended: str) -> Learned | None:
    """The best kernel measured so far, with the cost of all stages, if its pilot chains agree."""
    if not isinstance(last, Fitted) or not isinstance(last.measured, Learned):
        return None
    then, cost = last.measured.outcome, last.cost
    if not then.converged:
        return None
    spent = {"evaluations": cost.evaluations, "seconds": cost.seconds}
    return last.measured.recorded(
        replace(then, rounds=last.rounds, reached=last.reached, ended=ended, **spent)
    )


def _mixture_of_points(problem: Problem, found: Found, key: Key[Array, ""]) -> Proposal:
    """A mixture fitted to the points found, without importance weights."""
    g = whitening(found.points)
    mean, inverse = (np.asarray(part.unwrap()) for part in (g.mean, g.inverse_factor))
    white = (found.points - mean) @ inverse.T
    judge = problem.settings.judge
    count = max(judge.early_per_mode * found.modes, judge.early_components)
    mixture = fit_components(white, count, key, problem.settings.fit)
    kernel = Kernel(problem.target, FunctionBlock(g), mixture.distribution(), problem.initial)
    return Proposal(kernel, 0.0, 0.0, len(mixture.means))


def _random_walk_alone(problem: Problem, cost: Cost, ended: str, key: Key[Array, ""]) -> Learned:
    """A random walk with the scales of X, where the budget allows nothing else."""
    judge = problem.settings.judge
    draws = BatchedDistribution(problem.initial).draws(key, judge.early_draws)
    scale = judge.early_step / problem.target.dim**0.5 * np.std(draws, axis=0)
    kernel = random_walk(problem.target, on_device(scale), problem.initial)
    outcome = Outcome(
        0.0, 0.0, float("nan"), 0, cost.evaluations, cost.seconds, False,
        _ended_advice(problem, ended), ended=ended,
    )  # fmt: skip
    return Learned(problem.target, problem.initial, kernel, judge.warmup[1], outcome)


def _ended_advice(problem: Problem, ended: str) -> str:
    if ended == "interrupted":
        return "learning was interrupted; run it again, or resume from its checkpoint"
    dim, judge, budget = problem.target.dim, problem.settings.judge, problem.plan.budget
    # never less than what was too little: here work went slower than the advice supposes
    more = judge.advised_factor
    evaluations = max(judge.advised_evaluations * max(dim, 2), more * (budget.evaluations or 0))
    seconds = max(judge.advised_seconds, more * (budget.seconds or 0))
    return (
        "the budget ended before a proposal could be measured; allow at least "
        f"Budget(evaluations={int(evaluations):_}) or {seconds:.0f} seconds for {dim} dimensions"
    )

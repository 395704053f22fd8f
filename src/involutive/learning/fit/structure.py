"""Structured proposals, for targets that one Gaussian mixture does not fit well.

Each candidate (`candidates.py`) is an independence proposal with a known density, fitted by
importance weights and judged by the same metrics as the mixture; the one with the most effective
draws per draw is kept. A second search looks for modes that it has missed.
"""

from dataclasses import replace
from functools import partial

import jax.random as jr
import numpy as np
from flowjax import bijections as fb
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.batched import OutOfBudget
from involutive._xla.threads import one_thread
from involutive.core.keys import split
from involutive.core.statistics import pareto_k
from involutive.involutions.blocks import FunctionBlock
from involutive.involutions.symmetries import Symmetries
from involutive.involutions.symmetry_search import most_evaluations, symmetries_counted
from involutive.kernel.kernel import Kernel
from involutive.learning.find.second_search import MissedModes, around_draws, second_search
from involutive.learning.fit.candidates import heavy_tailed, hierarchical, product, symmetric
from involutive.learning.fit.proposal_weights import affordable_draws, uncovered, weighted_draws
from involutive.learning.judge.independence import chain_metrics
from involutive.learning.problem import Problem, Spending
from involutive.learning.stages import Fitted, Proposal, Row
from involutive.learning.weights import effective, log_mean
from involutive.training.likelihood import proposal_law


def try_structures(problem: Problem, fitted: Fitted) -> Fitted:
    """The best of the mixture and the structured proposals that the budget allows to try."""
    fitted = replace(fitted, structured=True)
    if fitted.suffices or fitted.proposal.ess >= problem.settings.suffices:
        return fitted
    spending = problem.spend(problem.settings.budget.structure, fitted.cost)
    *keys, key_again, key_find, key_refit, key_last = split(problem.keys.structure, 12)
    fitted = replace(fitted, symmetries=_symmetries(problem, spending, fitted, key_find))
    best = _best_structure(problem, spending, fitted, keys)
    structured = best.kernel is not fitted.proposal.kernel
    if structured:
        fitted, seen = _second_search_around(problem, spending, fitted, best.kernel, key_again)
        if seen is not None and len(seen.points):
            again = split(key_refit, len(keys))
            fitted, best = _fit_again(problem, spending, fitted, best, seen, again, key_last)
    cost = spending.cost
    reached: list[Row] = [*fitted.reached, {"seconds": cost.seconds, "ess": best.ess}]
    # rounds train mixtures and couplings, and would discard a good structure
    enough = problem.settings.poor if structured else problem.settings.suffices
    return replace(fitted, proposal=best, cost=cost, suffices=best.ess >= enough, reached=reached)


def _symmetries(
    problem: Problem, spending: Spending, fitted: Fitted, key: Key[Array, ""]
) -> Symmetries | None:
    """The symmetries of the density; None if there are none, or no budget to look for them."""
    some = fitted.found.points[: problem.settings.structure.symmetry_points]
    if not spending.allows(most_evaluations(problem.target)):
        return None
    try:
        deadline = spending.allowance.deadline
        found, evaluations = symmetries_counted(problem.target, key, some, deadline)
    except OutOfBudget:
        return None
    spending.note(evaluations)
    return found if len(found) else None


def _best_structure(
    problem: Problem, spending: Spending, fitted: Fitted, keys: list[Key[Array, ""]]
) -> Proposal:
    """The best of the proposal so far and the structured ones, with the history of all."""
    best, enough = fitted.proposal, False
    candidates = (product, hierarchical, symmetric, heavy_tailed)
    for make, key_fit, key_judge in zip(candidates, keys[:4], keys[4:], strict=True):
        try:
            if enough and not (
                make is heavy_tailed
                and _weights_heavy(problem, spending, best, jr.fold_in(key_judge, len(candidates)))
            ):
                continue
            with one_thread():
                for i, (name, law) in enumerate(make(problem, spending, fitted, key_fit)):
                    key_law = jr.fold_in(key_judge, i)
                    best = _keep_better(problem, spending, fitted, best, name, law, key_law)
        except OutOfBudget:  # another candidate may cost less
            if not spending.allows(problem.settings.structure.least_sample):
                break
        enough = best.ess >= problem.settings.poor
    return best


def _fit_again(
    problem: Problem,
    spending: Spending,
    fitted: Fitted,
    best: Proposal,
    seen: MissedModes,
    keys: list[Key[Array, ""]],
    key: Key[Array, ""],
) -> tuple[Fitted, Proposal]:
    """Fit the structures once more, to points that the modes which were missed have joined.

    Returns:
        The fit with those points, and the new proposal, or `best` if no structure is better than
        the mixture now; the record of the search says then what `best` misses.
    """
    tops = seen.climbed.laplace(problem.settings.search)
    wider = replace(fitted, found=fitted.found.joined_by(seen.points, tops))
    new = _best_structure(problem, spending, wider, keys)
    history = [*best.history, *new.history[len(fitted.proposal.history) :]]
    if new.kernel is fitted.proposal.kernel:
        return wider, replace(best, history=history)
    lacking = _still_lacking(problem, spending, new.kernel, seen.points, jr.fold_in(key, 2))
    wider, _ = _second_search_around(problem, spending, wider, new.kernel, key)
    looked = replace(wider.looked, new=wider.looked.new + lacking)
    return replace(wider, looked=looked), replace(new, history=history)


def _still_lacking(
    problem: Problem, spending: Spending, kernel: Kernel, points: np.ndarray, key: Key[Array, ""]
) -> int:
    """How many points a proposal does not cover; all of them if the budget does not tell."""
    law = kernel.auxiliary
    try:
        sample = affordable_draws(problem, spending, law)
        _, at = weighted_draws(spending, law, sample, key)
        level = float(at.max()) + np.log(problem.settings.fit.beyond)
        return int(uncovered(spending, law, level, points).sum())
    except OutOfBudget:
        return len(points)


def _second_search_around(
    problem: Problem, spending: Spending, fitted: Fitted, kernel: Kernel, key: Key[Array, ""]
) -> tuple[Fitted, MissedModes | None]:
    """Search a second time, for modes that a structured proposal has missed.

    Returns:
        The fit with the record of the search, and its result; None if the budget did not allow it.
    """
    key_draws, key_search = split(key, 2)
    law, settings = kernel.auxiliary, problem.settings
    try:
        sample = affordable_draws(problem, spending, law)
        draws, at = weighted_draws(spending, law, sample, key_draws)
        level = float(at.max()) + np.log(settings.fit.beyond)
        seen = second_search(
            problem, spending, around_draws(draws, settings.search),
            partial(uncovered, spending, law, level), log_mean(at), fitted.found.gradients,
            key_search,
        )  # fmt: skip
    except OutOfBudget:
        return replace(fitted, looked=replace(fitted.looked, second=0, new=0)), None
    looked = replace(
        fitted.looked,
        second=seen.num_reached,
        new=len(seen.points),
        log_z_weights=log_mean(at),
        effective=effective(at),
    )
    return replace(fitted, looked=looked), seen


def _keep_better(
    problem: Problem,
    spending: Spending,
    fitted: Fitted,
    best: Proposal,
    name: str,
    law: AbstractDistribution,
    key: Key[Array, ""],
) -> Proposal:
    """The better of the best proposal so far and an independence proposal from `law`.

    Importance weights of q's own draws do not show a mode that q has missed, so q must also cover
    the points that the search has found.
    """
    settings = problem.settings
    sample = affordable_draws(problem, spending, law)
    _, at = weighted_draws(spending, law, sample, key)
    metrics = chain_metrics(at, at, at, np.zeros(len(at)))
    points = fitted.found.must_cover
    points = points[:: max(-(-len(points) // sample), 1)]
    level = at.max() + np.log(settings.fit.beyond)
    missed = float(np.mean(uncovered(spending, law, level, points)))
    row: Row = {"stage": name, **metrics, "missed": missed}
    history = [*best.history, row]
    if metrics["ess"] < settings.structure.better * best.ess or missed > settings.missed:
        return replace(best, history=history)
    identity = FunctionBlock(fb.Identity((problem.target.dim,)))
    kernel = Kernel(problem.target, identity, law, problem.initial)
    return Proposal(kernel, metrics["acceptance"], metrics["ess"], 0, history)


def _weights_heavy(
    problem: Problem, spending: Spending, proposal: Proposal, key: Key[Array, ""]
) -> bool:
    """Whether the proposal's importance weights may have no variance: its tails are too light.

    The effective draws that such weights promise are not borne out by chains.
    """
    law = proposal_law(proposal.kernel)
    _, at = weighted_draws(spending, law, affordable_draws(problem, spending, law), key)
    return pareto_k(at) > problem.settings.structure.tail_k

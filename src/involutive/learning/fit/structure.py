"""Structured proposals, for targets that one Gaussian mixture does not fit well.

Each candidate is an independence proposal with a known density, fitted by importance weights and
judged by the same metrics as the mixture; the one with the most effective draws per draw is kept.

- **Products.** Coordinates that hardly interact form blocks; each block gets a mixture of its own,
  fitted to the density along that block with the other coordinates fixed. The numbers of modes
  multiply, the numbers of components add up.
- **Hierarchies.** Coordinates that are normal given a few others, as the effects of a funnel are
  given its scale: a mixture for the parents, the conditional normal for the rest.
- **Symmetries.** If p(Sx) = p(x) for exchanges of coordinates or sign flips S, a mixture is fitted
  to one fundamental domain and made symmetric: K! orders of K labels cost as one.
- **Heavy tails.** Student-t components with learned degrees of freedom.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax import bijections as fb
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.batched import BatchedDensity, BatchedDistribution, OutOfBudget
from involutive._xla.threads import one_thread
from involutive.auxiliary import GaussianMixture, standard_normal
from involutive.auxiliary.em import em_student_t
from involutive.auxiliary.hierarchical import Hierarchical, evaluations_within
from involutive.auxiliary.products import ProductMixture, blocks_of, interactions
from involutive.core.keys import split
from involutive.core.statistics import pareto_k
from involutive.core.types import Number
from involutive.involutions.blocks import FunctionBlock
from involutive.involutions.symmetries import Symmetries
from involutive.involutions.symmetry_search import most_evaluations, symmetries_counted
from involutive.kernel.kernel import Kernel
from involutive.kernel.symmetry_move import Symmetrised
from involutive.learning.find.second_search import MissedModes, around_draws, second_search
from involutive.learning.fit.hierarchy import parents_of
from involutive.learning.fit.importance import (
    component_counts,
    fit_by_weights,
)
from involutive.learning.fit.partial import BlockDensity, FoldedDensity
from involutive.learning.fit.weighted import Space
from involutive.learning.judge.independence import chain_metrics
from involutive.learning.problem import Problem, Spending
from involutive.learning.settings import LearnSettings
from involutive.learning.stages import Fitted, Proposal, Row
from involutive.learning.weights import effective, log_mean, relative
from involutive.training.likelihood import proposal_law

Distributions = Iterator[tuple[str, AbstractDistribution]]


def try_structures(problem: Problem, fitted: Fitted) -> Fitted:
    """The best of the mixture and the structured proposals that the budget allows to try."""
    fitted = replace(fitted, structured=True)
    if fitted.settled or fitted.proposal.ess >= problem.settings.suffices:
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
    return replace(fitted, proposal=best, cost=cost, settled=best.ess >= enough, reached=reached)


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
    candidates = (_product, _hierarchical, _symmetric, _heavy_tailed)
    for make, key_fit, key_judge in zip(candidates, keys[:4], keys[4:], strict=True):
        try:
            if enough and not (
                make is _heavy_tailed
                and _weights_heavy(problem, spending, best, jr.fold_in(key_judge, len(candidates)))
            ):
                continue
            with one_thread():
                for i, (name, law) in enumerate(make(problem, spending, fitted, key_fit)):
                    key_law = jr.fold_in(key_judge, i)
                    best = _keep_better(problem, spending, fitted, best, name, law, key_law)
        except OutOfBudget:
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
    wider, _ = _second_search_around(problem, spending, wider, new.kernel, key)
    return wider, replace(new, history=history)


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
        sample = _affordable_draws(problem, spending, law)
        draws, at = _weighted_draws(spending, law, sample, key_draws)
        level = float(at.max()) + np.log(settings.fit.beyond)
        uncovered = partial(_uncovered, spending, law, level)
        seen = second_search(
            problem, spending, around_draws(draws, settings.search), uncovered, log_mean(at),
            fitted.found.gradients, key_search,
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
    sample = _affordable_draws(problem, spending, law)
    _, at = _weighted_draws(spending, law, sample, key)
    metrics = chain_metrics(at, at, at, np.zeros(len(at)))
    points = fitted.found.must_cover
    points = points[:: max(len(points) // sample, 1)]
    level = at.max() + np.log(settings.fit.beyond)
    missed = float(np.mean(_uncovered(spending, law, level, points)))
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
    _, at = _weighted_draws(spending, law, _affordable_draws(problem, spending, law), key)
    return pareto_k(at) > problem.settings.structure.tail_k


def _affordable_draws(problem: Problem, spending: Spending, law: AbstractDistribution) -> int:
    """The number of draws that a candidate is judged on.

    Raises:
        OutOfBudget: if the budget allows too few, on which any candidate may look good.
    """
    settings = problem.settings.structure
    # q is drawn from and evaluated at its draws, and evaluated at points found
    allowed = spending.density.left / (1 + 3 * evaluations_within(law))
    if allowed < settings.least_sample or not spending.allows():
        raise OutOfBudget
    return int(min(settings.sample, allowed))


def _uncovered(
    spending: Spending, law: AbstractDistribution, level: Number, points: np.ndarray
) -> np.ndarray:
    """Whether log p/q at each point is above a level."""
    at = spending.density.values(points) - BatchedDistribution(law).values(points)
    spending.note(evaluations_within(law) * len(points))
    return np.nan_to_num(at, nan=-np.inf) > level


def _weighted_draws(
    spending: Spending, law: AbstractDistribution, count: int, key: Key[Array, ""]
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of a distribution q, and `log p - log q` there; -inf outside the support."""
    q, density = BatchedDistribution(law), spending.density
    points = q.draws(key, int(min(count, max(density.left, 1))))
    at = density.values(points).astype(np.float64) - q.values(points).astype(np.float64)
    spending.note(2 * evaluations_within(law) * len(points))
    return points, np.where(np.isfinite(at), at, -np.inf)


# ── Symmetries ──────────────────────────────────────────────────────────────────────────────────


def _symmetric(
    problem: Problem, spending: Spending, fitted: Fitted, key: Key[Array, ""]
) -> Distributions:
    found, most = fitted.symmetries, problem.settings.structure.most_elements
    if found is None or not 1 < len(found.elements(most + 1)[0]) <= most:
        return
    fold = _folding(found)
    points = fold(fitted.found.points)
    density = FoldedDensity(spending.density, fold)
    modes = max(fitted.found.modes // len(found.elements()[0]), 1)
    base = _mixture_on(density, points, modes, problem.settings, key)
    yield f"mixture made symmetric ({found})".replace("\n", "; "), Symmetrised(base, found)


def _folding(found: Symmetries) -> Callable[[np.ndarray], np.ndarray]:
    folded = jax.jit(jax.vmap(found.fold))
    return lambda points: np.asarray(folded(jnp.asarray(points)))


# ── Products ────────────────────────────────────────────────────────────────────────────────────


def _product(
    problem: Problem, spending: Spending, fitted: Fitted, key: Key[Array, ""]
) -> Distributions:
    if not fitted.found.gradients:
        return
    points, settings = fitted.found.points, _for_blocks(problem.settings)
    count = settings.structure.interaction_points
    some = points[:: max(len(points) // count, 1)][:count]
    needed = 3 * problem.target.dim * len(some)  # Hessians
    if not spending.allows(needed):
        raise OutOfBudget
    spending.note(needed)
    blocks = blocks_of(interactions(problem.target, some))
    if len(blocks) < 2:
        return
    density, modes = spending.density, settings.structure.block_modes
    some = points[:: max(len(points) // settings.structure.top_points, 1)]
    top = some[np.argmax(density.values(some))]
    parts = [
        _mixture_on(BlockDensity(density, block, top), points[:, block], modes, settings, key_block)
        for block, key_block in zip(blocks, split(key, len(blocks)), strict=True)
    ]
    yield f"product of {len(blocks)} mixtures", ProductMixture(blocks, parts)


def _for_blocks(settings: LearnSettings) -> LearnSettings:
    """The settings with fewer weighted draws: a block has few coordinates."""
    return replace(settings, fit_draws=min(settings.fit_draws, settings.structure.block_draws))


def _mixture_on(
    density: FoldedDensity | BlockDensity | BatchedDensity,
    points: np.ndarray,
    modes: int,
    settings: LearnSettings,
    key: Key[Array, ""],
) -> GaussianMixture:
    """A Gaussian mixture in the points' own coordinates, fitted by importance weights."""
    mean, scale = points.mean(axis=0), np.maximum(points.std(axis=0), 1e-12)
    space = Space.around(density, mean, np.diag(scale), settings, points)
    white = space.whiten(points)
    counts = component_counts(modes, len(white), points.shape[1], settings)
    mixture = space.with_wide_normal(fit_by_weights(space, white, key, counts, settings).mixture)
    covariances = mixture.covariances * scale[:, None] * scale
    return GaussianMixture(np.exp(mixture.log_weights), space.colour(mixture.means), covariances)


# ── Hierarchies ─────────────────────────────────────────────────────────────────────────────────


class _LogMarginal(eqx.Module):
    """The log density of the parents of a hierarchy."""

    law: Hierarchical

    def __call__(self, parents: Array) -> Array:
        return self.law.log_marginal(parents)


def _hierarchical(
    problem: Problem, spending: Spending, fitted: Fitted, key: Key[Array, ""]
) -> Distributions:
    density, points = spending.density, fitted.found.points
    settings, parents = _for_blocks(problem.settings), list[int]()
    if fitted.found.gradients:
        parents = parents_of(density, points, settings.structure)
    if not parents:
        return
    centre, target = np.median(points, axis=0), problem.target
    wide = standard_normal(len(parents))
    marginal = _LogMarginal(Hierarchical(target, wide, parents, centre))
    each = 3 * (target.dim - len(parents)) + 1
    left = density.left / each
    own = BatchedDensity(marginal, len(parents), density.block, left, density.deadline)
    try:
        base = _mixture_on(own, points[:, parents], 1, settings, key)
    finally:
        spending.note(each * own.evaluations)
    name = f"{target.dim - len(parents)} coordinates given {len(parents)}"
    yield f"hierarchy, {name}", Hierarchical(target, base, parents, centre)


# ── Heavy tails ─────────────────────────────────────────────────────────────────────────────────


def _heavy_tailed(
    problem: Problem, spending: Spending, fitted: Fitted, key: Key[Array, ""]
) -> Distributions:
    how = problem.settings.structure
    count = int(np.clip(how.tail_per_mode * fitted.found.modes, 1, how.tail_components))
    for product, key_kind in zip((False, True), split(key, 2), strict=True):
        points, weights = fitted.found.points, None
        law: AbstractDistribution | None = None
        for key_round in split(key_kind, how.tail_rounds):
            began = time.perf_counter()
            mixture = em_student_t(
                points, count, weights=weights, product=product, gain=how.tail_gain
            )
            took = (time.perf_counter() - began) / len(points)
            if law is None and np.median(mixture.degrees) >= how.tail_degrees:
                break
            law = mixture.distribution()
            size = int(how.tail_draws * problem.settings.fit_draws)
            if not spending.allows(size, how.tail_longer * took * size):
                break  # EM cannot be interrupted
            points, at = _weighted_draws(spending, law, size, key_round)
            weights = np.minimum(relative(at), np.sqrt(len(at)) * relative(at).mean())
            if not weights.any():
                break
        if law is None:
            continue
        kind = "products of t" if product else "multivariate t"
        yield f"{count} components, {kind}", law

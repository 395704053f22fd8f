"""Proposals with structure, where one Gaussian mixture is not enough.

Each candidate is an independence proposal with a known density, fitted by importance weights and
judged by the same metrics as the mixture; the one with the most effective draws per draw is kept.

- **Products.** Coordinates that hardly interact form blocks; each block gets a mixture of its own,
  fitted to the density along that block with the others held fixed. Modes multiply, components add.
- **Hierarchies.** Coordinates that are normal given a few others, as the effects of a funnel are
  given its scale: a mixture for the parents, the conditional normal for the rest.
- **Symmetries.** If p(Sx) = p(x) for exchanges of coordinates or sign flips S, a mixture is fitted
  to one fundamental domain and made symmetric: K! orders of K labels cost as one.
- **Heavy tails.** Student-t components with learned degrees of freedom.
"""

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
from involutive.auxiliary.hierarchical import Hierarchical
from involutive.auxiliary.products import ProductMixture, blocks_of, interactions
from involutive.core.keys import split
from involutive.core.types import Number
from involutive.involutions.blocks import FunctionBlock
from involutive.involutions.symmetries import Symmetries
from involutive.involutions.symmetry_search import symmetries
from involutive.kernel.kernel import Kernel
from involutive.kernel.symmetry_move import Symmetrised
from involutive.learning.budget import STRUCTURE
from involutive.learning.find.again import around_draws, look_again
from involutive.learning.fit.hierarchy import parents_of
from involutive.learning.fit.importance import (
    component_counts,
    fit_by_weights,
)
from involutive.learning.fit.weighted import BEYOND, Space
from involutive.learning.judge.independence import chain_metrics
from involutive.learning.problem import Problem, Spending
from involutive.learning.settings import LearnSettings
from involutive.learning.stages import Fitted, Looked, Proposal, Row
from involutive.learning.weights import log_mean, relative

BETTER = 1.1  # factor of effective draws that a candidate must gain over the mixture; a guess
SAMPLE = 8192  # draws that a candidate is judged on; a guess
BLOCK_DRAWS = 8192  # weighted draws per fit of one block; a guess
MOST_ELEMENTS = 256  # of a symmetry group that a proposal sums over; a guess
TAIL_COMPONENTS = 24  # most Student-t components; a guess
TAIL_ROUNDS = 3  # batches that Student-t components are fitted to; a guess

Distributions = Iterator[tuple[str, AbstractDistribution]]


def try_structures(problem: Problem, fitted: Fitted) -> Fitted:
    """The best of the mixture and the structured proposals that the budget affords."""
    if fitted.settled or fitted.proposal.ess >= problem.settings.suffices:
        return fitted
    spending = problem.spend(STRUCTURE, fitted.cost)
    *keys, key_again, key_find = split(problem.keys.structure, 10)
    found = symmetries(problem.target, key=key_find, points=fitted.found.points[:64])
    fitted = replace(fitted, symmetries=found if len(found) else None)
    best = fitted.proposal
    candidates = (_product, _hierarchical, _symmetric, _heavy_tailed)
    for make, key_fit, key_judge in zip(candidates, keys[:4], keys[4:], strict=True):
        try:
            with one_thread():
                for i, (name, law) in enumerate(make(problem, spending, fitted, key_fit)):
                    key_law = jr.fold_in(key_judge, i)
                    best = _better(problem, spending, fitted, best, name, law, key_law)
        except OutOfBudget:
            break
        if best.ess >= problem.settings.poor:
            break
    looked = fitted.looked
    if best.components == 0 and best is not fitted.proposal:
        looked = _looked_again(problem, spending, fitted, best.kernel, key_again)
    cost = spending.cost
    reached: list[Row] = [*fitted.reached, {"seconds": cost.seconds, "ess": best.ess}]
    # rounds train mixtures and couplings: they would throw a good structure away
    found = best is not fitted.proposal and best.components == 0
    settled = best.ess >= (problem.settings.poor if found else problem.settings.suffices)
    return replace(
        fitted, proposal=best, looked=looked, cost=cost, settled=settled, reached=reached
    )


def _looked_again(
    problem: Problem, spending: Spending, fitted: Fitted, kernel: Kernel, key: Key[Array, ""]
) -> Looked:
    """A second search for what a structured proposal has missed."""
    key_draws, key_search = split(key, 2)
    law = kernel.auxiliary
    try:
        draws, at = _weighed(spending.density, law, SAMPLE, key_draws)
        uncovered = partial(_uncovered, spending.density, law, float(at.max()))
        seen = look_again(
            problem, spending, around_draws(draws), uncovered, log_mean(at),
            fitted.found.gradients, key_search,
        )  # fmt: skip
    except OutOfBudget:
        return replace(fitted.looked, second=0, new=0)
    return replace(
        fitted.looked,
        second=seen.looked_at,
        new=len(seen.points),
        log_z_weights=log_mean(at),
    )


def _better(
    problem: Problem,
    spending: Spending,
    fitted: Fitted,
    best: Proposal,
    name: str,
    law: AbstractDistribution,
    key: Key[Array, ""],
) -> Proposal:
    """The better of the best proposal so far and one from a new distribution.

    The weights of q's own draws say nothing of a mode that q has missed, so q must also cover the
    points that the search has found.
    """
    _, at = _weighed(spending.density, law, SAMPLE, key)
    metrics = chain_metrics(at, at, at, np.zeros(len(at)))
    points = fitted.found.must_cover
    points = points[:: max(len(points) // SAMPLE, 1)]
    missed = float(np.mean(_uncovered(spending.density, law, at.max(), points)))
    row: Row = {"stage": name, **metrics, "missed": missed}
    history = [*best.history, row]
    if metrics["ess"] < BETTER * best.ess or missed > problem.settings.missed:
        return replace(best, history=history)
    identity = FunctionBlock(fb.Identity((problem.target.dim,)))
    kernel = Kernel(problem.target, identity, law, problem.law)
    return Proposal(kernel, metrics["acceptance"], metrics["ess"], 0, history)


def _uncovered(
    density: BatchedDensity, law: AbstractDistribution, top: Number, points: np.ndarray
) -> np.ndarray:
    """Whether p/q at each point is far larger than at any draw of q."""
    at = density.values(points) - BatchedDistribution(law).values(points)
    return np.nan_to_num(at, nan=-np.inf) > top + BEYOND


def _weighed(
    density: BatchedDensity, law: AbstractDistribution, count: int, key: Key[Array, ""]
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of a distribution, and `log p - log q` at them; -inf outside the support."""
    q = BatchedDistribution(law)
    points = q.draws(key, int(min(count, max(density.left, 1))))
    at = density.values(points).astype(np.float64) - q.values(points).astype(np.float64)
    return points, np.where(np.isfinite(at), at, -np.inf)


# ── Symmetries ──────────────────────────────────────────────────────────────────────────────────


class FoldedDensity:
    """A density on one fundamental domain of its symmetries, -inf elsewhere."""

    def __init__(self, density: BatchedDensity, fold: Callable[[np.ndarray], np.ndarray]):
        self.density, self.fold, self.dim, self.dtype = density, fold, density.dim, density.dtype

    @property
    def left(self) -> float:
        """Evaluations left."""
        return self.density.left

    def values(self, points: np.ndarray) -> np.ndarray:
        """The log density where a point is its own fold."""
        inside = np.isclose(self.fold(points), points).all(axis=1)
        values = np.full(len(points), -np.inf, points.dtype)
        if inside.any():
            values[inside] = self.density.values(points[inside])
        return values


def _symmetric(
    problem: Problem, spending: Spending, fitted: Fitted, key: Key[Array, ""]
) -> Distributions:
    found = fitted.symmetries
    if found is None or len(found.elements(MOST_ELEMENTS + 1)[0]) > MOST_ELEMENTS:
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


class BlockDensity:
    """A density along one block of coordinates, the others held at a point."""

    def __init__(self, density: BatchedDensity, block: list[int], point: np.ndarray):
        self.density, self.block, self.point = density, block, point
        self.dim, self.dtype = len(block), density.dtype

    @property
    def left(self) -> float:
        """Evaluations left."""
        return self.density.left

    def values(self, points: np.ndarray) -> np.ndarray:
        """The log density with the block's coordinates replaced."""
        rows = np.tile(self.point, (len(points), 1)).astype(points.dtype)
        rows[:, self.block] = points
        return self.density.values(rows)


def _product(
    problem: Problem, spending: Spending, fitted: Fitted, key: Key[Array, ""]
) -> Distributions:
    if not fitted.found.gradients:
        return
    points = fitted.found.points
    blocks = blocks_of(interactions(problem.target, points[:: max(len(points) // 32, 1)][:32]))
    if len(blocks) < 2:
        return
    density = spending.density
    some = points[:: max(len(points) // 2000, 1)]
    top = some[np.argmax(density.values(some))]
    settings = replace(problem.settings, fit_draws=min(problem.settings.fit_draws, BLOCK_DRAWS))
    parts = [
        _mixture_on(BlockDensity(density, block, top), points[:, block], 2, settings, key_block)
        for block, key_block in zip(blocks, split(key, len(blocks)), strict=True)
    ]
    yield f"product of {len(blocks)} mixtures", ProductMixture(blocks, parts)


def _mixture_on(
    density: FoldedDensity | BlockDensity | BatchedDensity,
    points: np.ndarray,
    modes: int,
    settings: LearnSettings,
    key: Key[Array, ""],
) -> GaussianMixture:
    """A Gaussian mixture in the points' own coordinates, fitted to a density by weights."""
    mean, scale = points.mean(axis=0), np.maximum(points.std(axis=0), 1e-12)
    space = Space.around(density, mean, np.diag(scale), points, settings)
    white = space.whiten(points)
    counts = component_counts(modes, len(white), points.shape[1], settings)
    mixture = space.covered(fit_by_weights(space, white, key, counts, settings).mixture)
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
    parents = parents_of(density, points) if fitted.found.gradients else []
    if not parents:
        return
    centre, target = np.median(points, axis=0), problem.target
    wide = standard_normal(len(parents))
    marginal = _LogMarginal(Hierarchical(target, wide, parents, centre))
    each = 3 * (target.dim - len(parents)) + 1
    left = density.left / each
    own = BatchedDensity(marginal, len(parents), density.block, left, density.deadline)
    settings = replace(problem.settings, fit_draws=min(problem.settings.fit_draws, BLOCK_DRAWS))
    base = _mixture_on(own, points[:, parents], 1, settings, key)
    spending.note(each * own.evaluations)
    name = f"{target.dim - len(parents)} coordinates given {len(parents)}"
    yield f"hierarchy, {name}", Hierarchical(target, base, parents, centre)


# ── Heavy tails ─────────────────────────────────────────────────────────────────────────────────


def _heavy_tailed(
    problem: Problem, spending: Spending, fitted: Fitted, key: Key[Array, ""]
) -> Distributions:
    count = int(np.clip(2 * fitted.found.modes, 1, TAIL_COMPONENTS))
    for product, key_kind in zip((False, True), split(key, 2), strict=True):
        points, weights = fitted.found.points, None
        law: AbstractDistribution | None = None
        for key_round in split(key_kind, TAIL_ROUNDS):
            law = em_student_t(points, count, weights=weights, product=product).distribution()
            size = problem.settings.fit_draws // 4
            points, at = _weighed(spending.density, law, size, key_round)
            weights = np.minimum(relative(at), np.sqrt(len(at)) * relative(at).mean())
            if not weights.any():
                break
        assert law is not None
        kind = "products of t" if product else "multivariate t"
        yield f"{count} components, {kind}", law

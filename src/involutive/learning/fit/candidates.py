"""The structured proposals that are tried, each from the points that a search has found.

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

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.batched import GRADIENT, BatchedDensity, OutOfBudget
from involutive.auxiliary import GaussianMixture, standard_normal
from involutive.auxiliary.em import em_student_t
from involutive.auxiliary.hierarchical import Hierarchical, evaluations_within
from involutive.auxiliary.products import ProductMixture, blocks_of, interactions
from involutive.core.keys import split
from involutive.involutions.symmetries import Symmetries
from involutive.kernel.symmetry_move import Symmetrised
from involutive.learning.fit.hierarchy import parents_of
from involutive.learning.fit.importance import component_counts, fit_by_weights
from involutive.learning.fit.partial import BlockDensity, FoldedDensity
from involutive.learning.fit.proposal_weights import weighted_draws
from involutive.learning.fit.weighted import Space
from involutive.learning.problem import Problem, Spending
from involutive.learning.settings import LearnSettings
from involutive.learning.stages import Fitted
from involutive.learning.weights import relative

Distributions = Iterator[tuple[str, AbstractDistribution]]


# ── Symmetries ──────────────────────────────────────────────────────────────────────────────────


def symmetric(
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


def product(
    problem: Problem, spending: Spending, fitted: Fitted, key: Key[Array, ""]
) -> Distributions:
    if not fitted.found.gradients:
        return
    points, settings = fitted.found.points, _for_blocks(problem.settings)
    count = settings.structure.interaction_points
    some = points[:: max(len(points) // count, 1)][:count]
    needed = GRADIENT * problem.target.dim * len(some)  # Hessians
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


def hierarchical(
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
    each = evaluations_within(Hierarchical(target, wide, parents, centre)) + 1
    left = density.left / each
    own = BatchedDensity(marginal, len(parents), density.block, left, density.deadline)
    try:
        base = _mixture_on(own, points[:, parents], 1, settings, key)
    finally:
        spending.note(each * own.evaluations)
    name = f"{target.dim - len(parents)} coordinates given {len(parents)}"
    yield f"hierarchy, {name}", Hierarchical(target, base, parents, centre)


# ── Heavy tails ─────────────────────────────────────────────────────────────────────────────────


def heavy_tailed(
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
            points, at = weighted_draws(spending, law, size, key_round)
            weights = np.minimum(relative(at), np.sqrt(len(at)) * relative(at).mean())
            if not weights.any():
                break
        if law is None:
            continue
        kind = "products of t" if product else "multivariate t"
        yield f"{count} components, {kind}", law

"""Products of distributions over blocks of coordinates: modes multiply, components add.

If log p is nearly a sum over blocks, one mixture per block describes it: sixteen wells of two modes
are 16 × 2 components, not 2¹⁶. Which coordinates interact shows in the Hessians of log p over
draws.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Int, Key

from involutive._xla.compilation import jit_once
from involutive.auxiliary.em import fit_mixture
from involutive.auxiliary.mixtures import GaussianMixture, Joined
from involutive.core.errors import check
from involutive.core.types import ArrayLike
from involutive.targets.target import Target

LEAST_INTERACTION = 0.05  # of the Hessian's diagonal, from which coordinates share a block. A guess
WIDE = 0.05  # share of wide Gaussians in a fitted product. A guess
POINTS = 32  # draws at which Hessians are taken. A guess

Fit = Callable[[np.ndarray, np.ndarray | None], AbstractDistribution]


class ProductMixture(AbstractDistribution):
    """`Π_b q_b(x[block_b])`: one distribution per block of coordinates, as one distribution.

    Blocks of one size whose distributions have the same structure are evaluated together; Gaussian
    mixtures with fewer components are padded with components of weight zero.

    Args:
        blocks: lists of indices that together are every coordinate once.
        parts: one distribution per block, for example `GaussianMixture` or `StudentTMixture`.

    Raises:
        InputError: if the blocks do not hold every coordinate once, or the distributions do not
            have their sizes.

    Example:
        >>> import jax.numpy as jnp, jax.random as jr, involutive as inv
        >>> two = inv.GaussianMixture(jnp.ones(2), jnp.array([[-3.0], [3.0]]), jnp.ones((2, 1, 1)))
        >>> q = inv.ProductMixture([[0], [2], [1]], [two, two, two])  # eight modes
        >>> q.sample(jr.key(0)).shape
        (3,)
    """

    indices: tuple[Int[Array, "blocks width"], ...]
    parts: tuple[AbstractDistribution, ...]  # stacked, one for every group of blocks
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: None = eqx.field(static=True)

    def __init__(self, blocks: Sequence[Any], parts: Sequence[AbstractDistribution]):
        rows = [np.asarray(block, int).ravel() for block in blocks]
        dim = sum(row.size for row in rows)
        check(
            len(rows) == len(parts) > 0
            and sorted(np.concatenate(rows).tolist()) == list(range(dim)),
            f"blocks must hold every coordinate once, with one distribution each, got {len(rows)} "
            f"blocks of {dim} coordinates and {len(parts)} distributions",
        )
        for row, part in zip(rows, parts, strict=True):
            check(
                part.shape == (row.size,),
                f"the distribution of a block of {row.size} must have that size, got {part.shape}",
            )
        groups: dict[Any, list[tuple[np.ndarray, AbstractDistribution]]] = {}
        for row, part in zip(rows, _filled(parts), strict=True):
            arrays, rest = eqx.partition(part, eqx.is_array)
            sizes = tuple(leaf.shape for leaf in jax.tree.leaves(arrays))
            form = (jax.tree.structure(rest), tuple(jax.tree.leaves(rest)), sizes)
            groups.setdefault(form, []).append((row, part))
        self.indices = tuple(
            jnp.asarray(np.stack([row for row, _ in group])) for group in groups.values()
        )
        self.parts = tuple(_stacked([part for _, part in group]) for group in groups.values())
        self.shape, self.cond_shape = (dim,), None

    def _log_prob(self, x: Array, condition: Array | None = None) -> Array:
        each = [
            eqx.filter_vmap(lambda part, y: part.log_prob(y))(part, x[rows])
            for rows, part in zip(self.indices, self.parts, strict=True)
        ]
        return sum((jnp.sum(values) for values in each), jnp.zeros(()))

    def _sample(self, key: Key[Array, ""], condition: Array | None = None) -> Array:
        x = jnp.zeros(self.shape)
        keys = jr.split(key, len(self.parts))
        for i, (rows, part) in enumerate(zip(self.indices, self.parts, strict=True)):
            each = jr.split(keys[i], len(rows))
            x = x.at[rows].set(eqx.filter_vmap(lambda part, k: part.sample(k))(part, each))
        return x


def _filled(parts: Sequence[AbstractDistribution]) -> list[AbstractDistribution]:
    """Gaussian mixtures of one size with the same number of components."""
    most: dict[Any, int] = {}
    for part in parts:
        if isinstance(part, GaussianMixture):
            most[part.shape] = max(most.get(part.shape, 0), part.means.shape[0])
    return [_padded(part, most[part.shape]) if isinstance(part, GaussianMixture) else part
            for part in parts]  # fmt: skip


def _padded(part: GaussianMixture, count: int) -> GaussianMixture:
    extra = count - part.means.shape[0]
    if extra == 0:
        return part

    def fill(leaf: Array, value: float) -> Array:
        return jnp.concatenate([leaf, jnp.full((extra, *leaf.shape[1:]), value, leaf.dtype)])

    return eqx.tree_at(
        lambda law: (law.logits, law.means, law.log_diagonal, law.lower),
        part,
        (fill(part.logits, -jnp.inf), fill(part.means, 0.0), fill(part.log_diagonal, 0.0),
         fill(part.lower, 0.0)),
    )  # fmt: skip


def _stacked(parts: Sequence[AbstractDistribution]) -> AbstractDistribution:
    arrays = [eqx.filter(part, eqx.is_array) for part in parts]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *arrays)
    return eqx.combine(stacked, eqx.filter(parts[0], eqx.is_array, inverse=True))


# ── Which coordinates interact ──────────────────────────────────────────────────────────────────


@jit_once
def _hessians(target: Target, points: Array) -> Array:
    density = lambda x: jnp.asarray(target.log_density(x), x.dtype)  # noqa: E731
    return jax.lax.map(jax.hessian(density), points)


def interactions(target: Target, points: ArrayLike) -> np.ndarray:
    """How strongly coordinates interact: `(dim, dim)`, rms ∂²log p/∂x_i∂x_j over its diagonal's.

    Args:
        target: the density, differentiable twice.
        points: `(n, dim)` draws; at most 32 of them are used.

    Returns:
        `h_ij / √(h_ii h_jj)` with h the root mean square of the Hessians over the points.

    Raises:
        InputError: if the points do not have shape `(n, dim)`, or there are none.

    Example:
        >>> import jax.numpy as jnp, numpy as np, involutive as inv
        >>> target = inv.Target(lambda x: -jnp.sum(x**2) + x[0] * x[1], 3)
        >>> [float(row.round(2)) for row in inv.interactions(target, np.ones((4, 3)))[0]]
        [1.0, 0.5, 0.0]
    """
    rows = np.asarray(points, float)
    check(
        rows.ndim == 2 and rows.shape[1] == target.dim and len(rows) > 0,
        f"points must have shape (n, {target.dim}), got {rows.shape}",
    )
    few = rows[np.linspace(0, len(rows) - 1, min(POINTS, len(rows))).astype(int)]
    found = np.asarray(_hessians(target, jnp.asarray(few, float)), np.float64)
    whole = np.isfinite(found).all(axis=(1, 2))
    if not whole.any():
        return np.ones((target.dim, target.dim))
    rms = np.sqrt(np.mean(found[whole] ** 2, axis=0))
    diagonal = np.maximum(np.diag(rms), 1e-12 * max(rms.max(), 1e-300))
    return rms / np.sqrt(np.outer(diagonal, diagonal))


def blocks_of(strengths: np.ndarray, least: float = LEAST_INTERACTION) -> list[list[int]]:
    """Blocks of coordinates joined by interactions of at least `least`.

    Args:
        strengths: what `interactions` returned.
        least: the smallest interaction that joins two coordinates.

    Returns:
        Sorted lists of indices; one block if everything interacts.

    Example:
        >>> import numpy as np, involutive as inv
        >>> inv.blocks_of(np.array([[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]]))
        [[0, 1], [2]]
    """
    joined, left, blocks = np.asarray(strengths) >= least, set(range(len(strengths))), []
    while left:
        block, edge = set(), {min(left)}
        while edge:
            block |= edge
            edge = set(np.flatnonzero((joined[list(edge)] | joined[:, list(edge)].T).any(0)))
            edge = {int(i) for i in edge} - block
        blocks.append(sorted(block))
        left -= block
    return blocks


def fit_product(
    draws: ArrayLike,
    blocks: Sequence[Sequence[int]],
    *,
    weights: ArrayLike | None = None,
    fit: Fit | None = None,
    wide: float = WIDE,
) -> ProductMixture:
    """Fit one distribution per block to the draws' coordinates of that block.

    Args:
        draws: `(n, dim)`.
        blocks: lists of indices, every coordinate once.
        weights: `(n,)` importance weights; by default equal.
        fit: `(rows, weights)` to a distribution of the block; by default `fit_mixture`.
        wide: the share, over all blocks, of Gaussians as wide as the block's draws: between modes
            p falls more slowly than a mixture fitted to them, and chains would get stuck there.

    Returns:
        The product, to be used as a proposal or a reference.

    Example:
        >>> import numpy as np, involutive as inv
        >>> draws = np.random.default_rng(0).normal(size=(400, 3))
        >>> inv.fit_product(draws, [[0, 1], [2]]).shape
        (3,)
    """
    rows = np.asarray(draws, float)
    fit = fit or (lambda part, omega: fit_mixture(part, omega))
    omega = None if weights is None else np.asarray(weights, float)
    parts = []
    for block in blocks:
        part, mine = fit(rows[:, list(block)], omega), rows[:, list(block)]
        cover = _cover(mine, omega)
        share = wide / len(blocks)
        both = isinstance(part, GaussianMixture)
        parts.append(_joined(part, cover, share) if both else Joined(part, cover, share))
    return ProductMixture(blocks, parts)


def _joined(first: GaussianMixture, second: GaussianMixture, share: float) -> GaussianMixture:
    """The mixture of two mixtures as one, which blocks can share."""
    fields = lambda law: (law.logits, law.means, law.log_diagonal, law.lower)  # noqa: E731
    logits = (
        jax.nn.log_softmax(first.logits) + np.log1p(-share),
        jax.nn.log_softmax(second.logits) + np.log(share),
    )
    pairs = (logits, *zip(fields(first)[1:], fields(second)[1:], strict=True))
    return eqx.tree_at(fields, first, tuple(jnp.concatenate(pair) for pair in pairs))


def _cover(rows: np.ndarray, weights: np.ndarray | None) -> GaussianMixture:
    """One Gaussian with the moments of weighted draws."""
    mean = np.average(rows, axis=0, weights=weights)
    spread = np.atleast_2d(np.cov(rows.T, aweights=weights))
    spread = spread + 1e-9 * np.diag(np.diag(spread) + 1e-12)
    return GaussianMixture(np.ones(1), mean[None], spread[None])

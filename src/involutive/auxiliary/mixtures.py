"""Distributions Y of π: a standard normal, a learnable mixture, any FlowJAX distribution.

FlowJAX's `AbstractDistribution` is the interface: `sample(key)` and `log_prob(v)` of one vector.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution, StandardNormal
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Key, PyTree

from involutive._xla.batch_last import many_at_once
from involutive._xla.compilation import on_device
from involutive._xla.generator import normal
from involutive.core.errors import check, check_count
from involutive.core.types import ArrayLike


def standard_normal(dim: int) -> StandardNormal:
    """`N(0, I)` in `dim` dimensions, the auxiliary distribution of the paper's experiments.

    Args:
        dim: the number of auxiliary coordinates.

    Returns:
        The distribution, for `Kernel`.

    Raises:
        InputError: if `dim` is below 1.

    Example:
        >>> import involutive as inv
        >>> inv.standard_normal(30).shape
        (30,)
    """
    return StandardNormal((check_count("dim", dim),))


def drawn(law: AbstractDistribution, key: Key[Array, ""]) -> Float[Array, " dim"]:
    """A draw of a distribution of one vector; a faster method serves the standard normal."""
    return normal(key, law.shape[0]) if isinstance(law, StandardNormal) else law.sample(key)


@runtime_checkable
class OffersLogGain(Protocol):
    """A distribution that has `log Y(new) - log Y(old)` for less than two densities."""

    def log_gain(self, new: Float[Array, " dim"], old: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return `log Y(new) - log Y(old)`."""
        ...


def noted_log_prob(law: AbstractDistribution, v: Float[Array, " dim"]) -> Float[Array, ""] | None:
    """`log Y(v)` to pass to `log_gain` later, or None if the distribution needs none for it."""
    return None if isinstance(law, OffersLogGain) else law.log_prob(v)


def log_gain(
    law: AbstractDistribution,
    new: Float[Array, " dim"],
    old: Float[Array, " dim"],
    log_old: Float[Array, ""] | None = None,
) -> Float[Array, ""]:
    """`log Y(new) - log Y(old)`; `log_old` is `log Y(old)` where it is known already."""
    if isinstance(law, OffersLogGain):
        return law.log_gain(new, old)
    return law.log_prob(new) - (law.log_prob(old) if log_old is None else log_old)


class ManyNormal(StandardNormal):
    """`N(0, I)` for many chains at once.

    Over the coordinates of each chain a sum is one slow addition after the other; a product with a
    vector of ones is the same sum, quick for all chains.
    """

    def _log_prob(self, x: Float[Array, " dim"], condition: None = None) -> Float[Array, ""]:
        return -0.5 * (_sum(x * x) + x.size * np.log(2 * np.pi))

    def log_gain(self, new: Float[Array, " dim"], old: Float[Array, " dim"]) -> Float[Array, ""]:
        """`log Y(new) - log Y(old)` in one sum."""
        return 0.5 * _sum((old - new) * (old + new))


def _sum(x: Float[Array, " dim"]) -> Float[Array, ""]:
    return jnp.dot(x, jnp.ones_like(x), precision="highest")


def for_many(tree: PyTree) -> PyTree:
    """Replace every standard normal in a kernel, or any other pytree, by a `ManyNormal`."""
    plain = lambda node: type(node) is StandardNormal and len(node.shape) == 1  # noqa: E731
    swap = lambda node: ManyNormal(node.shape) if plain(node) else node  # noqa: E731
    return jax.tree.map(swap, tree, is_leaf=plain)


class GaussianMixture(AbstractDistribution):
    """`Σ_k w_k N(μ_k, (A_kᵀ A_k)⁻¹)`: a learnable auxiliary distribution.

    A_k is lower triangular with diagonal `exp(log_diagonal_k)`, so every parameter value is a
    valid distribution: the density needs `A_k (x - μ_k)`, a draw `A_k⁻¹` times a normal vector.

    Args:
        weights: `(k,)`, positive, up to a constant.
        means: `(k, dim)`.
        covariances: `(k, dim, dim)`, positive definite.

    Raises:
        InputError: if the shapes do not fit together.

    Example:
        >>> import involutive as inv, jax.numpy as jnp
        >>> covariances = jnp.stack([jnp.eye(2), jnp.eye(2)])
        >>> means = jnp.array([[-3.0, 0.0], [3.0, 0.0]])
        >>> law = inv.GaussianMixture(jnp.ones(2), means, covariances)
        >>> law.shape, round(float(law.log_prob(jnp.array([3.0, 0.0]))), 3)
        ((2,), -2.531)
    """

    logits: Float[Array, " k"]
    means: Float[Array, "k dim"]
    log_diagonal: Float[Array, "k dim"]
    lower: Float[Array, "k dim dim"]
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: None = eqx.field(static=True)

    def __init__(self, weights: ArrayLike, means: ArrayLike, covariances: ArrayLike):
        """Build from weights `(k,)`, means `(k, dim)` and covariances `(k, dim, dim)`.

        NumPy arrays are processed in double precision on the host, where nothing is compiled.
        """
        host = all(isinstance(part, np.ndarray) for part in (weights, means, covariances))
        xp: Any = np if host else jnp
        centres = xp.asarray(means, float)
        check(centres.ndim == 2, f"means must have shape (k, dim), got {centres.shape}")
        count, dim = centres.shape
        spreads = xp.asarray(covariances, float)
        check(
            spreads.shape == (count, dim, dim),
            f"covariances must have shape {(count, dim, dim)}, got {spreads.shape}",
        )
        factor = xp.linalg.cholesky(spreads)
        inverse = xp.linalg.inv(factor) if host else _inverses(factor)
        with np.errstate(divide="ignore"):
            logits = xp.log(xp.asarray(weights, float))
        parts = (logits, centres, xp.log(xp.einsum("kii->ki", inverse)), xp.tril(inverse, -1))
        if host:
            parts = (on_device(part.astype(jnp.result_type(float))) for part in parts)
        self.logits, self.means, self.log_diagonal, self.lower = parts
        self.shape, self.cond_shape = (dim,), None

    def factors(self) -> Float[Array, "k dim dim"]:
        """Return the triangular factors A_k of the precisions."""
        # by comparison: `tril` and `diag` take a fifth of the time that chains take to be traced
        row, column = (jax.lax.broadcasted_iota(int, self.lower.shape, axis) for axis in (1, 2))
        diagonal = jnp.broadcast_to(jnp.exp(self.log_diagonal)[:, :, None], self.lower.shape)
        above = jax.lax.select(row == column, diagonal, jnp.zeros_like(diagonal))
        return jax.lax.select(row > column, self.lower, above)

    def inverse_factors(self) -> Float[Array, "k dim dim"]:
        """Return `A_k⁻¹`, a square root of the covariance of every component."""
        return _inverses(self.factors())

    def _log_prob(self, x: Array, condition: Array | None = None) -> Array:
        factors = self.factors()
        offsets = jnp.einsum("kij,kj->ki", factors, self.means)
        levels = jax.nn.log_softmax(self.logits) + jnp.sum(self.log_diagonal, axis=1)
        return _log_sum(factors, offsets, levels, x) - 0.5 * self.shape[0] * jnp.log(2 * jnp.pi)

    def _sample(self, key: Key[Array, ""], condition: Array | None = None) -> Array:
        key_component, key_noise = jr.split(key)
        # by its cumulative weights: one uniform, where Gumbel noise would need one a component
        levels = jnp.cumsum(jax.nn.softmax(self.logits))
        uniform = jr.uniform(key_component, dtype=levels.dtype) * levels[-1]
        k = jnp.minimum(jnp.sum(uniform >= levels), levels.size - 1)
        noise = normal(key_noise, self.shape[0])
        # of all components, so that many draws share the solve; a draw is then one product
        return self.means[k] + self.inverse_factors()[k] @ noise

    def pruned(self, least: float = 1e-6) -> "GaussianMixture":
        """Return the mixture without the components whose weight is below `least`."""
        parts = [np.asarray(p) for p in (self.logits, self.means, self.log_diagonal, self.lower)]
        weights = np.exp(parts[0] - parts[0].max())
        alive = weights >= least * weights.sum()
        return eqx.tree_at(
            lambda law: (law.logits, law.means, law.log_diagonal, law.lower),
            self,
            tuple(on_device(part[alive]) for part in parts),
        )


class ConditionalNormal(AbstractDistribution):
    """`N(m(φ), diag(s(φ))²)`: a normal distribution of π whose mean and scale depend on the state.

    As Y(π|φ) beside a swap of state and auxiliary this is Metropolis-Hastings with the proposal
    `φ' ~ N(m(φ), diag(s(φ))²)`: with `m(φ) = φ + ½ s² ∇log p(φ)` the Langevin algorithm, with a
    scale that depends on the curvature a Riemannian walk, with networks a learned proposal.

    Args:
        mean: m, a function of one state vector.
        log_scale: log s, a function of one state vector.
        state_dim: coordinates of φ.
        dim: coordinates of π; `state_dim` if None.

    Raises:
        InputError: if a number of coordinates is not a whole number of at least 1.

    Example:
        >>> import jax.numpy as jnp, involutive as inv
        >>> law = inv.ConditionalNormal(lambda x: 0.5 * x, lambda x: jnp.zeros(2), 2)
        >>> law.log_prob(jnp.zeros(2), condition=jnp.ones(2)).shape
        ()
    """

    mean: Callable[[Array], Array]
    log_scale: Callable[[Array], Array]
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        mean: Callable[[Array], Array],
        log_scale: Callable[[Array], Array],
        state_dim: int,
        dim: int | None = None,
    ):
        self.mean, self.log_scale = mean, log_scale
        self.cond_shape = (check_count("state_dim", state_dim),)
        self.shape = (state_dim if dim is None else check_count("dim", dim),)

    def _log_prob(self, x: Array, condition: Array | None = None) -> Float[Array, ""]:
        assert condition is not None
        level = self.log_scale(condition)
        white = (x - self.mean(condition)) * jnp.exp(-level)
        return -0.5 * jnp.sum(white**2) - jnp.sum(level) - 0.5 * x.size * np.log(2 * np.pi)

    def _sample(self, key: Key[Array, ""], condition: Array | None = None) -> Float[Array, " dim"]:
        assert condition is not None
        noise = jr.normal(key, self.shape)
        return self.mean(condition) + jnp.exp(self.log_scale(condition)) * noise


def _inverses(factors: Float[Array, "k dim dim"]) -> Float[Array, "k dim dim"]:
    """The inverses of lower triangular matrices, one at a time; `_xla/lapack.py` says why."""
    unit = jnp.eye(factors.shape[-1], dtype=factors.dtype)
    return jax.lax.map(lambda a: jax.scipy.linalg.solve_triangular(a, unit, lower=True), factors)


@many_at_once
def _log_sum(factors: Array, offsets: Array, levels: Array, x: Array) -> Array:
    """`log Σ_k exp(levels_k - |A_k x - offsets_k|² / 2)` for points `(dim, n)`."""
    count, dim = offsets.shape
    white = factors.reshape(count * dim, dim) @ x - offsets.reshape(count * dim, 1)
    squares = jnp.sum((white * white).reshape(count, dim, -1), axis=1)
    return logsumexp(levels[:, None] - 0.5 * squares, axis=0)


class Joined(AbstractDistribution):
    """`(1 - share) · first + share · second`, of any two distributions of one vector.

    Args:
        first: a FlowJAX distribution.
        second: another one of the same dimension.
        share: the weight of the second, between 0 and 1.

    Example:
        >>> import jax.random as jr, involutive as inv
        >>> from involutive.auxiliary import Joined
        >>> Joined(inv.standard_normal(2), inv.standard_normal(2), 0.1).sample(jr.key(0)).shape
        (2,)
    """

    first: AbstractDistribution
    second: AbstractDistribution
    share: Float[Array, ""]
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: None = eqx.field(static=True)

    def __init__(self, first: AbstractDistribution, second: AbstractDistribution, share: ArrayLike):
        check(
            first.shape == second.shape and len(first.shape) == 1,
            f"joined distributions must be of one dimension, got {first.shape} and {second.shape}",
        )
        check(0 < float(np.asarray(share)) < 1, f"share must lie between 0 and 1, got {share}")
        self.first, self.second = first, second
        self.share = jnp.asarray(share, float)
        self.shape, self.cond_shape = first.shape, None

    def _log_prob(self, x: Array, condition: Array | None = None) -> Array:
        first, second = self.first.log_prob(x), self.second.log_prob(x)
        return jnp.logaddexp(jnp.log1p(-self.share) + first, jnp.log(self.share) + second)

    def _sample(self, key: Key[Array, ""], condition: Array | None = None) -> Array:
        key_choice, key_first, key_second = jr.split(key, 3)
        other = jr.uniform(key_choice, dtype=self.share.dtype) < self.share
        return jnp.where(other, self.second.sample(key_second), self.first.sample(key_first))

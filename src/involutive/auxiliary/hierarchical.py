"""Distributions of hierarchies: some coordinates, the children, are normal given the others.

A hierarchical model in its centred form, such as a funnel, is normal in its effects given the
scales. With J the parents and C the children,

    q(x) = q_J(x_J) · N(x_C; m(x_J), P(x_J)⁻¹),

    P(x_J) = -∇²_CC log p(x_J, c),    m(x_J) = c + P(x_J)⁻¹ ∇_C log p(x_J, c),

at one fixed point c. Where p is normal in x_C given x_J, every c gives the exact conditional; where
it is not, q is still a distribution with a known density, a Laplace approximation. Drawing from it
is the non-centred parametrisation, read off the density instead of written by hand.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Float, Int, Key

from involutive.core.errors import check
from involutive.core.types import ArrayLike
from involutive.targets.target import Target


class Hierarchical(AbstractDistribution):
    """`q_J(x_J) N(x_C; m(x_J), P(x_J)⁻¹)`, the conditional from the derivatives of a density.

    Args:
        target: the density whose conditional of the children is taken.
        base: q_J, a FlowJAX distribution of the parents.
        parents: indices of the coordinates J, in the order of `base`.
        centre: `(dim,)`, a point whose children are c.

    Raises:
        InputError: if `parents` are not some of the coordinates, each once, or `base` has another
            size.

    Example:
        >>> import jax.numpy as jnp, jax.random as jr, involutive as inv
        >>> from flowjax.distributions import Normal
        >>> funnel = inv.targets.funnel(5)
        >>> q = inv.Hierarchical(funnel, Normal(jnp.zeros(1), 3.0), [0], jnp.zeros(5))
        >>> x = q.sample(jr.key(0))
        >>> gap = lambda x: funnel.log_density(x) - q.log_prob(x)
        >>> bool(jnp.abs(gap(x) - gap(jnp.zeros(5))) < 1e-3)  # the funnel itself
        True
    """

    target: Target
    base: AbstractDistribution
    parents: Int[Array, " j"]
    children: Int[Array, " c"]
    centre: Float[Array, " c"]
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: None = eqx.field(static=True)

    def __init__(
        self, target: Target, base: AbstractDistribution, parents: ArrayLike, centre: ArrayLike
    ):
        dim, rows = target.dim, np.asarray(parents, int).ravel()
        inside = len(set(rows.tolist())) == rows.size and (rows >= 0).all() and (rows < dim).all()
        check(
            inside and 0 < rows.size < dim,
            f"parents must be some of {dim} coordinates, each once, got {rows.tolist()}",
        )
        check(
            base.shape == (rows.size,),
            f"base must be a distribution of {rows.size} parents, got shape {base.shape}",
        )
        others = np.setdiff1d(np.arange(dim), rows)
        self.target, self.base = target, base
        self.parents, self.children = jnp.asarray(rows), jnp.asarray(others)
        self.centre = jnp.asarray(np.asarray(centre, float)[others], jnp.result_type(float))
        self.shape, self.cond_shape = (dim,), None

    def joined(self, parents: Array, children: Array) -> Array:
        """The whole vector."""
        x = jnp.zeros(self.shape, parents.dtype).at[self.parents].set(parents)
        return x.at[self.children].set(children.astype(parents.dtype))

    def conditional(self, parents: Array) -> tuple[Array, Array]:
        """m and the lower factor L of `P = L Lᵀ`, given the parents."""

        def log_density(children: Array) -> Array:
            return jnp.asarray(self.target.log_density(self.joined(parents, children)))

        centre = self.centre.astype(parents.dtype)
        slope, curvature = jax.grad(log_density)(centre), jax.hessian(log_density)(centre)
        factor = lower_factor(-0.5 * (curvature + curvature.T))
        return centre + solve_upper(factor, solve_lower(factor, slope)), factor

    def log_marginal(self, parents: Array) -> Array:
        """`log p(x_J, m) - ½ log |P / 2π|`: the parents' log density, exact if p is normal."""
        mean, factor = self.conditional(parents)
        height = jnp.asarray(self.target.log_density(self.joined(parents, mean)), parents.dtype)
        return height - _log_scale(factor)

    def _log_prob(self, x: Array, condition: Array | None = None) -> Array:
        parents, children = x[self.parents], x[self.children]
        mean, factor = self.conditional(parents)
        white = factor.T @ (children - mean)
        return self.base.log_prob(parents) + _log_scale(factor) - 0.5 * jnp.sum(white**2)

    def _sample(self, key: Key[Array, ""], condition: Array | None = None) -> Array:
        key_parents, key_children = jr.split(key)
        parents = self.base.sample(key_parents)
        mean, factor = self.conditional(parents)
        noise = jr.normal(key_children, mean.shape, mean.dtype)
        return self.joined(parents, mean + solve_upper(factor, noise))


def evaluations_within(law: AbstractDistribution) -> int:
    """Density evaluations that one draw or one log density of a distribution takes.

    A hierarchy takes a gradient, which counts as three, and a Hessian, three per child; other
    distributions, unless they are made of hierarchies, take none.
    """
    parts = jax.tree.leaves(law, is_leaf=lambda part: isinstance(part, Hierarchical))
    found = [part for part in parts if isinstance(part, Hierarchical)]
    return sum(3 * (1 + len(part.children)) for part in found)


def _log_scale(factor: Array) -> Array:
    """`½ log |P / 2π|` of `P = L Lᵀ`."""
    return jnp.sum(jnp.log(jnp.diagonal(factor))) - 0.5 * len(factor) * np.log(2 * np.pi)


# Under `vmap` over chains, LAPACK's factorisations can wait for each other (`_xla/lapack.py`);
# these use plain products, one column at a time.


def lower_factor(matrix: Array) -> Array:
    """The Cholesky factor of a positive definite matrix; NaN for any other."""
    rows = jnp.arange(len(matrix))

    def column(factor: Array, j: Array) -> tuple[Array, None]:
        rest = matrix[:, j] - factor @ factor[j]
        values = jnp.where(rows >= j, rest / jnp.sqrt(rest[j]), 0.0)
        return factor.at[:, j].set(values), None

    return jax.lax.scan(column, jnp.zeros_like(matrix), rows)[0]


def solve_lower(factor: Array, right: Array) -> Array:
    """`L⁻¹ b`."""

    def row(solved: Array, i: Array) -> tuple[Array, None]:
        return solved.at[i].set((right[i] - factor[i] @ solved) / factor[i, i]), None

    return jax.lax.scan(row, jnp.zeros_like(right), jnp.arange(len(right)))[0]


def solve_upper(factor: Array, right: Array) -> Array:
    """`L⁻ᵀ b`."""

    def row(solved: Array, i: Array) -> tuple[Array, None]:
        return solved.at[i].set((right[i] - factor[:, i] @ solved) / factor[i, i]), None

    return jax.lax.scan(row, jnp.zeros_like(right), jnp.arange(len(right)), reverse=True)[0]

"""Priors of numbers between bounds, of angles and of vectors with sum 1."""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy import stats
from jax.scipy.special import gammaln, i0e
from jaxtyping import Array, Key

from involutive.core.errors import check
from involutive.core.types import ArrayLike
from involutive.targets.declare import DimsLike, Parameter, ShapeLike, as_dims, as_shape, between
from involutive.targets.priors.independent import Independent, numbers
from involutive.targets.supports import AbstractSupport, Angle, Shape, Simplex

GRID = 2001  # places at which the von Mises distribution function is tabulated; a guess


def Uniform(
    low: ArrayLike = 0.0,
    high: ArrayLike = 1.0,
    *,
    shape: ShapeLike | None = None,
    dims: DimsLike = None,
) -> Parameter:
    """The uniform distribution between two bounds.

    Args:
        low: the lower bound.
        high: the upper bound.
        shape: the shape of the value; by default that of the bounds.
        dims: names of its axes, for ArviZ.

    Returns:
        The parameter with its prior, to be named in `Parameters`.

    Raises:
        InputError: if a lower bound is not below its upper bound.

    Example:
        >>> import involutive as inv
        >>> inv.Parameters(x=inv.Uniform(-5, 5)).names
        ('x',)
    """
    ends = numbers("Uniform", (), {"low": low, "high": high})
    check(
        bool(np.all(ends[0] < ends[1])),
        f"low of Uniform must be below high, got low={low} and high={high}",
    )
    return Independent("Uniform", partial(between, *ends), _uniform, _uniform_draws)(
        shape, dims, low=low, high=high
    )


def Beta(
    a: ArrayLike, b: ArrayLike, *, shape: ShapeLike | None = None, dims: DimsLike = None
) -> Parameter:
    """The beta distribution, proportional to `x^(a - 1) (1 - x)^(b - 1)`.

    Args:
        a: the exponent of x, plus 1.
        b: the exponent of 1 - x, plus 1.
        shape: the shape of the value; by default that of the arguments.
        dims: names of its axes, for ArviZ.

    Returns:
        The parameter with its prior, to be named in `Parameters`.

    Example:
        >>> import involutive as inv
        >>> inv.Parameters(p=inv.Beta(2, 3)).names
        ('p',)
    """
    return _BETA(shape, dims, a=a, b=b)


def VonMises(
    loc: ArrayLike = 0.0,
    concentration: ArrayLike = 1.0,
    *,
    shape: ShapeLike | None = None,
    dims: DimsLike = None,
) -> Parameter:
    """The von Mises distribution of an angle, proportional to `exp(concentration cos(x - loc))`.

    Args:
        loc: its direction.
        concentration: about one over its variance.
        shape: the shape of the value; by default that of the arguments.
        dims: names of its axes, for ArviZ.

    Returns:
        The parameter with its prior, to be named in `Parameters`.

    Example:
        >>> import involutive as inv
        >>> inv.Parameters(phi=inv.VonMises(0, 2)).names
        ('phi',)
    """
    return _VONMISES(shape, dims, loc=loc, concentration=concentration)


def Dirichlet(
    concentration: ArrayLike, *, shape: ShapeLike = (), dims: DimsLike = None
) -> Parameter:
    """The Dirichlet distribution of vectors with sum 1, proportional to `Π x_k^(c_k - 1)`.

    Args:
        concentration: the vector c, of at least two positive numbers.
        shape: how many vectors; the value has shape `(*shape, len(c))`.
        dims: names of all axes, for ArviZ.

    Returns:
        The parameter with its prior, to be named in `Parameters`.

    Raises:
        InputError: if the concentration is no vector of at least two positive numbers.

    Example:
        >>> import involutive as inv
        >>> inv.Parameters(w=inv.Dirichlet([1, 1, 2])).dim
        2
    """
    found = numbers("Dirichlet", ("concentration",), {"concentration": concentration})[0]
    check(
        found.ndim == 1 and found.size >= 2,
        f"concentration of Dirichlet must be a vector of at least 2 numbers, got {concentration}",
    )
    lead, count = as_shape(shape), found.size

    def log_prob(value: Array) -> Array:
        powers = jnp.broadcast_to(jnp.asarray(found, value.dtype), value.shape)
        constant = gammaln(found.sum()) - np.sum(gammaln(found))
        return jnp.sum((powers - 1) * jnp.log(value)) + np.prod(lead) * constant

    def sample(key: Key[Array, ""]) -> Array:
        return jr.dirichlet(key, jnp.asarray(found, float), lead)

    given = f"Dirichlet({found.tolist()})"
    return Parameter(Simplex((*lead, count)), as_dims(dims), log_prob, sample, given)


def _uniform(x: Array, low: Array, high: Array) -> Array:
    return -jnp.log(high - low) + 0 * x


def _uniform_draws(key: Key[Array, ""], shape: Shape, low: Array, high: Array) -> Array:
    return low + (high - low) * jr.uniform(key, shape)


def _unit(shape: Shape) -> AbstractSupport:
    return between(np.zeros(()), np.ones(()), shape)


def _von_mises(x: Array, loc: Array, k: Array) -> Array:
    return k * (jnp.cos(x - loc) - 1) - jnp.log(2 * jnp.pi * i0e(k))


def _von_mises_draws(key: Key[Array, ""], shape: Shape, loc: Array, k: Array) -> Array:
    """Invert the distribution function on a grid of the circle, around the direction."""
    half = jnp.minimum(jnp.pi, 12.0 / jnp.sqrt(k))  # beyond it nothing is left in double precision
    grid = jnp.linspace(-1.0, 1.0, GRID)

    def one(u: Array, loc: Array, k: Array, half: Array) -> Array:
        x = half * grid
        mass = jnp.exp(k * (jnp.cos(x) - 1))
        below = jnp.concatenate([jnp.zeros(1), jnp.cumsum(0.5 * (mass[1:] + mass[:-1]))])
        return loc + jnp.interp(u * below[-1], below, x)

    u = jr.uniform(key, shape)
    flat = [jnp.ravel(jnp.broadcast_to(part, shape)) for part in (u, loc, k, half)]
    turned = jax.vmap(one)(*flat).reshape(shape)
    return jnp.mod(turned + jnp.pi, 2 * jnp.pi) - jnp.pi


_BETA = Independent(
    "Beta",
    _unit,
    stats.beta.logpdf,
    lambda key, n, a, b: jr.beta(key, a, b, n),
    positive=("a", "b"),
)
_VONMISES = Independent(
    "VonMises", Angle, _von_mises, _von_mises_draws, positive=("concentration",)
)

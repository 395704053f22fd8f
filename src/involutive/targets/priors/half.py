"""Priors of positive numbers."""

import jax.numpy as jnp
import jax.random as jr
from jax.scipy import stats

from involutive.core.types import ArrayLike
from involutive.targets.declare import DimsLike, Parameter, ShapeLike
from involutive.targets.priors.independent import Independent
from involutive.targets.supports import Half

_HALFNORMAL = Independent(
    "HalfNormal",
    Half,
    lambda x, s: jnp.log(2.0) + stats.norm.logpdf(x, 0.0, s),
    lambda key, n, s: jnp.abs(s * jr.normal(key, n)),
    positive=("scale",),
)
_LOGNORMAL = Independent(
    "LogNormal",
    Half,
    lambda x, m, s: stats.norm.logpdf(jnp.log(x), m, s) - jnp.log(x),
    lambda key, n, m, s: jnp.exp(m + s * jr.normal(key, n)),
    positive=("scale",),
)
_EXPONENTIAL = Independent(
    "Exponential",
    Half,
    lambda x, r: jnp.log(r) - r * x,
    lambda key, n, r: jr.exponential(key, n) / r,
    positive=("rate",),
)
_GAMMA = Independent(
    "Gamma",
    Half,
    lambda x, a, r: stats.gamma.logpdf(r * x, a) + jnp.log(r),
    lambda key, n, a, r: jr.gamma(key, a, n) / r,
    positive=("concentration", "rate"),
)
_HALFCAUCHY = Independent(
    "HalfCauchy",
    Half,
    lambda x, s: jnp.log(2.0) + stats.cauchy.logpdf(x, 0.0, s),
    lambda key, n, s: jnp.abs(s * jr.cauchy(key, n)),
    positive=("scale",),
)


def HalfNormal(
    scale: ArrayLike = 1.0, *, shape: ShapeLike | None = None, dims: DimsLike = None
) -> Parameter:
    """The absolute value of N(0, scale²).

    Args:
        scale: the sd of that normal.
        shape: the shape of the value; by default that of the arguments.
        dims: names of its axes, for ArviZ.

    Returns:
        The parameter with its prior, to be named in `Parameters`.

    Example:
        >>> import involutive as inv
        >>> inv.Parameters(sigma=inv.HalfNormal(2)).names
        ('sigma',)
    """
    return _HALFNORMAL(shape, dims, scale=scale)


def LogNormal(
    loc: ArrayLike = 0.0,
    scale: ArrayLike = 1.0,
    *,
    shape: ShapeLike | None = None,
    dims: DimsLike = None,
) -> Parameter:
    """The exponential of N(loc, scale²).

    Args:
        loc: the mean of the logarithm.
        scale: the sd of the logarithm.
        shape: the shape of the value; by default that of the arguments.
        dims: names of its axes, for ArviZ.

    Returns:
        The parameter with its prior, to be named in `Parameters`.

    Example:
        >>> import involutive as inv
        >>> inv.Parameters(rate=inv.LogNormal(0, 1)).names
        ('rate',)
    """
    return _LOGNORMAL(shape, dims, loc=loc, scale=scale)


def Exponential(
    rate: ArrayLike = 1.0, *, shape: ShapeLike | None = None, dims: DimsLike = None
) -> Parameter:
    """The exponential distribution `rate exp(-rate x)`.

    Args:
        rate: one over its mean.
        shape: the shape of the value; by default that of the arguments.
        dims: names of its axes, for ArviZ.

    Returns:
        The parameter with its prior, to be named in `Parameters`.

    Example:
        >>> import involutive as inv
        >>> inv.Parameters(tau=inv.Exponential(2)).names
        ('tau',)
    """
    return _EXPONENTIAL(shape, dims, rate=rate)


def Gamma(
    concentration: ArrayLike,
    rate: ArrayLike = 1.0,
    *,
    shape: ShapeLike | None = None,
    dims: DimsLike = None,
) -> Parameter:
    """The gamma distribution, proportional to `x^(concentration - 1) exp(-rate x)`.

    Args:
        concentration: its shape.
        rate: one over its scale.
        shape: the shape of the value; by default that of the arguments.
        dims: names of its axes, for ArviZ.

    Returns:
        The parameter with its prior, to be named in `Parameters`.

    Example:
        >>> import involutive as inv
        >>> inv.Parameters(k=inv.Gamma(2, 3)).names
        ('k',)
    """
    return _GAMMA(shape, dims, concentration=concentration, rate=rate)


def HalfCauchy(
    scale: ArrayLike = 1.0, *, shape: ShapeLike | None = None, dims: DimsLike = None
) -> Parameter:
    """The absolute value of a Cauchy distribution around 0.

    Args:
        scale: its median.
        shape: the shape of the value; by default that of the arguments.
        dims: names of its axes, for ArviZ.

    Returns:
        The parameter with its prior, to be named in `Parameters`.

    Example:
        >>> import involutive as inv
        >>> inv.Parameters(tau=inv.HalfCauchy(5)).names
        ('tau',)
    """
    return _HALFCAUCHY(shape, dims, scale=scale)

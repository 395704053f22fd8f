"""Priors of real numbers."""

import jax.random as jr
from jax.scipy import stats

from involutive.core.types import ArrayLike
from involutive.targets.declare import DimsLike, Parameter, ShapeLike
from involutive.targets.priors.independent import Independent
from involutive.targets.supports import Line

_NORMAL = Independent(
    "Normal",
    Line,
    stats.norm.logpdf,
    lambda key, n, m, s: m + s * jr.normal(key, n),
    positive=("scale",),
)
_STUDENTT = Independent(
    "StudentT",
    Line,
    stats.t.logpdf,
    lambda key, n, df, m, s: m + s * jr.t(key, df, n),
    positive=("df", "scale"),
)
_CAUCHY = Independent(
    "Cauchy",
    Line,
    stats.cauchy.logpdf,
    lambda key, n, m, s: m + s * jr.cauchy(key, n),
    positive=("scale",),
)


def Normal(
    loc: ArrayLike = 0.0,
    scale: ArrayLike = 1.0,
    *,
    shape: ShapeLike | None = None,
    dims: DimsLike = None,
) -> Parameter:
    """The normal distribution N(loc, scale²).

    Args:
        loc: its mean.
        scale: its sd.
        shape: the shape of the value; by default that of the arguments.
        dims: names of its axes, for ArviZ.

    Returns:
        The parameter with its prior, to be named in `Parameters`.

    Example:
        >>> import involutive as inv
        >>> inv.Parameters(mu=inv.Normal(0, 5)).names
        ('mu',)
    """
    return _NORMAL(shape, dims, loc=loc, scale=scale)


def StudentT(
    df: ArrayLike,
    loc: ArrayLike = 0.0,
    scale: ArrayLike = 1.0,
    *,
    shape: ShapeLike | None = None,
    dims: DimsLike = None,
) -> Parameter:
    """Student's t distribution with `df` degrees of freedom.

    Args:
        df: degrees of freedom.
        loc: its centre.
        scale: its scale.
        shape: the shape of the value; by default that of the arguments.
        dims: names of its axes, for ArviZ.

    Returns:
        The parameter with its prior, to be named in `Parameters`.

    Example:
        >>> import involutive as inv
        >>> inv.Parameters(x=inv.StudentT(4)).names
        ('x',)
    """
    return _STUDENTT(shape, dims, df=df, loc=loc, scale=scale)


def Cauchy(
    loc: ArrayLike = 0.0,
    scale: ArrayLike = 1.0,
    *,
    shape: ShapeLike | None = None,
    dims: DimsLike = None,
) -> Parameter:
    """The Cauchy distribution.

    Args:
        loc: its median.
        scale: half its interquartile range.
        shape: the shape of the value; by default that of the arguments.
        dims: names of its axes, for ArviZ.

    Returns:
        The parameter with its prior, to be named in `Parameters`.

    Example:
        >>> import involutive as inv
        >>> inv.Parameters(x=inv.Cauchy(0, 1)).names
        ('x',)
    """
    return _CAUCHY(shape, dims, loc=loc, scale=scale)

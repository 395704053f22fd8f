"""Declared parameters: a support for each, with the shape and the names of its axes.

Each function returns a `Parameter`, to be named in `Parameters(...)`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from involutive.core.errors import InputError, check, check_count
from involutive.core.types import ArrayLike
from involutive.targets.supports import (
    AbstractSupport,
    Angle,
    Half,
    Interval,
    Line,
    Ordered,
    Shape,
    Simplex,
)

ShapeLike = int | Sequence[int]
DimsLike = str | Sequence[str] | None


@dataclass(frozen=True, eq=False)
class Parameter:
    """A support, the names of the value's axes, and a prior where there is one.

    Attributes:
        support: how the value is made of unconstrained numbers.
        dims: names of its axes, for ArviZ.
        log_prob: the log density of the prior at a value; None without a prior.
        draw: `key -> value`, a draw of the prior; None without a prior.
        given: as the user wrote it, for messages.
    """

    support: AbstractSupport
    dims: tuple[str, ...] = ()
    log_prob: Callable[[Any], Any] | None = None
    draw: Callable[[Any], Any] | None = None
    given: str = ""

    def __post_init__(self) -> None:
        axes = len(self.support.shape)
        check(
            len(self.dims) in (0, axes),
            f"dims must name each of the {axes} axes of shape {self.support.shape}, got "
            f"{self.dims}; give shape= and dims= of one length",
        )

    @property
    def shape(self) -> Shape:
        """The shape of the value."""
        return self.support.shape

    def __repr__(self) -> str:
        return self.given or f"{type(self.support).__name__.lower()}{self.shape or ''}"


def real(*, shape: ShapeLike = (), dims: DimsLike = None) -> Parameter:
    """Declare real numbers.

    Args:
        shape: the shape of the value; a scalar by default.
        dims: names of its axes, for ArviZ: one, or one for each axis.

    Returns:
        The parameter, to be named in `Parameters`.

    Raises:
        InputError: if `shape` does not consist of positive whole numbers, or `dims` of names.

    Example:
        >>> import involutive as inv
        >>> inv.Parameters(mu=inv.real(shape=8, dims="school")).dim
        8
    """
    return Parameter(Line(as_shape(shape)), as_dims(dims))


def positive(*, shape: ShapeLike = (), dims: DimsLike = None) -> Parameter:
    """Declare positive numbers, sampled as their logarithms.

    Args:
        shape: the shape of the value; a scalar by default.
        dims: names of its axes, for ArviZ.

    Returns:
        The parameter, to be named in `Parameters`.

    Raises:
        InputError: if `shape` does not consist of positive whole numbers, or `dims` of names.

    Example:
        >>> import involutive as inv, jax.numpy as jnp
        >>> float(inv.Parameters(sigma=inv.positive()).constrain(jnp.zeros(1))["sigma"])
        1.0
    """
    return Parameter(Half(as_shape(shape)), as_dims(dims))


def interval(
    low: ArrayLike, high: ArrayLike, *, shape: ShapeLike | None = None, dims: DimsLike = None
) -> Parameter:
    """Declare numbers between two bounds; either may be infinite.

    Args:
        low: the lower bound, a number or an array.
        high: the upper bound.
        shape: the shape of the value; by default that of the bounds.
        dims: names of its axes, for ArviZ.

    Returns:
        The parameter, to be named in `Parameters`.

    Raises:
        InputError: if a lower bound is not below its upper bound.

    Example:
        >>> import involutive as inv, jax.numpy as jnp
        >>> float(inv.Parameters(p=inv.interval(0, 1)).constrain(jnp.zeros(1))["p"])
        0.5
    """
    bounds = [_numbers(name, end) for name, end in (("low", low), ("high", high))]
    check(
        bool(np.all(bounds[0] < bounds[1])),
        f"low of an interval must be below high, got low={low} and high={high}",
    )
    found = as_shape(np.broadcast_shapes(*(b.shape for b in bounds)) if shape is None else shape)
    return Parameter(between(bounds[0], bounds[1], found), as_dims(dims))


def angle(
    low: float | int = -math.pi,
    high: float | int = math.pi,
    *,
    shape: ShapeLike = (),
    dims: DimsLike = None,
) -> Parameter:
    """Declare numbers on a circle: `low` and `high` are the same point, and there is no seam.

    It is sampled as the direction of a point of the plane, which takes two coordinates. Its mean,
    R-hat and ESS are those of a direction.

    Args:
        low: where the circle is cut to write it as a number.
        high: the same point, one turn further.
        shape: the shape of the value; a scalar by default.
        dims: names of its axes, for ArviZ.

    Returns:
        The parameter, to be named in `Parameters`.

    Raises:
        InputError: if the ends are not finite or `low` is not below `high`.

    Example:
        >>> import involutive as inv, jax.numpy as jnp
        >>> float(inv.Parameters(phi=inv.angle()).constrain(jnp.array([1.0, 0.0]))["phi"])
        0.0
    """
    ends = [float(_numbers(name, end)) for name, end in (("low", low), ("high", high))]
    check(
        np.isfinite(ends).all() and ends[0] < ends[1],
        f"the ends of an angle must be finite and low below high, got low={low} and high={high}",
    )
    return Parameter(Angle(as_shape(shape), *ends), as_dims(dims))


def simplex(count: int, *, shape: ShapeLike = (), dims: DimsLike = None) -> Parameter:
    """Declare vectors of `count` positive numbers with sum 1, such as the weights of a mixture.

    Args:
        count: how many numbers a vector has, at least 2.
        shape: how many vectors; the value has shape `(*shape, count)`.
        dims: names of all axes, for ArviZ.

    Returns:
        The parameter, to be named in `Parameters`.

    Raises:
        InputError: if `count` is not a whole number of at least 2, `shape` does not consist of
            positive whole numbers, or `dims` of names.

    Example:
        >>> import involutive as inv
        >>> inv.Parameters(w=inv.simplex(3)).dim
        2
    """
    check_count("count of a simplex", count, least=2)
    return Parameter(Simplex((*as_shape(shape), int(count))), as_dims(dims))


def ordered(count: int, *, shape: ShapeLike = (), dims: DimsLike = None) -> Parameter:
    """Declare vectors of `count` increasing numbers, such as cut points.

    Args:
        count: how many numbers a vector has, at least 2.
        shape: how many vectors; the value has shape `(*shape, count)`.
        dims: names of all axes, for ArviZ.

    Returns:
        The parameter, to be named in `Parameters`.

    Raises:
        InputError: if `count` is not a whole number of at least 2, `shape` does not consist of
            positive whole numbers, or `dims` of names.

    Example:
        >>> import involutive as inv, jax.numpy as jnp
        >>> inv.Parameters(cut=inv.ordered(3)).constrain(jnp.zeros(3))["cut"].tolist()
        [0.0, 1.0, 2.0]
    """
    check_count("count of ordered numbers", count, least=2)
    return Parameter(Ordered((*as_shape(shape), int(count))), as_dims(dims))


def between(low: np.ndarray, high: np.ndarray, shape: Shape) -> AbstractSupport:
    """The support from `low` to `high`, whose infinite ends are numbers, not arrays."""
    if np.isfinite(low).all() and np.isfinite(high).all():
        low_end, high_end = (jnp.broadcast_to(jnp.asarray(b, float), shape) for b in (low, high))
        return Interval(low=low_end, high=high_end, shape=shape)
    check(
        low.ndim == 0 and high.ndim == 0,
        f"an infinite bound must be one number, got bounds of shapes {low.shape} and {high.shape}; "
        "declare parameters of different supports apart",
    )
    if np.isfinite(low):
        return Half(shape, float(low))
    return Half(shape, float(high), -1.0) if np.isfinite(high) else Line(shape)


def as_shape(shape: ShapeLike) -> Shape:
    """A shape as a tuple of whole numbers."""
    sizes = (shape,) if isinstance(shape, int) or not hasattr(shape, "__iter__") else tuple(shape)
    return tuple(check_count("every size of shape", size) for size in sizes)


def as_dims(dims: DimsLike) -> tuple[str, ...]:
    """Names of axes as a tuple; one name stands for one axis."""
    names = () if dims is None else (dims,) if isinstance(dims, str) else tuple(dims)
    check(all(isinstance(n, str) for n in names), f"dims must be names of axes, got {dims!r}")
    return names


def _numbers(name: str, value: ArrayLike) -> np.ndarray:
    try:
        return np.asarray(value, float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a number or an array, got {value!r}") from error

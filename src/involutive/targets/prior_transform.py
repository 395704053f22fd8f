"""A prior given as a transform of the unit cube, as dynesty, UltraNest and nautilus have it.

With u = Φ(z) in every coordinate and z ~ N(0, I), `prior_transform(u)` is a draw of the prior, so
the density of z is `likelihood(prior_transform(Φ(z))) N(z; 0, I)`: no Jacobian is needed, and X is
N(0, I). A periodic coordinate is the direction of a point of the plane instead, u in turns. A
reflective one needs nothing: Φ never reaches the walls of the cube.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from involutive.core.errors import InputError, check, check_count
from involutive.core.text import first_line
from involutive.targets.declare import Parameter
from involutive.targets.names import check_names
from involutive.targets.parameters import Parameters
from involutive.targets.supports import Angle, UnitCube
from involutive_worker import Transformed


class Cube(NamedTuple):
    """What a target of a prior transform is made of."""

    log_density: Callable[..., Any]
    parameters: Parameters
    constrain: Callable[[Array], dict[str, Array]]
    periods: dict[str, tuple[float, float]]


def cube(
    log_likelihood: Callable[..., Any],
    prior_transform: Callable[..., Any],
    dim: int,
    *,
    names: Sequence[str] | None,
    backend: str,
    periodic: Sequence[int] | None,
    reflective: Sequence[int] | None,
    vectorized: bool,
) -> Cube:
    """Take a log likelihood and a prior transform apart into declared coordinates of the cube."""
    for name, function in (
        ("log_likelihood", log_likelihood),
        ("prior_transform", prior_transform),
    ):
        check(callable(function), f"{name} must be a function, got {type(function).__name__}")
    dim = check_count("dim", dim)
    turning = _places("periodic", periodic, dim)
    shared = turning & _places("reflective", reflective, dim)
    check(not shared, f"a coordinate must be periodic or reflective, got both for {sorted(shared)}")
    middle = _transformed(prior_transform, np.full(dim, 0.5), vectorized)
    found = _names(names, len(middle))
    even = lambda u: jnp.zeros((), u.dtype)  # noqa: E731
    entries = {
        f"u[{i}]": Parameter(Angle((), 0.0, 1.0) if i in turning else UnitCube(()), (), even)
        for i in range(dim)
    }
    parameters = Parameters(entries)
    reported = _Reported(prior_transform, found, backend, vectorized)
    periods = {}
    for i in turning & set(range(len(middle))):
        ends = [np.full(dim, 0.5) for _ in range(2)]
        ends[0][i], ends[1][i] = 0.0, 1.0
        low, high = (float(_transformed(prior_transform, u, vectorized)[i]) for u in ends)
        if np.isfinite([low, high]).all() and low < high:
            periods[found[i]] = (low, high)
    return Cube(Transformed(log_likelihood, prior_transform), parameters, reported, periods)


class _Reported:
    """The physical values, by name, of one point of the cube."""

    def __init__(self, transform: Callable[..., Any], names: list[str], backend: str, many: bool):
        self.transform, self.names = transform, names
        self.backend, self.many = backend, many

    def __call__(self, u: Array) -> dict[str, Array]:
        if self.backend == "jax":
            values = jnp.asarray(self.transform(u))
        else:
            like = jax.ShapeDtypeStruct((len(self.names),), u.dtype)
            values = jax.pure_callback(self._host, like, u, vmap_method="expand_dims")
        return {name: values[i] for i, name in enumerate(self.names)}

    def _host(self, u: Array | np.ndarray) -> np.ndarray:
        points = np.asarray(u)
        rows = points.reshape(-1, points.shape[-1]).astype(float)
        if self.many:
            values = np.asarray(self.transform(rows.copy()))
        else:
            values = np.stack([np.asarray(self.transform(row.copy()), float) for row in rows])
        return values.reshape(*points.shape[:-1], -1).astype(points.dtype)


def _transformed(transform: Callable[..., Any], u: np.ndarray, many: bool) -> np.ndarray:
    """The transform at one point of the cube."""
    try:
        values = np.asarray(transform(u[None].copy() if many else u.copy()), float)
    except Exception as error:
        raise InputError(
            f"prior_transform must map a point of the unit cube to parameters, but at "
            f"{u.tolist()} it raised {type(error).__name__}: {first_line(error)}"
        ) from error
    values = values[0] if many and values.ndim == 2 else values
    check(
        values.ndim == 1 and np.isfinite(values[:0]).all(),
        f"prior_transform must return one vector of parameters, got shape {values.shape}",
    )
    return values


def _names(names: Sequence[str] | None, count: int) -> list[str]:
    check(
        not isinstance(names, str),
        f"names must be a list of names, one for each parameter, got the text {names!r}",
    )
    found = [f"theta_{i}" for i in range(count)] if names is None else list(names)
    check_names(found)
    check(
        len(found) == count and len(set(found)) == count,
        f"names must be {count} different ones, one for each parameter that prior_transform "
        f"returns, got {found}",
    )
    return found


def _places(name: str, places: Sequence[int] | None, dim: int) -> set[int]:
    given = list(() if places is None else places)
    marked = [i for i, mark in enumerate(given) if mark]
    check(
        not any(isinstance(mark, bool | np.bool_) for mark in given),
        f"{name} must be indices of coordinates, got a list of truth values; pass {name}={marked}",
    )
    check(
        all(hasattr(place, "__index__") for place in given),
        f"{name} must be indices of coordinates from 0 to {dim - 1}, got {given}",
    )
    found = set(given)
    check(
        all(0 <= place < dim for place in found),
        f"{name} must be indices of coordinates from 0 to {dim - 1}, got {sorted(found)}",
    )
    return found

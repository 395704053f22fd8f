"""Declared parameters: names, supports, priors and the one flat vector behind them.

With `value = T(u)` for every parameter, the density that is sampled is

    log p(u) = log f(values) + Σ [log prior(value)] + Σ log |det DT(u)|,

where f is what the user gives: a density of the values, or the likelihood where parameters have
priors. X, the distribution to start from, is the prior; a parameter without one has the start of
its support.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Float, Key, Scalar

from involutive.core.errors import check
from involutive.targets.declare import Parameter
from involutive.targets.foreign import as_parameter
from involutive.targets.names import check_names

GivenT = TypeVar("GivenT")
Vector = Float[Array, " dim"]


class Parameters:
    """Named parameters, each with a support or a prior, in the order given.

    Args:
        declared: a mapping of names to declarations, for names that are not Python identifiers.
        coords: the labels along named axes, for ArviZ: `{"school": ["A", "B"]}`.
        named: a support (`inv.real()`, `inv.positive()`, `inv.interval(0, 1)`, `inv.angle()`,
            `inv.simplex(3)`, `inv.ordered(4)`), a prior (`inv.Normal(0, 5)`), or a distribution
            of NumPyro, FlowJAX or SciPy, under each name.

    Attributes:
        names: the names, in order.
        dim: the number of unconstrained coordinates of all parameters together.

    Raises:
        InputError: if there is no parameter, or one is declared by something else.

    Example:
        >>> import involutive as inv
        >>> parameters = inv.Parameters(mu=inv.real(), sigma=inv.positive(), phi=inv.angle())
        >>> parameters.names, parameters.dim
        (('mu', 'sigma', 'phi'), 4)
    """

    def __init__(
        self,
        declared: Mapping[str, object] | None = None,
        /,
        *,
        coords: Mapping[str, Any] | None = None,
        **named: object,
    ):
        every = {**dict(declared or {}), **named}
        check(every, "Parameters must declare at least one parameter, got none")
        strange = [name for name in every if not isinstance(name, str)]
        check(not strange, f"names of parameters must be strings, got {strange[:3]}")
        self.entries = {name: as_parameter(name, given) for name, given in every.items()}
        self.names = tuple(self.entries)
        self.coords = dict(coords or {})
        self._slices, self.dim = dict[str, slice](), 0
        for name, entry in self.entries.items():
            self._slices[name] = slice(self.dim, self.dim + entry.support.size)
            self.dim += entry.support.size
        check_names(self.names, [axis for axes in self.dims.values() for axis in axes])
        self._check_coords()

    @property
    def dims(self) -> dict[str, tuple[str, ...]]:
        """The names of the axes of every parameter that has them."""
        return {name: entry.dims for name, entry in self.entries.items() if entry.dims}

    @property
    def periods(self) -> dict[str, tuple[float, float]]:
        """The ends of the circle of every angle."""
        found = {name: entry.support.period for name, entry in self.entries.items()}
        return {name: ends for name, ends in found.items() if ends is not None}

    @property
    def have_priors(self) -> bool:
        """Whether every parameter has a prior."""
        return all(entry.log_prob is not None for entry in self.entries.values())

    def constrain(self, x: Vector) -> dict[str, Array]:
        """Return the values, by name, of one flat unconstrained vector."""
        return self.values_and_log_term(x)[0]

    def values_and_log_term(self, x: Vector) -> tuple[dict[str, Array], Scalar]:
        """Return the values, and the log prior plus the log-Jacobian at them."""
        values, total = {}, jnp.zeros((), x.dtype)
        for name, entry in self.entries.items():
            values[name], log_det = entry.support.constrain(x[self._slices[name]])
            total = total + log_det
            if entry.log_prob is not None:
                total = total + entry.log_prob(values[name])
        return values, total

    def unconstrain(self, values: Mapping[str, Any], key: Key[Array, ""] | None = None) -> Vector:
        """Return one flat vector with those values.

        Args:
            values: every parameter by name.
            key: for angles, whose values say a direction and no radius; a fixed key by default.

        Returns:
            A vector x with `constrain(x) == values`.

        Raises:
            InputError: if names or shapes differ from those declared.
        """
        check(
            set(values) == set(self.names),
            f"values must be of {', '.join(self.names)}, got {', '.join(map(str, values))}",
        )
        keys = jr.split(jr.key(0) if key is None else key, len(self.names))
        parts = []
        for (name, entry), key_part in zip(self.entries.items(), keys, strict=True):
            value = jnp.asarray(values[name], float)
            check(
                value.shape == entry.shape,
                f"{name} must have shape {entry.shape}, got {value.shape}",
            )
            parts.append(entry.support.unconstrain(value, key_part))
        return jnp.concatenate(parts)

    def coordinate(self, i: int) -> str:
        """Return the name of the parameter that takes a flat coordinate, such as `theta[2]`."""
        name = next(n for n, taken in self._slices.items() if taken.start <= i < taken.stop)
        shape = self.entries[name].shape
        if not shape or math.prod(shape) != self.entries[name].support.size:
            return name
        places = np.unravel_index(i - self._slices[name].start, shape)
        return f"{name}[{', '.join(map(str, places))}]"

    def initial(self) -> "Initial":
        """Return X, the distribution to start from, of the flat vector."""
        return Initial(self)

    def log_prob(self, x: Vector) -> Scalar:
        """Return the log density of X at one flat vector."""
        total = jnp.zeros((), x.dtype)
        for name, entry in self.entries.items():
            u = x[self._slices[name]]
            if entry.log_prob is None:
                total = total + entry.support.start_log_prob(u)
            else:
                value, log_det = entry.support.constrain(u)
                total = total + entry.log_prob(value) + log_det
        return total

    def draw(self, key: Key[Array, ""]) -> Vector:
        """Return one draw of X."""
        parts = []
        keys = jr.split(key, len(self.names))
        for entry, key_part in zip(self.entries.values(), keys, strict=True):
            if entry.draw is None:
                parts.append(entry.support.start(key_part))
                continue
            key_value, key_rest = jr.split(key_part)
            parts.append(entry.support.unconstrain(entry.draw(key_value), key_rest))
        return jnp.concatenate(parts)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, name: str) -> Parameter:
        return self.entries[name]

    def __repr__(self) -> str:
        return f"Parameters({', '.join(f'{n}={e!r}' for n, e in self.entries.items())})"

    def _check_coords(self) -> None:
        sizes = dict[str, int]()
        for name, entry in self.entries.items():
            for axis, size in zip(entry.dims, entry.shape, strict=False):
                check(
                    sizes.setdefault(axis, size) == size,
                    f"every axis called {axis} must have one size, got {sizes[axis]} and, for "
                    f"{name}, {size}; use another name in dims=",
                )
        for axis, places in self.coords.items():
            wanted = sizes.get(axis)
            check(
                wanted in (None, len(places)),
                f"coords of {axis} must have {wanted} places, one along its axis, got "
                f"{len(places)}",
            )


class Initial(AbstractDistribution):
    """X of declared parameters in unconstrained coordinates, as a FlowJAX distribution."""

    parameters: Parameters = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: None = None

    def __init__(self, parameters: Parameters):
        self.parameters, self.shape = parameters, (parameters.dim,)

    def _log_prob(self, x: Array, condition: Array | None = None) -> Array:
        return self.parameters.log_prob(x)

    def _sample(self, key: Key[Array, ""], condition: Array | None = None) -> Array:
        return self.parameters.draw(key)


@runtime_checkable
class HasPriors(Protocol):
    """nautilus's `Prior`: names, and what each is distributed as."""

    @property
    def keys(self) -> list[Any]: ...

    @property
    def dists(self) -> list[Any]: ...


@overload
def as_parameters(given: Mapping[str, Any] | HasPriors) -> Parameters: ...


@overload
def as_parameters(given: GivenT) -> GivenT: ...


def as_parameters(given: object) -> object:
    """A mapping of names, or nautilus's `Prior`, as `Parameters`; anything else as it is."""
    if isinstance(given, Mapping):
        return Parameters(given)
    names, laws = getattr(given, "keys", None), getattr(given, "dists", None)
    if isinstance(names, list) and isinstance(laws, list):
        linked = [name for name, law in zip(names, laws, strict=True) if isinstance(law, str)]
        check(
            not linked,
            f"parameters of a prior must have distributions of their own, but {linked} are linked "
            "to others; use the other's name in the likelihood",
        )
        fixed = [n for n, law in zip(names, laws, strict=True) if isinstance(law, int | float)]
        check(not fixed, f"fixed parameters must be written into the likelihood, got {fixed}")
        return Parameters(dict(zip(names, laws, strict=True)))
    return given

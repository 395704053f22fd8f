"""Targets: an unnormalised log density on R^dim, with exact draws where they are known.

A target is what every sampler here needs and nothing more: `log_density`, a function of one flat
vector. Positions of another shape (a dict of arrays) are flattened inside and restored outside.
Declared parameters (`parameters.py`) are mapped to their supports inside, with the log-Jacobian,
and reported as declared.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.distributions import AbstractDistribution
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, Key

from involutive._xla.lapack import one_by_one
from involutive.core.errors import InputError, check, check_count
from involutive.core.text import first_line
from involutive.targets.by_name import Arguments, OnParameters, arguments_of
from involutive.targets.parameters import Parameters

Vector = Float[Array, " dim"]
LogDensity = Callable[[Any], Any]
Sampler = Callable[[Key[Array, ""], int], Float[Array, "n dim"]]


class Modes(NamedTuple):
    """A partition of space into cells: `label(x)` names the cell, `weights` its exact mass."""

    label: Callable[[Vector], Int[Array, ""]]
    weights: tuple[float, ...]


class Target(eqx.Module):
    """An unnormalised log density on R^dim.

    Args:
        log_density: maps one vector of shape `(dim,)` to a scalar (or, with `like`, a pytree
            shaped as `like`). Constants may be dropped; `-inf` means outside the support.
        dim: the number of coordinates, or `Parameters`: the density then takes constrained values
            by name, `log_density(A=…, sigma=…)`, and the log-Jacobians are added. Parameters with
            priors make it the log likelihood; the log priors are added too.
        like: an example position, for densities of a pytree; `dim` is then counted from it.
        name: shown in reports.
        sample: `(key, n) -> (n, dim)` exact draws, where known.
        modes: a partition with exact masses, where known.
        constrain: maps a flat vector to a dict of named arrays, as results are reported.
        dims, coords: ArviZ's names for the axes of the constrained variables.
        extent: a length that covers the bulk, for pictures.
        arguments: how declared values are passed: "names", "dict" or "vector"; by default by name
            if the density's arguments are the parameters, and as one dict if it has one argument.

    Attributes:
        parameters: the declared parameters, or None.
        initial: X, the distribution to start from, of the flat vector; None where the target knows
            none. With priors it is the prior.

    Raises:
        InputError: if the density does not fit its dimension or its parameters.

    Example:
        >>> import involutive as inv
        >>> parameters = inv.Parameters(mu=inv.Normal(0, 5), sigma=inv.HalfNormal(2))
        >>> target = inv.Target(lambda mu, sigma: -0.5 * ((1.3 - mu) / sigma) ** 2, parameters)
        >>> target.dim, target.initial.shape
        (2, (2,))
    """

    log_density: LogDensity
    dim: int = eqx.field(static=True)
    name: str = eqx.field(static=True)
    sample: Sampler | None = eqx.field(static=True)
    modes: Modes | None = eqx.field(static=True)
    constrain: Callable[[Vector], dict[str, Array]] = eqx.field(static=True)
    extent: float | None = eqx.field(static=True)
    labels: "Labels" = eqx.field(static=True)
    parameters: Parameters | None = eqx.field(static=True)
    initial: AbstractDistribution | None

    def __init__(
        self,
        log_density: LogDensity,
        dim: int | Parameters | None = None,
        *,
        like: Any = None,
        name: str | None = None,
        sample: Sampler | None = None,
        modes: Modes | None = None,
        constrain: Callable[[Vector], dict[str, Array]] | None = None,
        dims: Mapping[str, Sequence[str]] | None = None,
        coords: Mapping[str, Any] | None = None,
        extent: float | None = None,
        arguments: Arguments | None = None,
    ):
        check(
            callable(log_density),
            f"log_density must be a function of one vector, got {type(log_density).__name__}",
        )
        self.parameters = dim if isinstance(dim, Parameters) else None
        self.initial = None
        if self.parameters is not None:
            check(like is None, "like must be left out where parameters are declared, got both")
            self.dim, self.initial = self.parameters.dim, self.parameters.initial()
            how = arguments_of(log_density, self.parameters, arguments)
            self.log_density = OnParameters(log_density, self.parameters, how)
            self.constrain = constrain or self.parameters.constrain
        elif like is None:
            check(dim is not None, "dim must be given (or like=, an example position), got neither")
            self.dim = check_count("dim", dim)
            self.log_density = log_density
            self.constrain = constrain or _as_x
        else:
            flat, restore = ravel_pytree(jax.tree.map(_as_float, like))
            check(flat.size > 0, "like must hold at least one number, got an empty position")
            check(
                dim in (None, flat.size),
                f"dim must match like, which holds {flat.size} numbers, got dim={dim}; drop dim",
            )
            self.dim = int(flat.size)
            self.log_density = _OnPytree(log_density, restore)
            self.constrain = constrain or (lambda x: named_leaves(restore(x)))
        self.name = name or getattr(log_density, "__name__", "target").strip("<>")
        self.sample, self.modes, self.extent = sample, modes, extent
        self.labels = _labels(self.parameters, dims, coords)
        _check_density(self.log_density, self.dim)
        self.log_density = one_by_one(self.log_density, self.dim)

    @property
    def prior(self) -> AbstractDistribution | None:
        """X where it is the prior: every declared parameter has one; else None."""
        have = self.parameters is not None and self.parameters.have_priors
        return self.initial if have else None

    def flatten(self, position: Any) -> Vector:
        """Return a position, flat, shaped as `like`, or declared values by name, as one vector."""
        if self.parameters is not None and isinstance(position, Mapping):
            return self.parameters.unconstrain(position)
        flat = ravel_pytree(jax.tree.map(_as_float, position))[0]
        check(
            flat.shape == (self.dim,),
            f"a position must hold {self.dim} numbers (dim of {self.name}), got {flat.size}",
        )
        return flat


class _OnPytree(eqx.Module):
    """A density of a pytree as a density of its flat vector."""

    log_density: LogDensity
    restore: Callable[[Vector], Any] = eqx.field(static=True)

    def __call__(self, x: Vector) -> Any:
        return self.log_density(self.restore(x))


class Labels:
    """Names of axes and their values for ArviZ; hashed by identity, so that it may be static.

    Attributes:
        periods: the ends of the circle of every variable that is an angle.
        declared: whether the variables are declared parameters, which are judged under their names.
    """

    def __init__(
        self,
        dims: Mapping[str, Sequence[str]] | None,
        coords: Mapping[str, Any] | None,
        periods: Mapping[str, tuple[float, float]] | None = None,
        declared: bool = False,
    ):
        self.dims, self.coords = dict(dims or {}), dict(coords or {})
        self.periods, self.declared = dict(periods or {}), declared


def _labels(
    parameters: Parameters | None,
    dims: Mapping[str, Sequence[str]] | None,
    coords: Mapping[str, Any] | None,
) -> Labels:
    if parameters is not None:
        named = {**parameters.dims, **(dims or {})}
        places = {**parameters.coords, **(coords or {})}
        return Labels(named, places, parameters.periods, declared=True)
    return Labels(dims, coords) if dims or coords else UNNAMED


UNNAMED = Labels(None, None)  # one, so that targets which differ in arrays only compile once


def _as_float(leaf: Any) -> Array:
    return jnp.asarray(leaf, dtype=float)


def _as_x(x: Vector) -> dict[str, Array]:
    return {"x": x}


def named_leaves(position: Any) -> dict[str, Array]:
    """Return a pytree's leaves by name: `{"a": {"b": 1.0}}` gives `{"a.b": 1.0}`."""
    leaves = jax.tree_util.tree_leaves_with_path(position)

    def part(entry: Any) -> str:
        return str(getattr(entry, "key", getattr(entry, "name", getattr(entry, "idx", entry))))

    return {".".join(map(part, path)) or "x": leaf for path, leaf in leaves}


def _check_density(log_density: LogDensity, dim: int) -> None:
    """Trace the density once, without running it, and say in one line what does not fit."""
    point = jax.ShapeDtypeStruct((dim,), jnp.result_type(float))
    try:
        out = jax.eval_shape(log_density, point)
    except Exception as error:
        line = first_line(error)
        raise InputError(
            f"log_density must map one vector of shape ({dim},) to a scalar with JAX operations, "
            f"but it raised {type(error).__name__}: {line}"
        ) from error
    leaves = jax.tree.leaves(out)
    remedy = "return one real number, for example with jnp.sum"
    check(
        len(leaves) == 1 and hasattr(out, "shape"),
        f"log_density must return one scalar, got {type(out).__name__} of {len(leaves)} arrays; "
        f"{remedy}",
    )
    check(out.shape == (), f"log_density must return a scalar, got shape {out.shape}; {remedy}")
    check(
        jnp.issubdtype(out.dtype, jnp.floating),
        f"log_density must return a real float, got dtype {out.dtype}; {remedy}",
    )

"""Targets: an unnormalised log density on R^dim, with exact draws where they are known.

A target is what every sampler here needs and nothing more: `log_density`, a function of one flat
vector. Positions of another shape (a dict of arrays) are flattened inside and restored outside.
Declared parameters (`parameters.py`) are mapped to their supports inside, with the log-Jacobian,
and reported as declared.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Float, Int, Key

from involutive._xla.lapack import one_by_one
from involutive.core.errors import check, check_count
from involutive.targets.by_name import Arguments, OnParameters, arguments_of, call
from involutive.targets.parameters import Parameters
from involutive.targets.positions import Form
from involutive.targets.validation import check_constrain, check_program

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
        like: an example position, for densities of a pytree; `dim` is then counted from it, and
            its keys keep their order everywhere.
        name: shown in reports.
        sample: `(key, n) -> (n, dim)` exact draws, where known.
        modes: a partition with exact masses, where known.
        constrain: maps a position, as `log_density` receives it, to a dict of named arrays, as
            results are reported.
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
    form: Form | None = eqx.field(static=True)
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
        constrain: Callable[[Any], dict[str, Array]] | None = None,
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
        self.initial = self.form = None
        if self.parameters is not None:
            check(like is None, "like must be left out where parameters are declared, got both")
            self.dim, self.initial = self.parameters.dim, self.parameters.initial()
            how = arguments_of(log_density, self.parameters, arguments)
            self.log_density = OnParameters(log_density, self.parameters, how)
            self.constrain = self.parameters.constrain
            if constrain is not None:
                self.constrain = _OnValues(constrain, self.parameters, how)
        elif like is None:
            check(dim is not None, "dim must be given (or like=, an example position), got neither")
            self.dim = check_count("dim", dim)
            self.log_density = log_density
            self.constrain = constrain or _as_x
        else:
            self.form = form = Form(like)
            check(
                dim in (None, form.size),
                f"dim must match like, which holds {form.size} numbers, got dim={dim}; drop dim",
            )
            self.dim = form.size
            self.log_density = _OnPytree(log_density, form)
            self.constrain = _OnPytree(constrain, form) if constrain else form.named
        self.name = name or getattr(log_density, "__name__", "target").strip("<>")
        self.sample, self.modes, self.extent = sample, modes, extent
        self.labels = _labels(self.parameters, dims, coords)
        check_program(self.log_density, self.dim, self.coordinate)
        if constrain is not None:
            check_constrain(self.constrain, self.dim)
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
        form = self.form or Form(position)
        flat = form.flatten(position)
        check(
            flat.shape == (self.dim,),
            f"a position must hold {self.dim} numbers (dim of {self.name}), got {flat.size}",
        )
        return flat

    def restore(self, x: Vector) -> Any:
        """Return a flat vector as the density receives it: shaped as `like`, if that was given."""
        return x if self.form is None else self.form.restore(x)

    def coordinate(self, i: int) -> str:
        """The name of a flat coordinate: `x[2]`, or the name it has in `like`."""
        return f"x[{i}]" if self.form is None else self.form.coordinate(i)


class _OnPytree(eqx.Module):
    """A function of a pytree as one of its flat vector."""

    function: Callable[[Any], Any]
    form: Form = eqx.field(static=True)

    def __call__(self, x: Vector) -> Any:
        return self.function(self.form.restore(x))


class _OnValues(eqx.Module):
    """A function of declared values as one of the flat vector."""

    function: Callable[..., Any]
    parameters: Parameters = eqx.field(static=True)
    how: Arguments = eqx.field(static=True)

    def __call__(self, x: Vector) -> Any:
        return call(self.function, self.parameters.constrain(x), self.how)


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


def _as_x(x: Vector) -> dict[str, Array]:
    return {"x": x}

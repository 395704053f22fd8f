"""A density as a function of one flat vector: as it is, of a pytree, or of declared values."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from involutive.core.errors import check, check_count
from involutive.targets.by_name import Arguments, OnParameters, arguments_of, call
from involutive.targets.names import check_names
from involutive.targets.parameters import Parameters
from involutive.targets.positions import Form

Vector = Float[Array, " dim"]
TAKES = {
    "names": "the declared parameters, by name,",
    "dict": "the declared parameters, as one dict (arguments='vector' passes one vector),",
    "vector": "the declared parameters, as one vector,",
}


class Flat(NamedTuple):
    """A density of one flat vector, and how a vector is reported."""

    log_density: Callable[..., Any]
    dim: int
    constrain: Callable[[Vector], dict[str, Array]]
    form: Form | None = None
    takes: str | None = None  # what the density receives, for words; None for one vector


def flattened(
    log_density: Callable[..., Any],
    dim: object,
    like: PyTree,
    arguments: Arguments | None,
    constrain: Callable[[Any], dict[str, Array]] | None,
) -> Flat:
    """The density of the flat vector, from what `Target` was given."""
    if isinstance(dim, Parameters):
        check(like is None, "like must be left out where parameters are declared, got both")
        how = arguments_of(log_density, dim, arguments)
        report = dim.constrain if constrain is None else OnValues(constrain, dim, how)
        return Flat(OnParameters(log_density, dim, how), dim.dim, report, takes=TAKES[how])
    if like is None:
        check(dim is not None, "dim must be given (or like=, an example position), got neither")
        return Flat(log_density, check_count("dim", dim), constrain or _as_x)
    form = Form(like)
    check_names(form.named(jnp.zeros(form.size)))
    check(
        dim in (None, form.size),
        f"dim must match like, which holds {form.size} numbers, got dim={dim}; drop dim",
    )
    report = OnPytree(constrain, form) if constrain else form.named
    takes = "a position shaped as like"
    return Flat(OnPytree(log_density, form), form.size, report, form, takes)


def of_vector(
    function: Callable[..., Any],
    parameters: Parameters | None,
    form: Form | None,
    arguments: Arguments | None,
) -> Callable[[Vector], Any]:
    """A function of what the density receives as one of the flat vector."""
    if parameters is not None:
        return OnValues(function, parameters, arguments_of(function, parameters, arguments))
    return function if form is None else OnPytree(function, form)


class OnPytree(eqx.Module):
    """A function of a pytree as one of its flat vector."""

    function: Callable[[Any], Any]
    form: Form = eqx.field(static=True)

    def __call__(self, x: Vector) -> Any:
        return self.function(self.form.restore(x))


class OnValues(eqx.Module):
    """A function of declared values as one of the flat vector."""

    function: Callable[..., Any]
    parameters: Parameters = eqx.field(static=True)
    how: Arguments = eqx.field(static=True)

    def __call__(self, x: Vector) -> Any:
        return call(self.function, self.parameters.constrain(x), self.how)


def _as_x(x: Vector) -> dict[str, Array]:
    return {"x": x}

"""How a density takes declared values: by name, as one dict, or as one vector."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from involutive.core.errors import check
from involutive.targets.parameters import Parameters, Vector

Arguments = Literal["names", "dict", "vector"]
CHOICES = ("names", "dict", "vector")


def arguments_of(
    function: Callable[..., Any], parameters: Parameters, asked: Arguments | None
) -> Arguments:
    """How to call a density of declared values: as asked, or as its arguments are named.

    By name if its arguments are the parameters; as one dict if it takes one other argument, as
    nautilus has it.
    """
    check(
        asked is None or asked in CHOICES,
        f"arguments must be one of {', '.join(CHOICES)}, got {asked!r}",
    )
    if asked is not None:
        return asked
    taken = _taken(function)
    if taken is None:
        return "names"
    required, possible, any_name = taken
    names = list(parameters.names)
    if len(required) == 1 and required[0] not in names:
        return "dict"
    unknown = [name for name in required if name not in names]
    untaken = [] if any_name else [name for name in names if name not in possible]
    check(
        not unknown and not untaken,
        f"log_density must take the declared parameters {', '.join(names)} by name, but it takes "
        f"{', '.join(possible) or 'nothing'}; name its arguments as the parameters, or pass "
        "arguments='dict' or 'vector'",
    )
    return "names"


def _taken(function: Callable[..., Any]) -> tuple[list[str], list[str], bool] | None:
    """The arguments a call needs, all it may name, and whether any name will do."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = inspect.Parameter
    if any(p.kind is kinds.VAR_POSITIONAL for p in found):
        return None
    named = [p for p in found if p.kind is not kinds.VAR_KEYWORD]
    required = [p.name for p in named if p.default is kinds.empty]
    return required, [p.name for p in named], len(named) < len(found)


def call(function: Callable[..., Any], values: Mapping[str, Any], how: Arguments) -> Any:
    """Call a density with declared values."""
    if how == "names":
        return function(**values)
    if how == "dict":
        return function(dict(values))
    numpy = all(isinstance(value, np.ndarray | np.generic) for value in values.values())
    library = np if numpy else jnp
    return function(library.concatenate([library.ravel(value) for value in values.values()]))


class OnParameters(eqx.Module):
    """A density of declared values as one of the flat unconstrained vector."""

    log_density: Callable[..., Any]
    parameters: Parameters = eqx.field(static=True)
    how: Arguments = eqx.field(static=True)

    def __call__(self, x: Vector) -> Any:
        values, log_term = self.parameters.values_and_log_term(x)
        found = call(self.log_density, values, self.how)
        plain = not hasattr(found, "shape") and not isinstance(found, int | float)
        if plain or jnp.shape(found) != ():
            return found  # the check of the density says what is wrong with it
        return found + log_term

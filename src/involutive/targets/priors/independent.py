"""A prior of independent elements: from a log density and draws of one to those of an array."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from involutive.core.errors import InputError, check
from involutive.targets.declare import DimsLike, Parameter, ShapeLike, as_dims, as_shape
from involutive.targets.supports import AbstractSupport, Shape

Log = Callable[..., Array]


def numbers(name: str, positive: tuple[str, ...], parameters: dict[str, Any]) -> list[np.ndarray]:
    """The parameters of a distribution as finite arrays; those named must be positive."""
    found = []
    for key, value in parameters.items():
        try:
            array = np.asarray(value, float)
        except (TypeError, ValueError) as error:
            raise InputError(f"{key} of {name} must be a number, got {value!r}") from error
        check(np.isfinite(array).all(), f"{key} of {name} must be finite, got {value}")
        low = key not in positive or bool((array > 0).all())
        check(low, f"{key} of {name} must be positive, got {value}")
        found.append(array)
    return found


def prior(
    name: str,
    support: Callable[[Shape], AbstractSupport],
    log_pdf: Log,
    draw: Log,
    parameters: dict[str, Any],
    shape: ShapeLike | None,
    dims: DimsLike,
    positive: tuple[str, ...] = (),
) -> Parameter:
    """A prior of independent elements: `log_pdf(value, *parameters)`, `draw(key, shape, ...)`."""
    found = numbers(name, positive, parameters)
    own = np.broadcast_shapes(*(number.shape for number in found))
    whole = own if shape is None else as_shape(shape)
    check(
        whole[len(whole) - len(own) :] == own,
        f"shape of {name} must end in the shape of its parameters {own}, got {whole}",
    )
    spread = [np.broadcast_to(number, whole) for number in found]

    def log_prob(value: Array) -> Array:
        return jnp.sum(log_pdf(value, *(jnp.asarray(n, value.dtype) for n in spread)))

    def sample(key: Key[Array, ""]) -> Array:
        return draw(key, whole, *(jnp.asarray(n, float) for n in spread))

    given = f"{name}({', '.join(str(value) for value in parameters.values())})"
    return Parameter(support(whole), as_dims(dims), log_prob, sample, given)

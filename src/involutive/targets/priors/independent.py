"""A prior of independent elements: from a log density and draws of one to those of an array."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from involutive.core.errors import InputError, check
from involutive.core.types import ArrayLike
from involutive.targets.declare import DimsLike, Parameter, ShapeLike, as_dims, as_shape
from involutive.targets.supports import AbstractSupport, Shape

Log = Callable[..., Array]


def numbers(
    name: str, positive: tuple[str, ...], parameters: dict[str, ArrayLike]
) -> list[np.ndarray]:
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


class Independent(NamedTuple):
    """A family of priors of independent elements, from what one element needs.

    Attributes:
        name: as users call it.
        support: the support of a value, by its shape.
        log_pdf: `log_pdf(value, *parameters)`, element by element.
        draw: `draw(key, shape, *parameters)`.
        positive: parameters that must be positive.
    """

    name: str
    support: Callable[[Shape], AbstractSupport]
    log_pdf: Log
    draw: Log
    positive: tuple[str, ...] = ()

    def __call__(
        self, shape: ShapeLike | None, dims: DimsLike, **parameters: ArrayLike
    ) -> Parameter:
        """The prior with these parameters, in the order of `log_pdf`."""
        found = numbers(self.name, self.positive, parameters)
        own = np.broadcast_shapes(*(number.shape for number in found))
        whole = own if shape is None else as_shape(shape)
        check(
            whole[len(whole) - len(own) :] == own,
            f"shape of {self.name} must end in the shape of its parameters {own}, got {whole}",
        )
        spread = [np.broadcast_to(number, whole) for number in found]

        def log_prob(value: Array) -> Array:
            return jnp.sum(self.log_pdf(value, *(jnp.asarray(n, value.dtype) for n in spread)))

        def sample(key: Key[Array, ""]) -> Array:
            return self.draw(key, whole, *(jnp.asarray(n, float) for n in spread))

        given = f"{self.name}({', '.join(str(value) for value in parameters.values())})"
        return Parameter(self.support(whole), as_dims(dims), log_prob, sample, given)

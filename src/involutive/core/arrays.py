"""Arrays of what users pass in."""

import jax.numpy as jnp
import numpy as np

from involutive.core.errors import InputError


def as_floats(value: object, rule: str) -> np.ndarray:
    """`value` as an array of JAX's float type, or an error that states the rule and the type."""
    try:
        return np.asarray(value, dtype=jnp.result_type(float))
    except (TypeError, ValueError) as error:
        raise InputError(f"{rule}, got {type(value).__name__}") from error

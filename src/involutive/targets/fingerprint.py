"""What a density does at fixed points: to recognise it again, and to see that it is a function."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from involutive._xla.program import same_program_twice
from involutive.core.errors import InputError, check
from involutive.core.text import first_line
from involutive.targets.target import Target

POINTS = 6


def fixed_points(dim: int) -> np.ndarray:
    """Points between -2 and 2 in every coordinate, spread by multiples of the golden ratio."""
    grid = np.arange(1, POINTS * dim + 1).reshape(POINTS, dim)
    return 4 * np.mod(grid * 0.6180339887498949, 1.0) - 2


def fingerprint(target: Target) -> list[float]:
    """The target's log density at the fixed points; not compiled, which would take longer."""
    points = jnp.asarray(fixed_points(target.dim), jnp.result_type(float))
    return [float(target.log_density(point)) for point in points]


def difference(saved: Any, found: list[float]) -> str | None:
    """In words, where two fingerprints differ beyond rounding; None if they agree."""
    then, now = np.asarray(saved, float), np.asarray(found, float)
    if then.shape != now.shape:
        return f"{then.size} values saved and {now.size} found"
    close = np.isclose(then, now, rtol=1e-4, atol=1e-4, equal_nan=True)
    if close.all():
        return None
    i = int(np.argmin(close))
    return f"log density {then[i]:.8g} then and {now[i]:.8g} now at fingerprint point {i}"


def check_density(target: Target) -> None:
    """Trace the density twice, or call it twice at one point: it must not fail, nor differ.

    A density that draws random numbers, or that keeps a traced value from one call for the next,
    is no function of the position, and no acceptance ratio made of it is right.
    """
    point = jnp.asarray(fixed_points(target.dim)[0], jnp.result_type(float))
    try:
        if same_program_twice(target.log_density, target.dim):
            return
        first, second = (float(target.log_density(point)) for _ in range(2))
    except Exception as error:
        line = first_line(error)
        leaked = "Tracer" in line
        remedy = "; it keeps a value from an earlier call: use only its argument" if leaked else ""
        raise InputError(
            f"log_density of {target.name} must give a number at every position, but it raised "
            f"{type(error).__name__}: {line}{remedy}"
        ) from error
    rounding = float(jnp.finfo(point.dtype).eps) ** 0.5
    same = np.isclose(first, second, rtol=rounding, atol=rounding, equal_nan=True)
    check(
        same,
        f"log_density of {target.name} must give the same value at the same position, got "
        f"{first:.8g} and then {second:.8g}; take random numbers and changing state out of it",
    )

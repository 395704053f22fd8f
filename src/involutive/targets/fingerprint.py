"""What a density does at fixed points: to recognise it again."""

import jax.numpy as jnp
import numpy as np

from involutive.targets.target import Target
from involutive.targets.validation import check_density as check_density
from involutive.targets.validation import fixed_points


def fingerprint(target: Target) -> list[float]:
    """The target's log density at the fixed points; not compiled, which would take longer."""
    points = jnp.asarray(fixed_points(target.dim), jnp.result_type(float))
    return [float(target.log_density(point)) for point in points]


def difference(saved: object, found: list[float]) -> str | None:
    """In words, where two fingerprints differ beyond rounding; None if they agree."""
    then, now = np.asarray(saved, float), np.asarray(found, float)
    if then.shape != now.shape:
        return f"{then.size} values saved and {now.size} found"
    close = np.isclose(then, now, rtol=1e-4, atol=1e-4, equal_nan=True)
    if close.all():
        return None
    i = int(np.argmin(close))
    return f"log density {then[i]:.8g} then and {now[i]:.8g} now at fingerprint point {i}"

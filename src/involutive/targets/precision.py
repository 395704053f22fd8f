"""Whether 32 bits resolve a log density: what rounding leaves of it where it is large.

An acceptance ratio is a difference of two log densities. At a value v of 32 bits it is known to a
spacing of about |v| 2⁻²³: at 10⁵, which the log likelihood of 10⁵ observations may well be, to a
hundredth of a nat. Far from the mode every log density is large in size, so that the value near the
maximum decides.
"""

import warnings
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from involutive.core.errors import PrecisionWarning

RESOLVED = 0.01  # nats between neighbouring numbers that are small enough; a guess
STARTS = 4
STEPS = 300  # of a climb to where the density is large; a guess
_TOLD: set[tuple[str, int]] = set()


@runtime_checkable
class CheckedDensity(Protocol):
    """What is checked: a `Target`."""

    log_density: Callable[[Any], Any]
    dim: int
    name: str


def warn_precision(target: CheckedDensity, value: Callable[[Any], Any]) -> None:
    """Warn, once per target, if 32 bits cannot resolve the log density near its maximum.

    Only where it is large in size at every one of a few points is the maximum looked for.

    Args:
        target: the density, as a function that JAX can trace.
        value: the same, compiled.
    """
    known = (target.name, target.dim)
    if jnp.result_type(float) != jnp.float32 or known in _TOLD:
        return
    starts = np.random.default_rng(0).normal(size=(STARTS, target.dim)).astype(np.float32)
    try:
        values = [float(value(jnp.asarray(start))) for start in starts]
        if not any(map(np.isfinite, values)) or any(map(_resolved, values)):
            return
        top = float(_climbed(target.log_density, jnp.asarray(starts)))
    except Exception:  # it has no gradient, or fails where chains may never go
        return
    if not np.isfinite(top) or _resolved(top):
        return
    _TOLD.add(known)
    warnings.warn(
        f"the log density of {target.name} is about {top:.3g} near its maximum, where 32-bit "
        f"numbers are {np.spacing(np.float32(abs(top))):.2g} apart: smaller differences are lost; "
        "compute in 64 bits: jax.config.update('jax_enable_x64', True) at the start (or --x64)",
        PrecisionWarning,
        stacklevel=4,
    )


def _resolved(value: float) -> bool:
    return bool(np.isfinite(value) and np.spacing(np.float32(abs(value))) < RESOLVED)


def _climbed(log_density: Callable[[Any], Any], starts: Array) -> Array:
    """The largest log density that climbs reach, by steps whose length adapts to what they gain."""

    def step(_: object, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, value, size = state
        gradient = jax.grad(log_density)(x)
        direction = gradient / (jnp.linalg.norm(gradient) + 1e-30)
        there = x + size * direction
        new = log_density(there)
        better = new > value
        return (
            jnp.where(better, there, x),
            jnp.where(better, new, value),
            jnp.where(better, 1.5 * size, 0.5 * size),
        )

    def climb(x: Array) -> Array:
        return jax.lax.fori_loop(0, STEPS, step, (x, log_density(x), jnp.asarray(0.1, x.dtype)))[1]

    return jnp.max(jax.jit(jax.vmap(climb))(starts))

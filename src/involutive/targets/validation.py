"""Is it a density? What can be said before any work starts.

From the traced program: a result that is no real number, a coordinate that nothing reads, an index
outside its axis, which JAX would clamp without a word. From a few evaluations: a value that differs
from call to call, and a coordinate along which the density stays the same for ever. A density that
does not fall along a coordinate has no finite integral, and chains drift along it without end.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PyTree

from involutive._xla.program import same_program_twice
from involutive._xla.reading import PERHAPS, UNREAD, Reading, reading_of
from involutive.core.errors import InputError, check
from involutive.core.text import first_line
from involutive.targets.black_box import OnHost
from involutive.targets.precision import CheckedDensity, warn_precision

POINTS = 6
FAR = 1e6  # along a coordinate; a density that has not fallen here is taken for improper. A guess
FLAT_POINTS = 3  # where the density must be flat before it is called so
PATIENCE = 1.0  # seconds of evaluations that look for flat coordinates; a guess
LOST = 0.1  # nats: rounding that would hide the tail of a density; a guess
NUMPY_DOOR = 'or pass backend="numpy" to Target for a density that JAX cannot trace'
REMEDIES = {
    "TracerBoolConversionError": f"replace `if` by jnp.where (or lax.cond), {NUMPY_DOOR}",
    "TracerIntegerConversionError": f"index with jnp.take, loop with lax.fori_loop, {NUMPY_DOOR}",
    "TracerArrayConversionError": f"call jax.numpy in place of numpy, {NUMPY_DOOR}",
    "ConcretizationTypeError": f"call jax.numpy in place of math, float and int, {NUMPY_DOOR}",
}


def fixed_points(dim: int) -> np.ndarray:
    """Points between -2 and 2 in every coordinate, spread by multiples of the golden ratio."""
    grid = np.arange(1, POINTS * dim + 1).reshape(POINTS, dim)
    return 4 * np.mod(grid * 0.6180339887498949, 1.0) - 2


# ── When a target is made ───────────────────────────────────────────────────────────────────────


def check_program(
    log_density: Callable[[Any], Any],
    dim: int,
    coordinate: Callable[[int], str] | None = None,
    takes: str | None = None,
) -> None:
    """Trace the density once, without running it, and say in one line what does not fit.

    Args:
        log_density: a function of one flat vector.
        dim: its length.
        coordinate: the name of a coordinate, for words.
        takes: what the user's function receives, for words; by default one vector.
    """
    try:
        reading = reading_of(log_density, dim)
    except InputError:
        raise
    except Exception as error:
        line = first_line(error).rstrip(".")
        remedy = REMEDIES.get(type(error).__name__)
        received = takes or f"one vector of shape ({dim},)"
        raise InputError(
            f"log_density must map {received} to a scalar with JAX operations, but it raised "
            f"{type(error).__name__}: {line}{f'; {remedy}' if remedy else ''}"
        ) from error
    _check_result(reading.out)
    _check_indices(reading)
    unread = [int(i) for i in np.flatnonzero(reading.coordinates == UNREAD)]
    # the program is certain; an evaluation that contradicts it would be right all the same
    unread = [i for i in unread if not _changes(reading.value, dim, i)]
    _refuse_flat(unread, dim, coordinate or "x[{}]".format)


def _check_result(out: PyTree) -> None:
    leaves, remedy = jax.tree.leaves(out), "return one real number, for example with jnp.sum"
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


def _check_indices(reading: Reading) -> None:
    if reading.missed:
        index, length = reading.missed[0]
        raise InputError(
            f"indices in log_density must lie inside their axis, got index {index} for {length} "
            f"numbers; use {-length} to {length - 1}, or a larger dim (JAX would read another one)"
        )


def _refuse_flat(unread: list[int], dim: int, coordinate: Callable[[int], str]) -> None:
    if not unread:
        return
    every = list(dict.fromkeys(coordinate(i) for i in unread))  # an angle takes two coordinates
    names = ", ".join(every[:5]) + (", …" if len(every) > 5 else "")
    raise InputError(
        f"log_density must depend on every coordinate, else it has no finite integral, but it "
        f"ignores {names} of {dim}; give {'it' if len(unread) == 1 else 'them'} a prior term, or "
        f"leave {'it' if len(unread) == 1 else 'them'} out"
    )


def check_constrain(constrain: Callable[[Any], Any], dim: int) -> dict[str, tuple[int, ...]]:
    """Trace `constrain` once: it must return a dict of arrays by name; return their shapes."""
    rule = "constrain must return a dict of named arrays, such as {'sigma': jnp.exp(x[0])}"
    point = jax.ShapeDtypeStruct((dim,), jnp.result_type(float))
    try:
        out = jax.eval_shape(lambda x: constrain(x), point)
    except Exception as error:
        remedy = REMEDIES.get(type(error).__name__, "it receives what log_density receives")
        line = first_line(error).rstrip(".")
        raise InputError(
            f"{rule}, but it raised {type(error).__name__}: {line}; {remedy}"
        ) from error
    check(isinstance(out, dict) and out, f"{rule}, got {type(out).__name__}")
    wrong = [name for name, value in out.items() if not hasattr(value, "shape")]
    check(not wrong, f"{rule}, got no array for {', '.join(map(str, wrong))}; nest no dicts")
    return {str(name): tuple(value.shape) for name, value in out.items()}


# ── When work begins ────────────────────────────────────────────────────────────────────────────


def check_density(target: CheckedDensity) -> None:
    """Trace the density twice, or call it twice at one point: it must not fail, nor differ.

    A density that draws random numbers, or that keeps a traced value from one call for the next,
    is no function of the position, and no acceptance ratio made of it is right. Nor is one of use
    that stays the same along a coordinate, which is looked for where the program alone cannot tell.
    A NumPy density is called twice at draws of X, where it has one: inside its support.
    """
    if isinstance(target.log_density, OnHost):
        law = getattr(target, "initial", None)
        target.log_density.check(
            fixed_points(target.dim) if law is None else law.sample(jr.key(0), (POINTS,))
        )
        return
    try:
        same = same_program_twice(target.log_density, target.dim)
        values = (0.0, 0.0) if same else _twice(target)
    except Exception as error:
        line = first_line(error)
        leaked = "Tracer" in line
        remedy = "; it keeps a value from an earlier call: use only its argument" if leaked else ""
        raise InputError(
            f"log_density of {target.name} must give a number at every position, but it raised "
            f"{type(error).__name__}: {line}{remedy}"
        ) from error
    rounding = float(jnp.finfo(jnp.result_type(float)).eps) ** 0.5
    check(
        np.isclose(*values, rtol=rounding, atol=rounding, equal_nan=True),
        f"log_density of {target.name} must give the same value at the same position, got "
        f"{values[0]:.8g} and then {values[1]:.8g}; take random numbers and changing state out of "
        "it",
    )
    reading = reading_of(target.log_density, target.dim)
    # far out a loop may not end, and a call of Python may cost hours
    if reading.bounded:
        _check_flat(target, reading)
        warn_precision(target, reading.value)


def _twice(target: CheckedDensity) -> tuple[float, float]:
    point = jnp.asarray(fixed_points(target.dim)[0], jnp.result_type(float))
    first, second = (float(target.log_density(point)) for _ in range(2))
    return first, second


def _check_flat(target: CheckedDensity, reading: Reading) -> None:
    """Go far along each coordinate that the program may or may not read."""
    began, unread = time.perf_counter(), []
    for i in np.flatnonzero(reading.coordinates == PERHAPS):
        if time.perf_counter() - began > PATIENCE:
            break
        if _changes(reading.value, target.dim, int(i)) is False:
            unread.append(int(i))
    _refuse_flat(unread, target.dim, getattr(target, "coordinate", "x[{}]".format))


def _changes(log_density: Callable[[Any], Any], dim: int, i: int) -> bool | None:
    """Whether the density differs between the far ends of a coordinate; None if it cannot be told.

    It cannot be told from no finite value, nor from one so large that a tail is lost in rounding.
    """
    eps, told = float(jnp.finfo(jnp.result_type(float)).eps), False
    try:
        for point in fixed_points(dim)[:FLAT_POINTS]:
            here = _at(log_density, point, i, point[i])
            # nearby as well: far out a density may be no number
            for end in (point[i] + 1.0, -FAR, FAR):
                there = _at(log_density, point, i, end)
                if np.isnan(here) or np.isnan(there):
                    continue
                if here != there:
                    return True
                told = told or bool(np.isfinite(here) and abs(here) * eps < LOST)
    except Exception:  # inside a trace, or it fails far out
        return None
    return False if told else None


def _at(log_density: Callable[[Any], Any], point: np.ndarray, i: int, value: float) -> float:
    moved = point.copy()
    moved[i] = value
    return float(log_density(jnp.asarray(moved, jnp.result_type(float))))

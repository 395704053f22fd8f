"""Constants inside a traced program, and fixed indices that miss their axis.

A small forward pass: what depends on constants alone is computed here, by NumPy, so that the index
3 in `x[3]` is known, which JAX writes as a few operations on integers.

Symptom: JAX clamps an index that its axis does not have. Seen with jax 0.10.2: `python -m
involutive.bench.xla indexing` prints a value of a density that reads `x[7]` of three coordinates,
and the error that `Target` raises instead.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from involutive._xla.program import shape_of

SMALL = 4096  # elements of the largest constant that is followed; a guess
CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")  # where a call keeps the program that it calls
LOOPS = ("scan", "while", "cond")  # which carry programs too, but run them in their own way


class Missed(NamedTuple):
    """A fixed index that lies outside its axis."""

    index: int
    length: int


class Constants:
    """Constants by variable, as far as they are known, and which variables depend on x."""

    def __init__(self, program: Jaxpr, known: Sequence[Any], depends: Sequence[bool]):
        names = [*program.constvars, *program.invars]
        self.known = {v: k for v, k in zip(names, known, strict=True) if k is not None}
        self.moving = {v for v, d in zip(names, depends, strict=True) if d}

    def value(self, atom: Var | Literal) -> np.ndarray | None:
        return small(atom.val) if isinstance(atom, Literal) else self.known.get(atom)

    def depends(self, atom: Var | Literal) -> bool:
        return not isinstance(atom, Literal) and atom in self.moving


def constants(
    program: Jaxpr, known: Sequence[Any], depends: Sequence[bool], missed: list[Missed]
) -> Constants:
    """Follow constants through a program, and collect the indices that miss their axis.

    Args:
        program: the program.
        known: of each constant and argument its value, or None.
        depends: of each whether it depends on the argument of the whole.
        missed: where to collect.
    """
    env = Constants(program, known, depends)
    for equation in program.eqns:
        values = [env.value(atom) for atom in equation.invars]
        moving = [env.depends(atom) for atom in equation.invars]
        results: Sequence[Any] = [None] * len(equation.outvars)
        inner = called(equation)
        if inner is not None:
            below = _within(inner, values, moving, missed)
            results = [below.value(atom) for atom in inner.jaxpr.outvars]
        elif equation.primitive.name == "scan":
            _within(equation.params["jaxpr"], [None] * len(values), moving, missed)
        else:
            if moving[:1] == [True]:
                missed.extend(_misses(equation, values))
            rule = FOLD.get(equation.primitive.name)
            fits = all(_size(v) <= SMALL for v in equation.outvars)
            if rule is not None and fits and all(v is not None for v in values):
                results = [np.asarray(rule(equation.params, *values))]
        found = zip(equation.outvars, results, strict=True)
        env.known.update({v: value for v, value in found if value is not None})
        if any(moving):
            env.moving.update(equation.outvars)
    return env


def _within(
    program: ClosedJaxpr, known: Sequence[Any], depends: Sequence[bool], missed: list[Missed]
) -> Constants:
    held = [small(value) for value in program.consts]
    return constants(program.jaxpr, [*held, *known], [*[False] * len(held), *depends], missed)


def _misses(equation: JaxprEqn, values: Sequence[np.ndarray | None]) -> list[Missed]:
    """Fixed indices of one equation that its operand does not have; JAX would clamp them."""
    name, params = equation.primitive.name, equation.params
    shape = shape_of(equation.invars[0])
    if name == "dynamic_slice":
        sizes, starts = params["slice_sizes"], values[1:]
        axes = zip(shape, sizes, starts, strict=True)
        return [m for n, size, at in axes if at is not None for m in _beyond(n, size, at)]
    if name == "gather" and values[1] is not None and "CLIP" not in str(params["mode"]):
        sizes, axes = params["slice_sizes"], params["dimension_numbers"].start_index_map
        columns = enumerate(axes)
        return [
            m for i, axis in columns for m in _beyond(shape[axis], sizes[axis], values[1][..., i])
        ]
    return []


def _beyond(length: int, size: int, starts: np.ndarray) -> list[Missed]:
    """Starts that are out of range. A negative index has had the length added to it by now."""
    return [
        Missed(int(start) if start > 0 else int(start) - length, length)
        for start in np.unique(starts)
        if start < 0 or start + size > length
    ]


def small(value: Any) -> np.ndarray | None:
    if isinstance(value, Tracer) or np.size(value) > SMALL or not hasattr(value, "dtype"):
        return None if not isinstance(value, int | float | bool) else np.asarray(value)
    if not np.issubdtype(value.dtype, np.number) and value.dtype != bool:
        return None  # a random key
    return np.asarray(value)


def called(equation: JaxprEqn) -> ClosedJaxpr | None:
    """The program that an equation calls once with its own operands, if it does that."""
    if equation.primitive.name in LOOPS:
        return None
    for name in CALLS:
        program = equation.params.get(name)
        if isinstance(program, Jaxpr) and not program.constvars:
            program = ClosedJaxpr(program, [])
        if isinstance(program, ClosedJaxpr) and _fits(program.jaxpr, equation):
            return program
    return None


def _fits(program: Jaxpr, equation: JaxprEqn) -> bool:
    sizes = len(equation.invars), len(equation.outvars)
    return (len(program.invars), len(program.outvars)) == sizes


def _size(variable: Var) -> float:
    return float(np.prod(shape_of(variable), dtype=float))


def _broadcast(params: Mapping[str, Any], value: np.ndarray) -> np.ndarray:
    shape = np.ones(len(params["shape"]), int)
    shape[list(params["broadcast_dimensions"])] = value.shape
    return np.broadcast_to(value.reshape(shape), params["shape"])


FOLD: dict[str, Callable[..., np.ndarray]] = {
    "add": lambda _, a, b: np.add(a, b),
    "sub": lambda _, a, b: np.subtract(a, b),
    "mul": lambda _, a, b: np.multiply(a, b),
    "neg": lambda _, a: np.negative(a),
    "lt": lambda _, a, b: np.less(a, b),
    "le": lambda _, a, b: np.less_equal(a, b),
    "gt": lambda _, a, b: np.greater(a, b),
    "ge": lambda _, a, b: np.greater_equal(a, b),
    "eq": lambda _, a, b: np.equal(a, b),
    "ne": lambda _, a, b: np.not_equal(a, b),
    "max": lambda _, a, b: np.maximum(a, b),
    "min": lambda _, a, b: np.minimum(a, b),
    "select_n": lambda _, which, *cases: np.choose(which.astype(int), cases),
    "convert_element_type": lambda p, a: a.astype(p["new_dtype"]),
    "broadcast_in_dim": _broadcast,
    "squeeze": lambda p, a: np.squeeze(a, tuple(p["dimensions"])),
    "reshape": lambda p, a: a.reshape(p["new_sizes"]),
    "concatenate": lambda p, *parts: np.concatenate(parts, p["dimension"]),
    "iota": lambda p: np.broadcast_to(
        np.arange(p["shape"][p["dimension"]]).reshape(
            [-1 if i == p["dimension"] else 1 for i in range(len(p["shape"]))]
        ),
        p["shape"],
    ),
}

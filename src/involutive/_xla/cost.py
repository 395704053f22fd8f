"""How much work one evaluation of a density, or one move, is: counted and not timed.

Learning is deterministic given its key, and chains must not depend on what runs beside them, so
sizes and ways of compiling may depend on the density's program and not on how busy the machine is.

Symptom: JAX's `cost_analysis()` counts the body of a loop once and knows nothing of a callback.
Seen with jax 0.10.2: for loops of 20 and of 2000 turns `python -m involutive.bench.xla counting`
prints 13 operations by `cost_analysis()`, and 984 and 98 004 here; for a callback -1, and the
assumed 10⁶ here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn, Literal
from jaxtyping import PyTree

from involutive._xla.program import FACTORISE, inside, program_of, shape_of

# Operations per evaluation up to which learning keeps its default sizes: of the search, and of
# rounds and trainings, which evaluate less. Both are guesses.
SEARCH_OPERATIONS, TRAINING_OPERATIONS = 20_000.0, 100_000.0
MUCH = 3_000.0  # operations per evaluation or move, from which slow compilation pays; a guess
TRIPS = 100  # iterations counted for a loop that ends by a condition; a guess
CALLBACK = 1e6  # operations counted for a call back into Python; a guess
COSTLY = 10  # operations counted for one number of an `EXPENSIVE` function; a guess
EXPENSIVE = {"exp", "log", "log1p", "expm1", "tanh", "logistic", "sin", "cos", "pow", "erf",
             "lgamma", "digamma", "erf_inv", "sqrt", "rsqrt", "div", "atan2", "cbrt"}  # fmt: skip


def operations(function: Callable, dim: int) -> float:
    """Arithmetic operations of one evaluation of a function of one vector, from its program."""
    return count(program_of(function, dim))


def much_work(program: Jaxpr, parameters: PyTree = ()) -> bool:
    """Whether a step of a density with that program and of a kernel with those parameters is long.

    If so, slow compilation pays. Every parameter takes part in an operation or two.
    """
    sizes = (leaf.size for leaf in jax.tree.leaves(parameters) if hasattr(leaf, "size"))
    return count(program) + sum(sizes) > MUCH


def affordable(operations: float, usual: float) -> float:
    """By how much to shrink sizes that are meant for densities of at most `usual` operations."""
    return min(1.0, usual / max(operations, 1.0))


def count(program: Jaxpr, varies: Sequence[bool] | None = None) -> float:
    """Arithmetic operations of a program that depend on its argument.

    What does not, such as the inverse of a factor that is a constant, is computed once for all
    points.

    Args:
        program: the program.
        varies: which of its arguments differ from point to point; by default all.
    """
    flags = [True] * len(program.invars) if varies is None else varies
    moving = {var for var, flag in zip(program.invars, flags, strict=True) if flag}
    total = 0.0
    for equation in program.eqns:
        depends = [not isinstance(v, Literal) and v in moving for v in equation.invars]
        if any(depends):
            moving.update(equation.outvars)
            total += _equation(equation, depends)
    return total


def _equation(equation: JaxprEqn, depends: list[bool]) -> float:
    name, params = equation.primitive.name, equation.params
    # a loop feeds its results back, so that all of its arguments vary
    plain = name not in ("scan", "while", "cond")
    inner = [
        count(part, depends if plain and len(part.invars) == len(depends) else None)
        for part in inside(params)
    ]
    if name == "scan":
        return params["length"] * sum(inner)
    if name == "while":
        return TRIPS * sum(inner)
    if name == "cond":
        return max(inner, default=0.0)
    if inner:
        return sum(inner)
    return _work(name, params, equation)


def _work(name: str, params: Mapping[str, Any], equation: JaxprEqn) -> float:
    sizes = [float(np.prod(shape_of(v))) for v in equation.outvars if hasattr(v.aval, "shape")]
    size = sum(sizes)
    if "callback" in name:
        return CALLBACK
    first = shape_of(equation.invars[0]) if equation.invars else ()
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        return 2 * size * float(np.prod([first[axis] for axis in contracted]))
    if name in FACTORISE:
        return size * float(first[-1] if first else 1)
    if name.startswith(("reduce", "cum", "arg", "sort")):
        return float(np.prod(first))
    return size * (COSTLY if name in EXPENSIVE else 1)

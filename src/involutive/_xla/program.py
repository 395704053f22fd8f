"""The program (jaxpr) of a function of one point: which operations it holds.

Symptom: JAX traces a function once, so that a density which reads what changes outside of it is
fixed at its first value, and two evaluations agree. Seen with jax 0.10.2: `python -m
involutive.bench.xla frozen` prints -4 and -6 for two plain calls of such a density, -2 and -2 for
two compiled ones; two traces give two programs, which `same_program_twice` sees.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

# what LAPACK and BLAS do to matrices, under JAX's names, with the axes of their first operand
FACTORISE = dict.fromkeys(
    ("cholesky", "cholesky_update", "lu", "eigh", "eig", "svd", "qr", "geqrf", "geqp3", "ormqr",
     "householder_product", "schur", "hessenberg", "tridiagonal", "triangular_solve"), 2,
) | {"tridiagonal_solve": 1}  # fmt: skip


Program = Jaxpr  # other packages pass it on and do not inspect it


def program_of(function: Callable, *shape: int) -> Program:
    """The program of a function of one float array of that shape."""
    return jax.make_jaxpr(function)(jnp.zeros(shape)).jaxpr


def same_program_twice(function: Callable, dim: int) -> bool:
    """Whether two traces of a function give one and the same program, which calls nothing outside.

    Then it is a function of its argument. If not, it may be one all the same: a program can name
    things that are made anew with every trace.
    """
    # a new function each time: JAX remembers the trace of one that it has met
    first, second = (jax.make_jaxpr(lambda x: function(x))(jnp.zeros(dim)) for _ in range(2))
    texts = [str(program.jaxpr) for program in (first, second)]
    if texts[0] != texts[1] or "callback" in texts[0] or len(first.consts) != len(second.consts):
        return False
    return all(map(_equal, first.consts, second.consts))


def _equal(first: object, second: object) -> bool:
    if isinstance(first, Tracer) or isinstance(second, Tracer):
        return False  # a tracer of an earlier call
    return first is second or bool(np.array_equal(np.asarray(first), np.asarray(second)))


def shape_of(atom: Var | Literal) -> tuple[int, ...]:
    """The shape of a variable or a constant of a program; a token has none."""
    return tuple(getattr(atom.aval, "shape", ()))


def inside(params: Mapping[str, Any]) -> Iterator[Jaxpr]:
    """The programs that an equation carries: of a loop's body, of branches, of a call."""
    for value in params.values():
        for part in value if isinstance(value, list | tuple) else (value,):
            if isinstance(part, ClosedJaxpr):
                yield part.jaxpr
            elif isinstance(part, Jaxpr):
                yield part


def factorises_many(program: Program) -> bool:
    """Whether a program, or one that it carries, factorises several matrices in one operation."""
    return any(map(_of_many, program.eqns))


def calls_out(program: Program) -> bool:
    """Whether a program, or one that it carries, calls back into Python."""
    return any(
        "callback" in equation.primitive.name or any(map(calls_out, inside(equation.params)))
        for equation in program.eqns
    )


def _of_many(equation: JaxprEqn) -> bool:
    axes = FACTORISE.get(equation.primitive.name)
    if axes is not None and len(shape_of(equation.invars[0])) > axes:
        return True
    return any(map(factorises_many, inside(equation.params)))

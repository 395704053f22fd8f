"""A function of one point as the program JAX makes of it: which operations it holds."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr

# what LAPACK and BLAS do to matrices, under JAX's names, with the axes of their first operand
FACTORISE = dict.fromkeys(
    ("cholesky", "cholesky_update", "lu", "eigh", "eig", "svd", "qr", "geqrf", "geqp3", "ormqr",
     "householder_product", "schur", "hessenberg", "tridiagonal", "triangular_solve"), 2,
) | {"tridiagonal_solve": 1}  # fmt: skip


def program_of(function: Callable, *shape: int) -> Jaxpr:
    """The program of a function of one float array of that shape."""
    return jax.make_jaxpr(function)(jnp.zeros(shape)).jaxpr


def inside(params: Any) -> Iterator[Jaxpr]:
    """The programs that an equation carries: of a loop's body, of branches, of a call."""
    for value in params.values():
        for part in value if isinstance(value, list | tuple) else (value,):
            if isinstance(part, ClosedJaxpr):
                yield part.jaxpr
            elif isinstance(part, Jaxpr):
                yield part


def factorises_many(program: Jaxpr) -> bool:
    """Whether a program, or one that it carries, factorises several matrices in one operation."""
    return any(map(_of_many, program.eqns))


def _of_many(equation: Any) -> bool:
    axes = FACTORISE.get(equation.primitive.name)
    if axes is not None and len(equation.invars[0].aval.shape) > axes:
        return True
    return any(map(factorises_many, inside(equation.params)))

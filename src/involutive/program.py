"""A density as the program JAX makes of it: which operations it holds."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr

from involutive.kernel import evaluate
from involutive.targets import Target

# LAPACK's factorisations, under JAX's names
FACTORISE = {"cholesky", "lu", "eigh", "eig", "svd", "qr", "geqrf", "householder_product", "schur"}


def program_of(target: Target) -> Jaxpr:
    """The program of one evaluation of the log density."""
    return jax.make_jaxpr(lambda x: evaluate(target, x))(jnp.zeros(target.dim)).jaxpr


def inside(params: Any) -> Iterator[Jaxpr]:
    """The programs that an equation carries: of a loop's body, of branches, of a call."""
    for value in params.values():
        for part in value if isinstance(value, list | tuple) else (value,):
            if isinstance(part, ClosedJaxpr):
                yield part.jaxpr
            elif isinstance(part, Jaxpr):
                yield part


def factorises(program: Jaxpr) -> bool:
    """Whether a program, or one that it carries, factorises a matrix."""
    return any(
        equation.primitive.name in FACTORISE or any(map(factorises, inside(equation.params)))
        for equation in program.eqns
    )

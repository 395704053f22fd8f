"""A function of one point that `jax.vmap` evaluates at one point after the other.

Symptom: mapped over chains, a factorisation becomes one LAPACK call for many matrices, which
spreads over XLA's thread pool and waits there. Several at once, of two blocks of chains or of two
parts of one program, wait for each other for ever on a pool of two threads. A deep test of a 50-D
mixture stood still like that: both threads were in `ParallelBatchMap` of `lapack_dtrsm_ffi`, jaxlib
0.10.2, for the components of the proposal (`auxiliary/mixtures.py`). It depends on timing: with jax
0.10.2 on two busy cores, 4 of 5 runs of `python -m involutive.bench.xla factorising` made 85 to 797
of 1000 calls without this file, and then none for 30 s; with it, every run made all of them.

One matrix at a time is factorised where it is asked for, and leaves the cores to the blocks.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jaxtyping import Array, Float, Inexact, PyTree

from involutive._xla.program import factorises_many, program_of


class OneByOne(eqx.Module):
    """`function`, evaluated at one point after the other under `jax.vmap`.

    Its derivative in x is taken in reverse mode, whichever is asked for.
    """

    function: Callable

    def __call__(self, x: Float[Array, " dim"]) -> Inexact[Array, ""]:
        # the arrays that it holds or closes over become arguments: a map may reach them too
        program = jax.make_jaxpr(self.function)(x)
        held = [jnp.asarray(part) for part in program.consts]

        def function(parts: list[Array], y: Array) -> Array:
            return jaxpr_as_fun(ClosedJaxpr(program.jaxpr, parts))(y)[0]

        return _alone(function)(held, x)


def one_by_one(function: Callable, dim: int) -> Callable:
    """The function itself, or `OneByOne` of it if, mapped, it factorises many matrices at once."""
    try:
        mapped = program_of(jax.vmap(function), 2, dim)
    except Exception:  # it cannot be mapped, and raises where it is
        return function
    return OneByOne(function) if factorises_many(mapped) else function


def _alone(function: Callable) -> Callable:
    """`function(parts, x)` mapped by a loop; its derivative in x is such a function again."""

    @jax.custom_batching.custom_vmap
    def value(parts: PyTree, x: Array) -> PyTree:
        return function(parts, x)

    @value.def_vmap
    def _(size: int, mapped: PyTree, parts: PyTree, x: Array) -> tuple[PyTree, PyTree]:
        del size
        moving, fixed = eqx.partition((parts, x), tuple(mapped))
        out = jax.lax.map(lambda point: value(*eqx.combine(point, fixed)), moving)
        return out, jax.tree.map(lambda _: True, out)

    @jax.custom_jvp
    def differentiable(parts: PyTree, x: Array) -> PyTree:
        return value(parts, x)

    def derivative(primals: PyTree, tangents: PyTree) -> tuple[PyTree, PyTree]:
        if not all(map(_is_zero, jax.tree.leaves(tangents[0], is_leaf=_is_zero))):
            return jax.jvp(function, primals, jax.tree.map(_filled, tangents, is_leaf=_is_zero))
        slope = _alone(lambda parts, x: (function(parts, x), jax.jacrev(function, 1)(parts, x)))
        values, slopes = slope(*primals)
        along = _filled(tangents[1])
        return values, jax.tree.map(lambda v, s: (s @ along).astype(v.dtype), values, slopes)

    differentiable.defjvp(derivative, symbolic_zeros=True)
    return differentiable


def _is_zero(tangent: object) -> bool:
    return isinstance(tangent, jax.custom_derivatives.SymbolicZero)


def _filled(tangent: PyTree) -> PyTree:
    """A symbolic zero as an array of zeros; other tangents unchanged."""
    return jnp.zeros(tangent.shape, tangent.dtype) if _is_zero(tangent) else tangent

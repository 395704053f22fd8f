"""The laws every involution keeps, over one table of all of them (`zoo.py`)."""

from functools import cache
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

import involutive as inv
from zoo import ALL, INVOLUTIONS, LATTICE, skewed

POINTS = 64


class Seen(NamedTuple):
    """What one involution does to many points, and what the kernel makes of it."""

    there: Array
    log_det: Array
    jacobian: Array
    log_ratio: Array
    back: Array
    log_ratio_back: Array


@eqx.filter_jit
def observe(kernel: inv.Kernel, z: Array) -> Seen:
    """Differentiate f, and go there and back through the kernel, which is how f is used."""
    dim = kernel.target.dim

    def map_with_log_det(z: Array) -> tuple[Array, tuple[Array, Array]]:
        there, log_det = kernel.involution(z)
        return there, (there, log_det)

    def one(z: Array) -> Seen:
        jacobian, (there, log_det) = jax.jacfwd(map_with_log_det, has_aux=True)(z)
        move = kernel.propose(kernel.init(z[:dim]), z[dim:])
        undo = kernel.propose(move.state, move.auxiliary)
        back = jnp.concatenate([undo.state.position, undo.auxiliary])
        return Seen(there, log_det, jacobian, move.log_ratio, back, undo.log_ratio)

    return jax.vmap(one)(z)


@eqx.filter_jit
def apply(f: inv.AbstractInvolution, z: Array) -> tuple[Array, Array]:
    return jax.vmap(f)(z)


def points(f: inv.AbstractInvolution, n: int = POINTS) -> Array:
    """Points that reach three times as far as a standard normal; on the lattice if f is."""
    z = 3 * jr.normal(jr.key(1), (n, f.size))
    return f.snap(z) if isinstance(f, inv.Lattice) else z


def examine(name: str, count: int = POINTS) -> tuple[inv.AbstractInvolution, Array, Seen]:
    """Build the involution, and look at it at `count` points."""
    f = ALL[name](jr.key(3))
    dim = f.size // 2
    kernel = inv.Kernel(skewed(dim), f, inv.standard_normal(f.size - dim))
    z = points(f, count)
    return f, z, observe(kernel, z)


examined = cache(examine)  # once for all laws


def relative(a: Array, b: Array) -> float:
    """The largest error, relative to the size of the point."""
    return float(jnp.max(jnp.abs(a - b) / (1 + jnp.max(jnp.abs(b), axis=-1, keepdims=True))))


# these take longest to compile, and simpler ones of their kind stay in the fast suite
DEEP = {"lattice-nested", "lattice-paper", "lattice-swap-network", "hostile-paper", "paper-scaled",
        "conjugate-spline"}  # fmt: skip


def names(table, prefix=""):
    """A table's names, for `parametrize`."""
    return [
        pytest.param(name, marks=pytest.mark.deep if prefix + name in DEEP else ())
        for name in table
    ]


# all laws of one involution in turn: it is compiled once
table = pytest.mark.parametrize("name", names(ALL), scope="module")


@table
def test_undoes_itself(name):
    _, z, seen = examined(name)
    assert seen.there.shape == z.shape and seen.log_det.shape == (POINTS,)
    assert relative(seen.back, z) <= 1e-9


@pytest.mark.parametrize("name", names(LATTICE, "lattice-"), scope="module")
def test_undoes_itself_bit_for_bit_on_the_lattice(name):
    _, z, seen = examined(f"lattice-{name}")
    assert bool(jnp.all(seen.back == z)) and bool(jnp.all(seen.log_det == 0))


@table
def test_moves(name):
    """The identity keeps every other law."""
    _, z, seen = examined(name)
    assert relative(seen.there, z) > 0.1


@table
def test_log_det_is_autodiffs(name):
    _, _, seen = examined(name)
    expected = jnp.linalg.slogdet(seen.jacobian)[1]
    np.testing.assert_allclose(seen.log_det, expected, rtol=1e-9, atol=1e-9)


@table
def test_log_ratio_is_antisymmetric(name):
    """The move back has minus the log ratio: detailed balance, through `Kernel.propose`."""
    _, _, seen = examined(name)
    assert bool(jnp.all(jnp.isfinite(seen.log_ratio)))
    assert float(jnp.std(seen.log_ratio)) > 0.01  # or minus it would be it
    np.testing.assert_allclose(seen.log_ratio_back, -seen.log_ratio, rtol=1e-8, atol=1e-8)


# where the determinant changes from place to place, so that a wrong one is seen
BENDS = {
    "function-bent", "function-spline", "function-autoregressive", "conjugate-spline",
    "conjugate-autoregressive", "nested", "directed-spline",
}  # fmt: skip


@pytest.mark.parametrize("name", names(INVOLUTIONS), scope="module")
def test_volume_preservation_is_known_where_it_holds(name):
    f, _, seen = examined(name)
    assert f.volume_preserving == (name not in BENDS)
    if f.volume_preserving:
        assert bool(jnp.all(seen.log_det == 0))
    else:
        assert float(jnp.std(seen.log_det)) > 1e-3


@table
def test_float32(name):
    """The same in float32, where every array is made and used in float32."""
    with jax.enable_x64(False):
        f = ALL[name](jr.key(3))
        z = points(f)
        there, log_det = apply(f, z)
        back, log_det_back = apply(f, there)
        assert z.dtype == there.dtype == log_det.dtype == jnp.float32
        assert relative(back, z) <= 2e-3
        np.testing.assert_allclose(log_det_back, -log_det, rtol=5e-3, atol=5e-3)
        if name.startswith("lattice"):
            assert bool(jnp.all(back == z))

"""The laws every bijection keeps, over one table: its inverse, and its log-determinants."""

from functools import cache
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flowjax import bijections as fb
from jaxtyping import Array
from paramax import unwrap

import involutive as inv
from involutive.bijections.cascades import affine_cascade, constant_log_det
from involutive.bijections.couplings import AffineCoupling, mlp
from involutive.bijections.whitening import Whitening, whitening

DIM, POINTS = 4, 16


def trained(g):
    """A bijection as training leaves it: parameters away from where they start."""
    leaves, structure = jax.tree.flatten(g)
    keys = jr.split(jr.key(5), len(leaves))
    moved = [
        leaf + 0.3 * jr.normal(key, leaf.shape) if eqx.is_inexact_array(leaf) else leaf
        for leaf, key in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(structure, moved)


def spline():
    return fb.Vmap(fb.RationalQuadraticSpline(knots=4, interval=3), axis_size=DIM)


MATRIX = jnp.eye(DIM) + 0.4 * jnp.tril(jnp.ones((DIM, DIM)), -1)
TABLE = {
    "additive-coupling": lambda: inv.AdditiveCoupling(mlp(8)(jr.key(0), 1, 3), DIM, 1),
    "additive-coupling-flipped": lambda: inv.AdditiveCoupling(
        mlp(8)(jr.key(0), 3, 1), DIM, 1, flip=True
    ),
    "additive-cascade": lambda: inv.additive_cascade(jr.key(1), DIM, blocks=2),
    "affine-coupling": lambda: trained(AffineCoupling(jr.key(2), DIM, 2, width=8)),
    "affine-cascade": lambda: trained(affine_cascade(jr.key(3), DIM, layers=2, width=8)),
    "affine-cascade-2d": lambda: trained(affine_cascade(jr.key(3), 2, layers=2, width=8)),
    "whitening": lambda: Whitening(jnp.arange(4.0), 2 * MATRIX),
    "whitening-of-draws": lambda: whitening(jr.normal(jr.key(4), (50, DIM)) @ MATRIX),
    "affine": lambda: fb.Affine(jnp.arange(4.0), jnp.array([0.5, 1.0, 2.0, 3.0])),
    "triangular": lambda: fb.TriangularAffine(jnp.arange(4.0), MATRIX),
    "permute": lambda: fb.Permute(jnp.array([2, 0, 3, 1])),
    "spline": lambda: trained(spline()),
    "inverted": lambda: fb.Invert(trained(spline())),
    "chain": lambda: fb.Chain([fb.Affine(jnp.ones(4), 2 * jnp.ones(4)), trained(spline())]),
}
BENDS = {"affine-coupling", "affine-cascade", "affine-cascade-2d", "spline", "inverted", "chain"}


class Seen(NamedTuple):
    there: Array
    log_det: Array
    jacobian: Array
    back: Array
    log_det_back: Array


@eqx.filter_jit
def observe(g, x):
    g = unwrap(g)

    def one(x):
        there, log_det = g.transform_and_log_det(x)
        back, log_det_back = g.inverse_and_log_det(there)
        return Seen(there, log_det, jax.jacfwd(g.transform)(x), back, log_det_back)

    return jax.vmap(one)(x)


@cache
def examined(name):
    g = TABLE[name]()
    x = 2 * jr.normal(jr.key(6), (POINTS, g.shape[0]))
    return g, x, observe(g, x)


# all laws of one bijection in turn: it is compiled once
table = pytest.mark.parametrize("name", TABLE, scope="module")


@table
def test_the_inverse_undoes_it_and_it_moves(name):
    _, x, seen = examined(name)
    np.testing.assert_allclose(seen.back, x, rtol=1e-9, atol=1e-9)
    assert float(jnp.max(jnp.abs(seen.there - x))) > 0.1


@table
def test_log_dets_are_autodiffs_both_ways(name):
    _, _, seen = examined(name)
    expected = np.linalg.slogdet(np.asarray(seen.jacobian))[1]
    log_det = jnp.broadcast_to(seen.log_det, (POINTS,))
    np.testing.assert_allclose(log_det, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(seen.log_det_back, -seen.log_det, rtol=1e-9, atol=1e-9)


@table
def test_a_constant_determinant_is_known_where_it_is(name):
    """What says it is constant lets blocks leave it out, so it must not be wrong."""
    g, _, seen = examined(name)
    assert constant_log_det(g) == (name not in BENDS)
    varies = float(jnp.ptp(jnp.linalg.slogdet(seen.jacobian)[1])) > 1e-6
    assert varies == (name in BENDS)


def test_affine_couplings_start_at_the_identity():
    g = AffineCoupling(jr.key(2), DIM, 2, width=8)
    x = jnp.arange(4.0)
    there, log_det = g.transform_and_log_det(x)
    np.testing.assert_array_equal(there, x)
    assert log_det == 0

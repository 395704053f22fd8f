"""Functions that work on many points at once are the functions of one point."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from involutive._xla.batch_last import many_at_once


@many_at_once
def _weighed(weights, x):
    return jnp.sum(weights[:, None] * x**2, axis=0)


def _plain(weights, x):
    return jnp.sum(weights * x**2)


WEIGHTS = jnp.arange(1.0, 4.0)
POINTS = jnp.linspace(-1.0, 2.0, 24).reshape(2, 4, 3)


def _each(function):
    """One point, many, many of many, weights mapped too, and derivatives of all of them."""
    grad = jax.grad(function, (0, 1))
    return [
        function(WEIGHTS, POINTS[0, 0]),
        jax.vmap(function, (None, 0))(WEIGHTS, POINTS[0]),
        jax.jit(jax.vmap(jax.vmap(function, (None, 0)), (None, 0)))(WEIGHTS, POINTS),
        jax.vmap(function)(jnp.stack([WEIGHTS, 2 * WEIGHTS]), POINTS[:, 0]),
        jax.vmap(jax.vmap(function, (None, 0)))(jnp.stack([WEIGHTS, 2 * WEIGHTS]), POINTS),
        grad(WEIGHTS, POINTS[0, 0]),
        jax.vmap(grad, (None, 0))(WEIGHTS, POINTS[0]),
        jax.grad(lambda w: jnp.sum(jax.vmap(function, (None, 0))(w, POINTS[0])))(WEIGHTS),
        jax.hessian(function, 1)(WEIGHTS, POINTS[0, 0]),
    ]


def test_there_may_be_no_point_at_all():
    none = jax.vmap(jax.vmap(_weighed, (None, 0)), (None, 0))(WEIGHTS, POINTS[:, :0])
    assert none.shape == (2, 0)
    none = jax.vmap(lambda x: jax.vmap(lambda y: _weighed(WEIGHTS, y))(x))(POINTS[:0])
    assert none.shape == (0, 4)


def test_the_same_numbers_however_it_is_mapped_or_differentiated():
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b), _each(_weighed), _each(_plain))


@pytest.mark.parametrize("lead", [(8,), (2, 4)])
def test_mapped_over_points_it_is_called_once_with_all_of_them(lead):
    calls = []

    @many_at_once  # afresh: JAX may know the trace of a function it has met
    def weighed(weights, x):
        calls.append(x.shape)
        return jnp.sum(weights[:, None] * x**2, axis=0)

    mapped = jax.vmap(weighed, (None, 0))
    for _ in lead[1:]:
        mapped = jax.vmap(mapped, (None, 0))
    mapped(WEIGHTS, POINTS.reshape(*lead, 3))
    assert calls[-1] == (3, 8)

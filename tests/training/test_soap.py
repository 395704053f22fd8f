"""SOAP: that it is Adam in the right basis, and that the basis is worth it."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from involutive.training.soap import scale_by_soap


def _losses(optimiser, loss, params, steps):
    def step(carry, _):
        params, state = carry
        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimiser.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), value

    return jax.lax.scan(step, (params, optimiser.init(params)), None, steps)[1]


def test_vectors_have_adams_update(getkey):
    gradient = {"bias": jr.normal(getkey(), (5,)), "weight": jr.normal(getkey(), (4, 3))}
    soap, adam = scale_by_soap(), optax.scale_by_adam(0.9, 0.99)
    ours, theirs = (each.update(gradient, each.init(gradient))[0] for each in (soap, adam))
    np.testing.assert_array_equal(ours["bias"], theirs["bias"])
    assert not np.allclose(ours["weight"], theirs["weight"])


def test_a_wide_matrix_has_the_update_of_its_transpose(getkey):
    tall = jr.normal(getkey(), (6, 3))
    soap = scale_by_soap()
    one, other = (jax.jit(soap.update)(g, soap.init(g))[0] for g in ({"a": tall}, {"a": tall.T}))
    np.testing.assert_array_equal(one["a"], other["a"].T)


def test_updates_turn_with_the_coordinates(getkey):
    """SOAP of a rotated gradient is the rotated update, which Adam's is not."""
    key_left, key_right = jr.split(getkey())
    left, right = (
        jnp.linalg.qr(jr.normal(k, (n, n)))[0] for k, n in ((key_left, 4), (key_right, 3))
    )
    soap = scale_by_soap(every=1, eps=0.0)
    plain, turned = jnp.zeros((4, 3)), jnp.zeros((4, 3))
    states, update = [soap.init(plain), soap.init(turned)], jax.jit(soap.update)
    key = getkey()
    for i in range(60):  # the bases need some updates to settle
        gradient = jnp.diag(jnp.array([8.0, 4.0, 2.0, 1.0])) @ jr.normal(jr.fold_in(key, i), (4, 3))
        gradient = gradient @ jnp.diag(jnp.array([9.0, 3.0, 1.0]))
        plain, states[0] = update(gradient, states[0])
        turned, states[1] = update(left @ gradient @ right.T, states[1])
    np.testing.assert_allclose(turned, left @ plain @ right.T, atol=0.05)


def test_a_badly_scaled_rotated_quadratic_falls_faster_than_by_adam(getkey):
    key_left, key_right, key_goal = jr.split(getkey(), 3)
    left = jnp.linalg.qr(jr.normal(key_left, (8, 8)))[0] * jnp.logspace(0, -1.5, 8)[:, None]
    right = jnp.linalg.qr(jr.normal(key_right, (4, 4)))[0] * jnp.logspace(0, -1.5, 4)[:, None]
    goal = jr.normal(key_goal, (8, 4))

    def loss(weight):
        return jnp.sum((left @ (weight - goal) @ right.T) ** 2)

    rate = optax.scale_by_learning_rate(0.02)
    soap, adam = (
        _losses(optax.chain(each, rate), loss, jnp.zeros((8, 4)), 300)[-1]
        for each in (scale_by_soap(), optax.scale_by_adam(0.9, 0.99))
    )
    assert soap < 0.5 * adam

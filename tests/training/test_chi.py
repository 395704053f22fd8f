"""χ: the exact law over the states of a rollout, against enumeration and against sampling."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import involutive as inv
from involutive.training.mgan.rollouts import (
    NEVER,
    expectation,
    log_chi,
    log_reject,
    rollouts,
    sampled_expectation,
)


def enumerated(accept: np.ndarray) -> np.ndarray:
    """The law over states by adding up every sequence of accept bits."""
    steps = accept.size
    law = np.zeros(steps + 1)
    for bits in itertools.product([False, True], repeat=steps):
        at, probability = 0, 1.0
        for bit in bits:
            probability *= accept[at] if bit else 1 - accept[at]
            at += bit
        law[at] += probability
    return law


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 6])
def test_equals_enumeration_and_sums_to_one(steps, getkey):
    accept = np.asarray(jr.uniform(getkey(), (steps,)))
    chi = np.exp(log_chi(jnp.log(accept)))
    np.testing.assert_allclose(chi, enumerated(accept), rtol=1e-12)
    np.testing.assert_allclose(chi.sum(), 1.0, rtol=1e-12)


@pytest.mark.parametrize("accept", list(itertools.product([0.0, 0.3, 1.0], repeat=3)))
def test_zero_and_one_are_exact(accept):
    accept = np.array(accept)
    chi = np.exp(log_chi(jnp.maximum(jnp.log(accept), NEVER)))
    np.testing.assert_allclose(chi, enumerated(accept), atol=1e-14)


def test_good_proposals_put_the_mass_on_the_last_state():
    """The printed algorithm leaves χ_{b,b} out, which is all of it when every move is accepted."""
    np.testing.assert_allclose(np.exp(log_chi(jnp.zeros(4))), [0, 0, 0, 0, 1])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize(
    "log_accept", [0.0, -1e-300, -1e-30, -1e-9, -1e-5, -0.7, -90.0, -800.0, NEVER]
)
def test_gradients_are_finite_everywhere(log_accept, dtype):
    values = jnp.array([1.0, -2.0, 3.0, -4.0], dtype)

    def loss(log_accept):
        return expectation(values, log_chi(log_accept))

    for other in (0.0, -0.3, NEVER):
        at = jnp.array([other, log_accept, other], dtype)
        assert jnp.isfinite(loss(at)) and jnp.all(jnp.isfinite(jax.grad(loss)(at)))


def test_gradient_is_that_of_the_enumeration(getkey):
    accept = jr.uniform(getkey(), (4,), minval=0.05, maxval=0.95)
    values = jr.normal(getkey(), (5,))
    gradient = jax.grad(lambda a: expectation(values, log_chi(jnp.log(a))))(accept)
    step = 1e-6
    for i in range(4):
        up, down = (np.asarray(accept.at[i].add(s)) for s in (step, -step))
        slope = (enumerated(up) - enumerated(down)) @ np.asarray(values) / (2 * step)
        np.testing.assert_allclose(gradient[i], slope, rtol=1e-5)


def test_rejection_is_accurate_where_acceptance_is_almost_certain():
    np.testing.assert_allclose(np.exp(log_reject(jnp.array(-1e-12))), 1e-12, rtol=1e-6)


def test_sampled_bits_agree_in_the_mean_and_in_the_gradient(getkey):
    log_accept = jnp.log(jnp.array([0.8, 0.3, 0.6]))
    values = jnp.array([1.0, -1.0, 0.5, 2.0])
    uniforms = jr.uniform(getkey(), (40_000, 3))
    sampled = jax.vmap(jax.value_and_grad(sampled_expectation, argnums=1), (None, None, 0))
    draws, slopes = sampled(values, log_accept, uniforms)
    exact, slope = jax.value_and_grad(lambda a: expectation(values, log_chi(a)))(log_accept)
    for found, expected in ((draws[:, None], exact[None]), (slopes, slope)):
        error = np.asarray(found).std(axis=0) / np.sqrt(len(uniforms))
        assert np.all(np.abs(np.asarray(found).mean(axis=0) - expected) < 4 * error)
        assert np.all(error > 0)


def test_rollouts_visit_what_the_kernel_proposes(getkey):
    kernel = inv.random_walk(inv.targets.gaussian(2), 1.5)
    starts, key = jr.normal(getkey(), (5, 2)), getkey()
    paths = rollouts(kernel, starts, key, 3)
    assert paths.positions.shape == (5, 4, 2) and paths.log_accept.shape == (5, 3)
    density = jax.vmap(jax.vmap(kernel.target.log_density))(paths.positions)
    np.testing.assert_allclose(
        paths.log_accept, np.minimum(density[:, 1:] - density[:, :-1], 0.0), atol=1e-12
    )
    np.testing.assert_array_equal(paths.positions[:, 0], starts)


@pytest.mark.deep
def test_states_without_density_are_never_reached(getkey):
    """Outside the support a rollout goes on, but the chain does not: weights and gradients hold."""
    inside = inv.Target(
        lambda x: jnp.where(jnp.all(jnp.abs(x) < 1), -jnp.sum(x**2), -jnp.inf), dim=2
    )
    kernel = inv.random_walk(inside, 1.0)
    starts, key = 0.1 * jr.normal(getkey(), (64, 2)), getkey()

    def mean_square(starts):
        paths = rollouts(kernel, starts, key, 3)
        chi = jnp.exp(jax.vmap(log_chi)(paths.log_accept))
        return jnp.sum(chi * jnp.sum(paths.positions**2, axis=2)) / 64

    value, gradient = jax.value_and_grad(mean_square)(starts)
    assert value < 2.0 and jnp.all(jnp.isfinite(gradient))

"""Auxiliary distributions that depend on the state, persistent ones, and what they refuse."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flowjax.distributions import StandardNormal

import involutive as inv
from involutive.training.mgan.rollouts import rollouts


def langevin(step: float = 0.8) -> tuple[inv.Kernel, inv.Target]:
    target = inv.targets.gaussian(2)
    drift = lambda x: x + 0.5 * step**2 * jax.grad(target.log_density)(x)  # noqa: E731
    law = inv.ConditionalNormal(drift, lambda x: jnp.full(2, jnp.log(step)), 2)
    return inv.metropolis_hastings(target, law), target


def test_the_ratio_is_that_of_metropolis_hastings(getkey):
    kernel, target = langevin()
    x, y = jr.normal(getkey(), (2,)), jr.normal(getkey(), (2,))
    move = kernel.propose(kernel.init(x), y)
    q = kernel.auxiliary.log_prob
    wanted = target.log_density(y) - target.log_density(x) + q(x, condition=y) - q(y, condition=x)
    np.testing.assert_allclose(move.log_ratio, wanted, rtol=1e-6)
    np.testing.assert_array_equal(move.state.position, y)
    np.testing.assert_array_equal(move.auxiliary, x)


def test_a_rollout_draws_each_auxiliary_where_it_is_used(getkey):
    """Here π is the next state, so it must lie near half of the state it was drawn at."""
    law = inv.ConditionalNormal(lambda x: 0.5 * x, lambda x: jnp.full(2, -6.0), 2)
    kernel = inv.metropolis_hastings(inv.targets.gaussian(2), law)
    paths = rollouts(kernel, jnp.full((4, 2), 8.0), getkey(), 3)
    halves = np.array([8.0, 4.0, 2.0, 1.0])[None, :, None]
    np.testing.assert_allclose(paths.positions, np.broadcast_to(halves, (4, 4, 2)), atol=0.05)


def test_memory_keeps_a_direction_and_none_is_the_kernel_itself(getkey):
    plain = inv.hmc(inv.targets.gaussian(1), 0.3, 1)
    keys = jr.split(getkey(), 200)

    def momenta(memory: float) -> np.ndarray:
        kernel = inv.Persistent(plain, memory)
        state = kernel.init(jnp.zeros(1))
        _, seen = jax.lax.scan(
            lambda s, bits: (new := kernel.step(jr.wrap_key_data(bits), s)[0], new.carried.value),
            state,
            jr.key_data(keys),
        )
        return np.asarray(seen)[:, 0]

    def correlation(x: np.ndarray) -> float:
        return float(np.corrcoef(x[:-1], x[1:])[0, 1])

    assert correlation(momenta(0.95)) > 0.6 > 0.3 > abs(correlation(momenta(0.0)))


def test_refusals():
    target, flip = inv.targets.gaussian(2), inv.SignFlipBlock([1, 1, -1, -1])
    three = inv.ConditionalNormal(lambda x: x[:2], lambda x: jnp.zeros(2), 3, 2)
    with pytest.raises(inv.InputError, match=r"the state of 2 coordinates, got .* \(3,\)"):
        inv.Kernel(target, flip, three)
    with pytest.raises(inv.InputError, match=r"proposal must be .* \(2,\), got \(3,\)"):
        inv.metropolis_hastings(target, StandardNormal((3,)))
    with pytest.raises(inv.InputError, match=r"memory must be in \[0, 1\), got 1"):
        inv.Persistent(inv.hmc(target, 0.1, 1), 1.0)
    with pytest.raises(inv.InputError, match=r"must be standard normal.*got ConditionalNormal"):
        inv.Persistent(langevin()[0])
    with pytest.raises(inv.InputError, match=r"signs must be a list of 1 and -1, got \[1, 0\]"):
        inv.SignFlipBlock([1, 0])

"""Auxiliary distributions that depend on the state, persistent ones, and what they refuse."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flowjax.distributions import Normal, StandardNormal

import involutive as inv
from involutive.training.fit import TrainConfig, fit
from involutive.training.mgan.config import MganConfig
from involutive.training.mgan.objective import Mgan
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


def test_the_ratio_of_several_tries_is_that_of_liu_liang_and_wong(getkey):
    """Sums of weights of the tries and of the references, where φ takes the chosen one's place."""
    target, law = inv.targets.mog2(), langevin()[0].auxiliary
    kernel = inv.multiple_try(target, law, tries=4)
    x = jr.normal(getkey(), (2,))
    pi = kernel.draw_auxiliary(getkey(), x)
    points = pi.reshape(7, 2)
    move = kernel.propose(kernel.init(x), pi)

    def total(tries, given):
        log_w = [target.log_density(y) - law.log_prob(y, condition=given) for y in tries]
        return jax.scipy.special.logsumexp(jnp.stack(log_w))

    wanted = total(points[:4], x) - total([x, *points[4:]], points[0])
    np.testing.assert_allclose(move.log_ratio, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(move.state.position, points[0])
    np.testing.assert_array_equal(move.auxiliary.reshape(7, 2), [x, *points[4:], *points[1:4]])


def test_more_tries_of_an_independent_proposal_are_accepted_more():
    """With many tries the chosen one is nearly a draw of the target."""
    target, wide = inv.targets.mog6(), Normal(jnp.zeros(2), jnp.full(2, 6.0))
    one = inv.metropolis_hastings(target, wide)
    many = inv.multiple_try(target, wide, tries=16)
    rates = [
        inv.sample(
            k, key=0, num_chains=64, num_samples=50, num_warmup=0, progress=False
        ).acceptance_rate.mean()
        for k in (one, many)
    ]
    assert rates[1] > 3 * rates[0]


@pytest.fixture(scope="module")
def learned():
    """Metropolis-Hastings whose proposal's mean and scale are networks of the state, trained."""
    key_mean, key_scale = jr.split(jr.key(0))
    target = inv.targets.mog2_1d()
    network = lambda key: eqx.nn.MLP(1, 1, 16, 1, jnp.tanh, key=key)  # noqa: E731
    law = inv.ConditionalNormal(network(key_mean), network(key_scale), 1)
    before = inv.metropolis_hastings(target, law, inv.standard_normal(1))
    config = MganConfig.mixing(decay=600, scale=2.0, batch=64, critic_width=16, first_ratio=0.0)
    loop = TrainConfig(600, 600, None, keep="last", monitor=0)
    samples = np.asarray(target.sample(jr.key(1), 2000))
    return before, fit(before, Mgan(config), samples, key=2, config=loop, progress=False).kernel


@pytest.mark.deep
def test_a_conditional_proposal_is_learned(learned):
    """The networks in Y(π|φ) have gradients through π, φ' and both densities."""
    runs = [
        inv.sample(k, key=0, num_chains=64, num_samples=100, num_warmup=0, progress=False)
        for k in learned
    ]
    rates = [float(run.acceptance_rate.mean()) for run in runs]
    assert rates[1] > 1.3 * rates[0]


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
    with pytest.raises(inv.InputError, match=r"proposal must be .* \(2,\), got \(3,\)"):
        inv.multiple_try(target, StandardNormal((3,)), tries=2)
    with pytest.raises(inv.InputError, match=r"tries must be at least 2, got 1"):
        inv.multiple_try(target, StandardNormal((2,)), tries=1)
    with pytest.raises(inv.InputError, match=r"given nothing or the state, got .* \(3,\)"):
        inv.multiple_try(target, three, tries=2)
    with pytest.raises(inv.InputError, match=r"memory must be in \[0, 1\), got 1"):
        inv.Persistent(inv.hmc(target, 0.1, 1), 1.0)
    with pytest.raises(inv.InputError, match=r"must be standard normal.*got ConditionalNormal"):
        inv.Persistent(langevin()[0])
    with pytest.raises(inv.InputError, match=r"signs must be a list of 1 and -1, got \[1, 0\]"):
        inv.SignFlipBlock([1, 0])

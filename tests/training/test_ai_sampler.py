"""The Ai-sampler's objective: its network, its critic, and that it raises acceptance."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import involutive as inv
from involutive.training.ai_sampler import AiSampler, AiSamplerConfig, ai_network, logit
from involutive.training.fit import TrainConfig, fit, movement


def sampler(last_scale: float = 1.0) -> inv.Kernel:
    from involutive.bijections.couplings import mlp

    network = ai_network(jr.key(0), 1, layers=2, make=mlp(16, last_scale=last_scale))
    return inv.Kernel(inv.targets.gaussian(1), network, inv.standard_normal(1))


def test_the_network_is_an_involution_that_preserves_volume(getkey):
    f = ai_network(getkey(), 2, layers=3)
    z = 3 * jr.normal(getkey(), (50, 4))
    there, log_det = jax.jit(jax.vmap(f))(z)
    back, _ = jax.jit(jax.vmap(f))(there)
    np.testing.assert_allclose(back, z, atol=1e-9)
    assert (np.asarray(log_det) == 0).all() and np.abs(there - z).max() > 0.1


def test_the_critic_changes_its_sign_under_the_involution(getkey):
    kernel, objective = sampler(), AiSampler(AiSamplerConfig(batch=16, critic_width=8))
    memory = objective.init(kernel, getkey())
    z, moved = objective._points(kernel, kernel.target.sample(getkey(), 50), getkey())
    there = logit(memory.critic, z, moved)
    back = logit(memory.critic, moved, jax.vmap(lambda z: kernel.involution(z)[0])(moved))
    np.testing.assert_allclose(back, -there, atol=1e-9)


@pytest.mark.deep
def test_training_raises_acceptance(getkey):
    kernel = sampler(3.0)
    objective = AiSampler(AiSamplerConfig(batch=64, critic_width=16, critic_steps=2))
    samples = kernel.target.sample(getkey(), 1000)
    config = TrainConfig(steps=300, chunk=300, patience=None, monitor=0, keep="last")
    done = fit(kernel, objective, samples, key=0, config=config, progress=False)
    found = [
        movement(each, jnp.asarray(samples[:256]), jr.key(1))["acceptance"]
        for each in (kernel, done.kernel)
    ]
    assert found[1] > found[0] + 0.1
    assert not eqx.tree_equal(kernel, done.kernel)

"""Objectives without a critic: `Likelihood` and `LogVariance`, by what they reach."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from flowjax import bijections as fb
from flowjax.distributions import Normal

import involutive as inv
from involutive.bijections.cascades import affine_cascade
from involutive.bijections.couplings import mlp
from involutive.training.fit import TrainConfig, fit
from involutive.training.likelihood import (
    Likelihood,
    LogVariance,
    log_weight,
    proposal_law,
    proposal_log_density,
)

MEAN, SD = jnp.array([2.0, -1.0]), jnp.array([0.5, 2.0])
TARGET = inv.Target(lambda x: jnp.sum(-0.5 * ((x - MEAN) / SD) ** 2) + 3.0, 2)
LOOP = TrainConfig(300, 300, None)


def block(g) -> inv.Kernel:
    return inv.Kernel(TARGET, inv.FunctionBlock(g), inv.standard_normal(2))


def draws(key, n=2000):
    return MEAN[None] + SD[None] * jr.normal(key, (n, 2))


@pytest.mark.parametrize("objective", [Likelihood, LogVariance])
def test_an_affine_map_becomes_the_target(objective):
    """From N(0, I), both reach q = p, where every importance weight is the same."""
    kernel = block(fb.Affine(jnp.zeros(2), jnp.ones(2)))
    done = fit(kernel, objective(optax.adam(0.05)), draws(jr.key(0)), key=jr.key(1), config=LOOP)
    points = draws(jr.key(2), 500)
    weights = eqx.filter_vmap(log_weight, in_axes=(None, 0))
    before, after = (np.std(np.asarray(weights(k, points))) for k in (kernel, done.kernel))
    assert before > 1 and after < 0.1
    moved = np.asarray(proposal_law(done.kernel).sample(jr.key(3), (4000,)))
    np.testing.assert_allclose(moved.mean(axis=0), MEAN, atol=0.15)
    np.testing.assert_allclose(moved.std(axis=0), SD, rtol=0.1)


def test_the_held_out_likelihood_is_the_cross_entropy():
    kernel = block(fb.Affine(jnp.zeros(2), jnp.ones(2)))
    rows = draws(jr.key(0), 100)
    found = Likelihood(optax.adam(1e-3)).held_out(kernel, rows, jr.key(1))
    expected = -np.mean(np.asarray(Normal(jnp.zeros(2), jnp.ones(2)).log_prob(rows)))
    assert float(found) == pytest.approx(expected, rel=1e-12)
    q = [float(proposal_log_density(kernel, x)) for x in rows]
    assert float(found) == pytest.approx(-np.mean(q), rel=1e-12)


def test_log_variance_is_zero_where_the_proposal_is_the_target():
    """Whatever the target's constant; and positive elsewhere."""
    right = fb.Invert(fb.Affine(MEAN, SD))
    objective, rows = LogVariance(optax.adam(1e-3)), draws(jr.key(0), 100)
    assert float(objective.held_out(block(right), rows, jr.key(1))) == pytest.approx(0, abs=1e-20)
    wrong = fb.Invert(fb.Affine(MEAN, 1.5 * SD))
    assert float(objective.held_out(block(wrong), rows, jr.key(2))) > 0.05


def test_likelihood_trains_couplings_and_swap_networks():
    """An affine cascade in a function block, and `g⁻¹ ∘ Swap ∘ g`: the loss falls."""
    objective = Likelihood(optax.adam(3e-3), batch=64)
    swap = inv.swap_network(0, 2, 2, blocks=1, make=mlp(8))
    kernels = [
        block(affine_cascade(jr.key(0), 2, layers=2, width=8)),
        inv.Kernel(TARGET, swap, inv.standard_normal(2)),
    ]
    for kernel in kernels:
        held = eqx.filter_jit(lambda k: objective.held_out(k, draws(jr.key(5), 200), jr.key(6)))
        done = fit(kernel, objective, draws(jr.key(0)), key=jr.key(1), config=LOOP)
        assert float(held(done.kernel)) < float(held(kernel)) - 0.5


def test_what_cannot_be_trained_so_is_named():
    kernel = inv.random_walk(TARGET, 1.0)
    for objective, words in (
        (Likelihood(optax.adam(1e-3)), "likelihood training needs a FunctionBlock .* RandomWalk"),
        (LogVariance(optax.adam(1e-3)), "needs a kernel whose involution is a FunctionBlock"),
    ):
        with pytest.raises(inv.InputError, match=words):
            objective.init(kernel, jr.key(0))

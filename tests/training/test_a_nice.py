"""A-NICE-MC's own training."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flowjax.distributions import Normal

import involutive as inv
from involutive.bijections.couplings import mlp
from involutive.kernel.classical import a_nice_network
from involutive.training.a_nice import ANice, ANiceConfig, forward
from involutive.training.fit import TrainConfig, fit

SMALL = ANiceConfig(batch=16, critic_steps=2, critic_width=16, critic_depth=2, steps=3)


def kernel_on(target: inv.Target, initial: bool = True) -> inv.Kernel:
    dim = target.dim
    network = a_nice_network(jr.key(0), dim, make=mlp(16))
    return inv.a_nice_mc(
        target, network, Normal(jnp.zeros(dim), jnp.ones(dim)) if initial else None
    )


def test_rollouts_apply_f_forward_the_given_number_of_times(getkey):
    """With f a plain shift of x, `length` steps add it `length` times; v is fresh each time."""
    network = a_nice_network(jr.key(0), 1, make=lambda key, n_in, n_out: _One(n_out))
    x = jnp.zeros((2000, 1))
    run = eqx.filter_jit(forward)
    for length in (1, 3):
        moved, v = run(network, x, getkey(), jnp.asarray(length), 3)
        np.testing.assert_allclose(moved, length)
        # v ~ N(0, 1), shifted twice by one
        assert abs(float(v.mean()) - 2.0) < 0.1 and abs(float(v.std()) - 1.0) < 0.1


class _One(eqx.Module):
    size: int

    def __call__(self, x):
        return jnp.ones(self.size, x.dtype)


@pytest.mark.deep
def test_training_improves_its_held_out_measure(getkey):
    target = inv.targets.mixture([[-2.0], [2.0]], sd=0.5)
    config = TrainConfig(steps=200, chunk=100, patience=None, monitor=64)
    samples = target.sample(getkey(), 1000)
    done = fit(kernel_on(target), ANice(SMALL), samples, key=0, config=config, progress=False)
    assert done.skipped == 0
    assert all(np.isfinite(list(row.values())).all() for row in done.history)
    assert done.best["step"] > 0


@pytest.mark.deep
def test_v_is_kept_near_its_law(getkey):
    """The weight on v²/2 pulls the network's v back when nothing else does."""
    target = inv.targets.gaussian(1)
    kernel = kernel_on(target)
    data, objective = target.sample(getkey(), 200), ANice(SMALL)
    update = eqx.filter_jit(objective.update)
    memory = objective.init(kernel, getkey())
    figures = []
    for _ in range(3):
        kernel, memory, found = update(kernel, memory, data, getkey())
        figures.append(jax.tree.map(float, found))
    assert all(set(f) == {"critic_gap", "generator_loss", "v_loss", "skipped"} for f in figures)
    assert all(f["v_loss"] > 0 and f["skipped"] == 0 for f in figures)


def test_refusals(getkey):
    target = inv.targets.gaussian(1)
    with pytest.raises(inv.InputError, match="made by a_nice_mc, got one with RandomWalk"):
        ANice().init(inv.random_walk(target, 1.0), getkey())
    with pytest.raises(inv.InputError, match="initial distribution, got None"):
        ANice().init(kernel_on(target, initial=False), getkey())
    with pytest.raises(inv.InputError, match="batch must be at least 2, got 1"):
        ANiceConfig(batch=1)

"""The paper's bootstrap: training on the chain's own draws."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from flowjax.distributions import Normal

import involutive as inv
from involutive.bijections.couplings import mlp
from involutive.training.bootstrap import (
    BootstrapConfig,
    bootstrap,
    local_hmc,
    merged,
    refresh,
)
from involutive.training.fit import TrainConfig
from involutive.training.mgan.config import MganConfig
from involutive.training.mgan.objective import Mgan

X = Normal(jnp.zeros(1), jnp.ones(1))


def small_kernel() -> inv.Kernel:
    target = inv.targets.mixture([[-1.5], [1.5]], sd=0.5)
    network = inv.swap_network(3, 1, 3, blocks=1, make=mlp(16))
    return inv.Kernel(target, network, inv.standard_normal(3), X)


def test_discard_keeps_a_share_of_the_old_and_all_of_the_new():
    old, new = np.arange(10.0)[:, None], 100 + np.arange(4.0)[:, None]
    kept = merged(old, new, jr.key(0), 0.5)[:, 0]
    assert kept.size == 9 and (kept >= 100).sum() == 4
    assert set(kept[kept < 100]) < set(range(10)) and len(set(kept)) == 9
    np.testing.assert_array_equal(merged(None, new, jr.key(1), 0.5), new)
    np.testing.assert_array_equal(merged(old, new, jr.key(2), 1.0), new)


def test_local_hmc_finds_a_step_size(getkey):
    wide = inv.Target(lambda x: -0.5 * jnp.sum((x / 0.01) ** 2), 1)
    law = Normal(jnp.zeros(1), jnp.full(1, 0.01))
    step_size = float(local_hmc(wide, getkey(), law).involution.step_size)
    assert 0.0009 < step_size < 0.03


def test_refreshed_draws_are_of_the_target(getkey):
    target = inv.targets.gaussian(1)
    config = BootstrapConfig(chains=32, draws=300, burn_in=20)
    draws, rate = refresh(inv.hmc(target, 0.3, 5), getkey(), config, X)
    assert draws.shape == (32 * 300, 1) and rate > 0.9
    assert abs(draws.mean()) < 0.05 and abs(draws.var() - 1) < 0.06


@pytest.mark.deep
def test_rounds_go_on_from_each_other():
    config = BootstrapConfig(
        rounds=2,
        train=TrainConfig(steps=20, chunk=20, patience=None, monitor=32),
        chains=32,
        draws=40,
        burn_in=10,
    )
    objective = Mgan(MganConfig.tuned(batch=16, critic_width=8))
    done = bootstrap(small_kernel(), objective, key=0, config=config, progress=False)
    # the first draws, half of which were discarded, and the second
    assert done.samples.shape == (32 * 40 // 2 + 32 * 40, 1)
    assert [row["round"] for row in done.fit.history] == [0, 0, 1, 1]
    assert all(0 < row["refresh_acceptance"] <= 1 for row in done.fit.history)
    # the optimiser of the second round is that of the first: it has counted the updates of both
    counts = [int(c) for _, c in optax.tree_utils.tree_get_all_with_path(done.fit.memory, "count")]
    assert max(counts) >= 2 * 20
    assert np.abs(np.sort(done.samples[:, 0])[[0, -1]]).min() > 1.5


def test_refusals():
    with pytest.raises(inv.InputError, match=r"discard must be in \[0, 1\], got 2"):
        BootstrapConfig(discard=2.0)
    with pytest.raises(inv.InputError, match=r"local must be in \[0, 1\), got 1"):
        BootstrapConfig(local=1.0)
    first = inv.random_walk(inv.targets.gaussian(2), 1.0)
    with pytest.raises(inv.InputError, match="dimension 1, got one of dimension 2"):
        bootstrap(small_kernel(), Mgan(), key=0, first=first)

"""Adversarial training: the objective's parts, its presets, and that it learns."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from flowjax.distributions import Normal

import involutive as inv
from involutive.bijections.couplings import mlp
from involutive.training import fit as loop
from involutive.training.fit import TrainConfig, fit
from involutive.training.mgan import distance
from involutive.training.mgan.config import MganConfig
from involutive.training.mgan.critics import Critic, clamped, gradient_penalty, pick
from involutive.training.mgan.objective import DEAD, Mgan
from involutive.training.mgan.rollouts import log_chi, rollouts
from involutive.training.objective import AbstractObjective

energy_distance = jax.jit(distance.energy_distance)
dependence = eqx.filter_jit(distance.dependence)
start_distance = eqx.filter_jit(distance.start_distance)
SHORT = TrainConfig(steps=40, chunk=20, patience=None, monitor=64)
SMALL = {"batch": 32, "critic_width": 16}


def small_kernel(last_scale: float = 0.5, initial: bool = True) -> inv.Kernel:
    """`g⁻¹ ∘ swap ∘ g` over 1 + 3 coordinates, for two modes on the line: quick to compile."""
    target = inv.targets.mixture([[-2.0], [2.0]], sd=0.5)
    law = Normal(jnp.zeros(1), jnp.ones(1)) if initial else None
    network = inv.swap_network(3, 1, 3, blocks=1, make=mlp(16, last_scale=last_scale))
    return inv.Kernel(target, network, inv.standard_normal(3), law)


def data_of(kernel: inv.Kernel, key, n: int = 400):
    return kernel.target.sample(key, n)


def test_clamp_moves_every_weight_inside(getkey):
    critic = clamped(Critic(getkey(), 2), 0.05)
    leaves = jax.tree.leaves(eqx.filter(critic, eqx.is_inexact_array))
    assert max(float(jnp.max(jnp.abs(leaf))) for leaf in leaves) == 0.05


def test_gradient_penalty_of_a_linear_critic_is_exact(getkey):
    """With the hidden layer always active, D is linear and its slope is known."""
    critic = Critic(getkey(), 2, width=3, scale=2.0)
    weight = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    layers = critic.net.layers
    critic = eqx.tree_at(
        lambda c: [c.net.layers[0].weight, c.net.layers[0].bias, c.net.layers[1].weight],
        critic,
        [weight, jnp.full(3, 100.0), jnp.array([[3.0, 4.0, 0.0]])],
    )
    assert layers[0].weight.shape == weight.shape
    points = jr.normal(getkey(), (8, 2)), jr.normal(getkey(), (8, 2))
    penalty = eqx.filter_jit(gradient_penalty)(critic, *points, getkey())
    np.testing.assert_allclose(penalty, (5 - 1) ** 2)


def test_pick_draws_states_by_their_weight(getkey):
    states = jnp.broadcast_to(jnp.arange(3.0)[None, :, None], (20_000, 3, 1))
    weights = jnp.array([0.2, 0.5, 0.3])
    picked = pick(states, jnp.broadcast_to(jnp.log(weights), (20_000, 3)), getkey())
    shares = [float(jnp.mean(picked == k)) for k in range(3)]
    np.testing.assert_allclose(shares, weights, atol=0.02)


def test_energy_distance_tells_laws_apart(getkey):
    x, y = jr.normal(getkey(), (2000, 2)), jr.normal(getkey(), (2000, 2))
    ones = jnp.ones(2000)
    assert abs(float(energy_distance(x, ones, y))) < 0.01
    assert float(energy_distance(x + 1.0, ones, y)) > 0.3
    # weights that undo a bias in x
    biased = jnp.concatenate([x[x[:, 0] > 0], x[x[:, 0] > 0], x[x[:, 0] <= 0]])
    half = jnp.where(biased[:, 0] > 0, 0.5, 1.0)
    assert float(energy_distance(biased, half, y)) < 0.01
    assert float(energy_distance(biased, jnp.ones(len(biased)), y)) > 0.02


def test_a_chain_that_stays_is_far_from_independence(getkey):
    target = inv.targets.gaussian(2)
    data = target.sample(getkey(), 500)
    still = inv.random_walk(target, 1e-3)
    moving = inv.hmc(target, 0.31, 5)  # a quarter turn in phase space: independent
    assert float(dependence(moving, data, getkey(), 2)) < 0.1
    assert float(dependence(still, data, getkey(), 2)) > 0.95


def test_start_distance_sees_a_far_start(getkey):
    target = inv.targets.gaussian(2)
    data = target.sample(getkey(), 300)
    near, far = (Normal(jnp.full(2, at), jnp.ones(2)) for at in (0.0, 8.0))
    walks = [inv.random_walk(target, 0.1, initial=law) for law in (near, far)]
    close, distant = (float(start_distance(walk, data, getkey(), 1)) for walk in walks)
    assert close < 0.1 < 2.0 < distant


@pytest.mark.deep
@pytest.mark.parametrize(
    "config",
    [
        MganConfig.paper(**SMALL),
        MganConfig.tuned(**SMALL),
        MganConfig.tuned(every=4, **SMALL),
        MganConfig.tuned(balance=0.3, data_steps=1, **SMALL),
        MganConfig.tuned(balance=0.0, pairwise=True, **SMALL),
        MganConfig.combined(**SMALL),
    ],
    ids=["paper", "tuned", "running", "both-terms", "pairs-only", "combined"],
)
def test_every_preset_trains(config, getkey):
    kernel = small_kernel()
    done = fit(kernel, Mgan(config), data_of(kernel, getkey()), key=0, config=SHORT, progress=False)
    assert done.skipped == 0 and len(done.history) == 3
    assert all(np.isfinite(list(row.values())).all() for row in done.history)
    assert (done.memory.critics.pairs is not None) == (config.pairwise and config.balance < 1)
    assert (done.memory.critics.states is None) == (config.balance == 0)
    if config.clamp is not None:
        leaves = jax.tree.leaves(eqx.filter(done.memory.critics, eqx.is_inexact_array))
        assert max(float(jnp.max(jnp.abs(leaf))) for leaf in leaves) <= config.clamp


class Worse(AbstractObjective):
    """Every update moves the first mean of the auxiliary law up, and up is worse."""

    def init(self, kernel, key):
        return jnp.zeros(())

    def update(self, kernel, memory, data, key):
        moved = eqx.tree_at(lambda k: k.auxiliary.means, kernel, kernel.auxiliary.means + 1)
        return moved, memory, {"skipped": jnp.zeros(())}

    def held_out(self, kernel, data, key):
        return kernel.auxiliary.means[0, 0]


@pytest.mark.parametrize(("keep", "mean"), [("best", 0.0), ("last", 40.0)])
def test_the_best_or_the_last_parameters_are_kept(keep, mean, monkeypatch):
    monkeypatch.setattr(loop, "LONG", 40 if keep == "last" else 41)  # compiled either way
    law = inv.GaussianMixture(jnp.ones(1), jnp.zeros((1, 1)), jnp.ones((1, 1, 1)))
    kernel = eqx.tree_at(lambda k: k.auxiliary, small_kernel(), law)
    config = TrainConfig(steps=40, chunk=20, patience=None, monitor=0, keep=keep)
    done = fit(kernel, Worse(), np.arange(100.0)[:, None], key=0, config=config, progress=False)
    assert float(done.kernel.auxiliary.means[0, 0]) == mean


def test_keep_is_best_or_last():
    with pytest.raises(inv.InputError, match=r"keep must be best or last, got 'first'"):
        TrainConfig(keep="first")


@pytest.fixture(scope="module")
def tuned():
    """One objective whose update is compiled once."""
    objective = Mgan(MganConfig.tuned(**SMALL))
    return objective, eqx.filter_jit(objective.update)


@pytest.mark.deep
def test_training_is_deterministic_and_moves_every_trainable_part(tuned, getkey):
    kernel, (objective, update) = small_kernel(), tuned
    data = data_of(kernel, getkey())
    memory, key = objective.init(kernel, getkey()), getkey()
    with jax.debug_key_reuse(False):
        first, again = (update(kernel, memory, data, key)[0] for _ in range(2))
    same = jax.tree.map(
        lambda a, b: bool(jnp.all(a == b)),
        *(eqx.filter(k.involution, eqx.is_inexact_array) for k in (first, again)),
    )
    assert jax.tree.all(same)
    old, new = (eqx.filter(k.involution, eqx.is_inexact_array) for k in (kernel, first))
    moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), old, new)
    assert jax.tree.all(moved)


@pytest.mark.deep
def test_learning_brings_the_chain_to_the_target(getkey):
    """From X = N(0, 1), between the modes, b = 2 steps come nearer to the target by training."""
    kernel = small_kernel()
    config = TrainConfig(steps=400, chunk=200, patience=None, monitor=0)
    objective = Mgan(MganConfig.tuned(scale=2.0, batch=64))
    done = fit(
        kernel, objective, data_of(kernel, getkey(), 2000), key=1, config=config, progress=False
    )
    assert done.best["held_out"] < 0.6 * done.history[0]["held_out"]


@pytest.mark.deep
def test_only_dead_training_is_rescued(tuned, getkey):
    kernel, (objective, update) = small_kernel(), tuned
    data = data_of(kernel, getkey())
    for before, rescued in ((0.5, 0.0), (DEAD / 2, 1.0)):
        memory = objective.init(kernel, getkey())._replace(acceptance=jnp.asarray(before))
        _, memory, figures = update(kernel, memory, data, getkey())
        assert float(figures["rescued"]) == rescued
        assert float(memory.acceptance) != before


@pytest.mark.deep
def test_dead_training_is_rescued_and_counted(getkey):
    """Where nothing is accepted Algorithm 1 has no gradient; the rescue restores one."""
    kernel = small_kernel(last_scale=60.0)
    data, moved = data_of(kernel, getkey()), {}
    plain = optax.sgd(1.0)  # the change of the parameters is the gradient
    for rescue in (None, 0.5):
        config = MganConfig.tuned(rescue=rescue, optimiser=plain, **SMALL)
        objective = Mgan(config)
        memory = objective.init(kernel, jr.key(0))._replace(acceptance=jnp.asarray(DEAD / 2))
        update = eqx.filter_jit(objective.update)
        new, memory, figures = update(kernel, memory, data, jr.key(1))
        assert float(figures["rescued"]) == 1.0 and float(memory.acceptance) < 10 * DEAD
        moved[rescue] = _distance(kernel, new)
    assert moved[0.5] > 10 * moved[None]


def test_a_softened_ratio_weighs_states_and_leaves_the_figure(getkey):
    kernel, objective = small_kernel(), Mgan(MganConfig.tuned(soften=4.0, margin=8.0))
    starts = jr.normal(getkey(), (16, kernel.target.dim))
    states, weights, acceptance = objective._states(kernel, starts, jr.key(3), 2, jnp.array(False))
    paths = rollouts(kernel, starts, jr.key(3), 2)
    np.testing.assert_array_equal(states, paths.positions)
    np.testing.assert_allclose(weights, jax.vmap(log_chi)(paths.softened(4.0, 8.0)))
    assert not np.allclose(weights, jax.vmap(log_chi)(paths.log_accept))
    np.testing.assert_allclose(acceptance, jnp.mean(jnp.exp(paths.log_accept)))


def test_some_rollouts_begin_where_running_chains_are(getkey):
    kernel, objective = small_kernel(), Mgan(MganConfig.tuned(every=3, **SMALL))
    running = objective.init(kernel, getkey()).running
    assert running.shape == (32, 1)  # a third of what three critic steps take
    plain = Mgan(MganConfig.tuned(**SMALL))
    assert plain.init(kernel, getkey()).running is None
    starts, law = (each._starts(kernel, running, jr.key(5), 32) for each in (objective, plain))
    np.testing.assert_array_equal(starts[::3], running[:11])
    others = np.arange(32) % 3 > 0
    np.testing.assert_array_equal(starts[others], law[others])


@pytest.mark.deep
def test_an_update_moves_the_running_chains(getkey):
    kernel, objective = small_kernel(), Mgan(MganConfig.tuned(every=4, age=1e9, **SMALL))
    memory = objective.init(kernel, getkey())
    update = eqx.filter_jit(objective.update)
    new = update(kernel, memory, data_of(kernel, getkey()), jr.key(1))[1]
    assert new.running.shape == memory.running.shape and new.running.dtype == memory.running.dtype
    assert 0.05 < float(jnp.mean(new.running != memory.running)) <= 1
    # and they are where rollouts begin: with other chains the same update teaches something else
    far = memory._replace(running=memory.running + 5)
    others = [update(kernel, m, data_of(kernel, jr.key(2)), jr.key(1))[2] for m in (memory, far)]
    assert others[0]["generator_loss"] != others[1]["generator_loss"]
    none = Mgan(MganConfig.tuned(every=4, balance=0.0, pairwise=True, **SMALL))
    assert none.init(kernel, getkey()).running is None


def test_running_chains_make_steps_of_the_kernel_and_begin_anew():
    kernel = inv.random_walk(inv.targets.gaussian(1), 0.5, Normal(jnp.full(1, 50.0), jnp.ones(1)))
    before = jnp.zeros((400, 1))
    for age, anew in ((1e9, 0.0), (4, 0.25), (1, 1.0)):
        objective = Mgan(MganConfig.tuned(every=1, age=age))
        after = objective._run_on(kernel, before, jr.key(0))
        assert float(jnp.mean(after > 25)) == pytest.approx(anew, abs=0.07)
        moved = np.asarray(after[after < 25])
        assert moved.size == 0 or 0.3 < (moved != 0).mean() <= 1


def _distance(kernel, other) -> float:
    parts = (eqx.filter(k.involution, eqx.is_inexact_array) for k in (kernel, other))
    apart = jax.tree.map(lambda a, b: jnp.sum(jnp.abs(a - b)), *parts)
    return float(sum(jax.tree.leaves(apart)))


def test_refusals(getkey):
    with pytest.raises(inv.InputError, match="neither clamp nor penalty"):
        MganConfig(clamp=None, penalty=None)
    with pytest.raises(inv.InputError, match=r"balance must be in \[0, 1\], got 1.5"):
        MganConfig(balance=1.5)
    with pytest.raises(inv.InputError, match="steps must be at least 1, got 0"):
        MganConfig(steps=0)
    with pytest.raises(inv.InputError, match=r"rescue must be in \(0, 1\], got 0"):
        MganConfig(rescue=0.0)
    with pytest.raises(inv.InputError, match="soften must be at least 1, got 0"):
        MganConfig(soften=0)
    with pytest.raises(inv.InputError, match="margin must not be negative, got -1"):
        MganConfig(margin=-1)
    with pytest.raises(inv.InputError, match="every must be at least 1, got 0"):
        MganConfig(every=0)
    with pytest.raises(inv.InputError, match="age must be at least 1, got 0"):
        MganConfig(age=0)
    with pytest.raises(inv.InputError, match="needs the kernel's initial law, got None"):
        Mgan().init(small_kernel(initial=False), getkey())
    with pytest.raises(dataclasses.FrozenInstanceError):
        MganConfig().steps = 3

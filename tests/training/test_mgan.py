"""Adversarial training: the objective's parts, its presets, and that it learns."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flowjax.distributions import Normal

import involutive as inv
from involutive.bijections.couplings import mlp
from involutive.diagnostics.metrics import ess_per_draw
from involutive.training import fit as loop
from involutive.training.fit import TrainConfig, fit
from involutive.training.mgan import distance, restarts
from involutive.training.mgan.config import MganConfig
from involutive.training.mgan.critics import Critic, clamped, gradient_penalty, pick
from involutive.training.mgan.objective import Mgan, unevenness
from involutive.training.mgan.restarts import Restarts
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
        MganConfig.mixing(**SMALL),
        MganConfig.tuned(balance=0.3, data_steps=1, **SMALL),
        MganConfig.tuned(balance=0.0, pairwise=True, **SMALL),
        MganConfig.combined(**SMALL),
    ],
    ids=["paper", "tuned", "mixing", "both-terms", "pairs-only", "combined"],
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


def test_unevenness_is_zero_at_one_and_has_a_gradient_on_both_sides():
    ratios = jnp.array([[0.0], [1.0], [-1.0], [100.0], [-jnp.inf]])
    each = jax.vmap(lambda r: unevenness(r[None, :]))
    np.testing.assert_allclose(each(ratios)[:3], [0.0, np.sqrt(2) - 1, np.sqrt(2) - 1])
    slope = jax.vmap(jax.grad(lambda r: unevenness(r[None, :])))(ratios)[:, 0]
    np.testing.assert_allclose(slope[:4], [0.0, 0.5**0.5, -(0.5**0.5), 1.0], rtol=1e-3)
    assert np.isfinite(slope).all() and np.isfinite(each(ratios)).all()


def test_raw_proposals_are_judged_whether_or_not_they_are_accepted(getkey):
    kernel, objective = small_kernel(), Mgan(MganConfig.mixing(**SMALL))
    data = data_of(kernel, getkey())
    (term,) = objective._terms(kernel, data, jr.key(5), 16)
    starts, proposals = np.split(np.asarray(term.fake[:, 0]), 2, axis=1)
    assert term.fake.shape == (16, 1, 2) and (np.asarray(term.log_weights) == 0).all()
    np.testing.assert_array_equal(term.real[:, :1], starts)  # the first of a pair is shared
    assert (starts != proposals).all() and (np.asarray(term.log_ratio) < -1).any()
    accepted = Mgan(MganConfig.mixing(proposals=False, data_steps=1, **SMALL))
    (other,) = accepted._terms(kernel, data, jr.key(5), 16)
    assert other.fake.shape == (16, 2, 2)
    np.testing.assert_allclose(jax.vmap(jnp.sum)(jnp.exp(other.log_weights)), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(other.fake[:, 1, 1:], proposals)


@pytest.mark.deep
def test_the_ratio_is_in_the_loss_with_its_weight(getkey):
    kernel, found = small_kernel(), []
    data = data_of(kernel, getkey())
    for weight in (0.5, 2.0):
        objective = Mgan(MganConfig.mixing(ratio=weight, **SMALL))
        update = eqx.filter_jit(objective.update)
        memory = objective.init(kernel, jr.key(0))
        found.append(update(kernel, memory, data, jr.key(1))[2])
    gained = found[1]["generator_loss"] - found[0]["generator_loss"]
    np.testing.assert_allclose(gained, 1.5 * found[0]["unevenness"], rtol=1e-4)


def test_the_weight_of_the_ratio_grows_to_its_full_size(getkey):
    kernel = small_kernel()
    data, found = data_of(kernel, getkey()), []
    for share in (1.0, 0.25):
        config = MganConfig.mixing(first_share=share, growth=4, ratio=2.0, **SMALL)
        objective = Mgan(config)
        update, memory = eqx.filter_jit(objective.update), objective.init(kernel, jr.key(0))
        for count in (0, 2, 4):
            figures = update(kernel, memory._replace(count=jnp.asarray(count)), data, jr.key(1))[2]
            found.append(figures["generator_loss"] / figures["unevenness"])
    # geometrically: a quarter at first, a half in the middle, all at the end
    missing = np.array(found[:3]) - np.array(found[3:])
    np.testing.assert_allclose(missing, [1.5, 1.0, 0.0], atol=1e-4)


def test_the_network_with_most_effective_draws_is_trained_on(getkey, monkeypatch):
    kernels, tried = [small_kernel(), small_kernel(0.1)], []
    brief = Restarts(2, 1, Mgan(MganConfig.mixing(1e-9, **SMALL)), points=60)
    config = TrainConfig(steps=3, chunk=1, patience=None, monitor=0, keep="last")
    scores = {0: 0.1, 1: 0.7}

    def scored(*arguments, **more):
        done = fit(*arguments, **more)
        if len(tried) < 2:
            done.history[-1]["ess"] = scores[len(tried)]
        tried.append((arguments[0], more["config"].steps, more["part"], more.get("memory"), done))
        return done

    monkeypatch.setattr(restarts, "fit", scored)
    following = iter(kernels)
    objective = Mgan(MganConfig.settling(1e-9, **SMALL))
    restarts.fit_best(
        lambda key: next(following), brief, objective, data_of(kernels[0], getkey()),
        key=getkey(), config=config,
    )  # fmt: skip
    assert [(steps, part) for _, steps, part, _, _ in tried] == [
        (1, (0, 3)),
        (1, (1, 3)),
        (1, (2, 3)),
    ]
    assert tried[2][0] is tried[1][4].kernel  # the second had more
    critics = tried[2][3].critics
    assert eqx.tree_equal(critics, tried[1][4].memory.critics)
    with pytest.raises(
        inv.InputError, match="steps must exceed those of the restarts, 2 x 1, got 2"
    ):
        restarts.fit_best(
            small_kernel, brief, objective, np.ones((40, 1)), key=getkey(),
            config=dataclasses.replace(config, steps=2),
        )  # fmt: skip


@pytest.mark.deep
def test_the_mixing_objective_raises_effective_draws(getkey):
    """Two modes on the line: a thousand updates of the paper's network, made small."""
    plain, samples = small_kernel(), data_of(small_kernel(), getkey(), 2000)
    network = inv.paper_network(3, 1, 3, scale=2.0, last_scale=0.1)
    kernel = inv.Kernel(plain.target, network, plain.auxiliary, plain.initial)
    config = {"scale": 2.0, "batch": 64, "critic_width": 32}
    objective = Mgan(MganConfig.mixing(1e-2, decay=1200, **config))
    loop = TrainConfig(steps=1200, chunk=400, patience=None, monitor=0, keep="last")
    done = fit(kernel, objective, samples, key=1, config=loop, progress=False)
    start, found = np.asarray(samples[:32]), []
    for each in (kernel, done.kernel):
        draws = inv.sample(
            each, key=2, num_chains=32, num_samples=200, num_warmup=0, initial=start, progress=False
        )
        found.append(ess_per_draw(draws).least)
    assert found[1] > 1.5 * found[0], found


def test_refusals(getkey):
    with pytest.raises(inv.InputError, match="neither clamp nor penalty"):
        MganConfig(clamp=None, penalty=None)
    with pytest.raises(inv.InputError, match=r"balance must be in \[0, 1\], got 1.5"):
        MganConfig(balance=1.5)
    with pytest.raises(inv.InputError, match="steps must be at least 1, got 0"):
        MganConfig(steps=0)
    with pytest.raises(inv.InputError, match="ratio must not be negative, got -1"):
        MganConfig.mixing(ratio=-1.0)
    with pytest.raises(inv.InputError, match=r"first_share must be in \(0, 1\], got 0"):
        MganConfig.mixing(first_share=0.0)
    with pytest.raises(inv.InputError, match=r"leak must be in \[0, 1\), got 1"):
        MganConfig(leak=1.0)
    with pytest.raises(inv.InputError, match=r"penalised must be in \(0, 1\], got 0"):
        MganConfig.mixing(penalised=0.0)
    with pytest.raises(inv.InputError, match="got balance=1, which leaves it out"):
        MganConfig(ratio=1.0)
    with pytest.raises(inv.InputError, match="the kernel's initial distribution, got None"):
        Mgan().init(small_kernel(initial=False), getkey())
    with pytest.raises(dataclasses.FrozenInstanceError):
        MganConfig().steps = 3

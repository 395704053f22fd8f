"""Ladders of replicas: the law they leave invariant, their record, and planted bugs.

The target is a Gaussian and so is the reference, so every p_β is one too: whole ladders are drawn
exactly, moved, and compared with fresh ones.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats
from flowjax.bijections import Affine
from flowjax.distributions import Normal
from jaxtyping import Array

import involutive as inv
from involutive.auxiliary import Joined
from involutive.kernel.kernel import State
from involutive.kernel.ladder import equal_rejection, stepping_stones, trip_rate
from involutive.kernel.replicas import Tempered
from involutive.kernel.rungs import Replicas, Rungs

DIM, LADDERS = 2, 20_000
BETAS = np.array([0.0, 0.2, 0.6, 1.0])
CENTRE, WIDTH = np.array([1.0, -0.5]), np.array([0.5, 0.8])  # of the target
WIDE = 2.0  # of the reference, around 0
LEVEL = 1e-5


def gaussian() -> inv.Target:
    def log_density(x: Array) -> Array:
        return -0.5 * jnp.sum(((x - jnp.asarray(CENTRE)) / jnp.asarray(WIDTH)) ** 2)

    return inv.Target(log_density, DIM, name="shifted gaussian")


def wide() -> Normal:
    return Normal(jnp.zeros(DIM), WIDE * jnp.ones(DIM))


def moments(beta: Any) -> tuple[np.ndarray, np.ndarray]:
    """The mean and sd of q^{1-β} p^β."""
    precision = (1 - beta) / WIDE**2 + beta / WIDTH**2
    return beta * CENTRE / WIDTH**2 / precision, precision**-0.5


def bent_transport(k: int) -> inv.AbstractInvolution:
    """An affine map that is not the right one, and changes volume."""
    return Affine(jnp.array([0.1, -0.1]) * (k + 1), jnp.array([0.7, 0.8]))


def ladder(cls: type = Tempered, **options: Any) -> Tempered:
    settings: dict[str, Any] = {"betas": BETAS, "steps": 0.4, "leaps": 3} | options
    return cls(gaussian(), wide(), **settings)


def exact(kernel: Tempered, rng: np.random.Generator) -> State:
    """Ladders in equilibrium, all replicas drawn from their own Gaussians."""
    rows = [m + s * rng.normal(size=(LADDERS, DIM)) for m, s in map(moments, BETAS)]
    inner = jnp.asarray(np.stack(rows[1:-1], axis=1))
    cold = jnp.asarray(rows[-1])
    density = jax.vmap(kernel.target.log_density)
    replicas = Replicas(
        inner,
        jax.vmap(density)(inner),
        jax.vmap(jax.vmap(kernel.reference.log_prob))(inner),
        jnp.zeros((LADDERS, len(BETAS)), jnp.int32),
        jnp.zeros(LADDERS, jnp.int32),
        jnp.zeros(LADDERS, jnp.int32),
    )
    return State(cold, density(cold), replicas)


@eqx.filter_jit
def moved(kernel: Tempered, state: State, steps: int) -> tuple[State, Any]:
    def step(state: State, t: Array) -> tuple[State, Any]:
        keys = jr.split(jr.fold_in(jr.key(5), t), LADDERS)
        return jax.vmap(kernel.step)(keys, state)

    return jax.lax.scan(step, state, jnp.arange(steps))


def least_p(kernel: Tempered, steps: int = 8) -> float:
    """The smallest p-value, times their number, of every replica's coordinates after some steps."""
    state, _ = moved(kernel, exact(kernel, np.random.default_rng(1)), steps)
    rows = np.concatenate([state.carried.positions, state.position[:, None]], axis=1)
    found = []
    for k, (mean, sd) in enumerate(map(moments, BETAS[1:])):
        z = (np.asarray(rows[:, k]) - mean) / sd
        found += [scipy.stats.kstest(z[:, i], "norm").pvalue for i in range(DIM)]
    return min(found) * len(found)


RIGHT: dict[str, Callable[[], Tempered]] = {
    "hmc": ladder,
    "random walk": lambda: ladder(leaps=None, steps=1.0),
    "learned swaps": lambda: ladder(transports=[bent_transport(k) for k in range(3)]),
    "two scans per step": lambda: ladder(scans=2),
}


SLOW = ("random walk", "two scans per step")  # compiled long, and their parts are tested here


def fast(name: str) -> Any:
    return pytest.param(RIGHT[name], marks=pytest.mark.deep if name in SLOW else (), id=name)


@pytest.mark.parametrize("make", [fast(name) for name in RIGHT])
def test_every_replica_keeps_its_distribution(make):
    assert least_p(make()) > LEVEL


class WithoutLogDet(Tempered):
    def _exchanged(self, below, above):
        low, high, log_det = super()._exchanged(below, above)
        return low, high, jnp.zeros_like(log_det)


class StaleDensity(Tempered):
    """After an exchange the densities stay with the replica that had them."""

    def swap(self, levels, active, rungs, tags):
        after, tags, rates, swapped = super().swap(levels, active, rungs, tags)
        stale = Rungs(after.positions, rungs.log_target, rungs.log_reference)
        return stale, tags, rates, swapped


class AdaptsOnTheWay(Tempered):
    """A schedule that follows the replicas while draws are kept."""

    def scan(self, noise, state):
        pull = jax.nn.sigmoid(2 * state.position[0])
        betas = self.betas.at[1:-1].multiply(0.1 + 0.9 * pull)
        fixed = eqx.tree_at(lambda k: k.betas, self, betas)
        return Tempered.scan(fixed, noise, state)


class ForgetsReference(Tempered):
    """The exchange compares the target's densities alone, as if the reference were flat."""

    def swap(self, levels, active, rungs, tags):
        flat = rungs._replace(log_reference=jnp.zeros_like(rungs.log_reference))
        _, new_tags, rates, swapped = super().swap(levels, active, flat, tags)
        forced = jnp.where(swapped, 0.0, jnp.inf)
        open_ = eqx.tree_at(lambda k: k.betas, self, jnp.zeros_like(self.betas))
        after = Tempered.swap(open_, -1e9 + forced, active, rungs, tags)[0]
        return after, new_tags, rates, swapped


def bends() -> list[Any]:
    """Transports whose determinant changes from place to place."""
    from zoo import bent

    return [bent(DIM) for _ in range(3)]


BUGS: dict[str, Callable[[], Tempered]] = {
    "swap without the log-determinant": lambda: ladder(WithoutLogDet, transports=bends()),
    "stale density after a swap": lambda: ladder(StaleDensity),
    "schedule adapted while draws are kept": lambda: ladder(AdaptsOnTheWay),
    "reference left out of the swap": lambda: ladder(ForgetsReference),
}


@pytest.mark.parametrize("make", BUGS.values(), ids=BUGS)
def test_planted_bug_is_caught(make):
    assert least_p(make(), steps=16) < LEVEL


@pytest.mark.deep
def test_transports_that_bend_are_exact_too():
    assert least_p(ladder(transports=bends())) > LEVEL


def test_perfect_transports_are_always_accepted():
    pairs = zip(map(moments, BETAS), map(moments, BETAS[1:]), strict=False)
    maps = [Affine(b[0] - a[0] * b[1] / a[1], b[1] / a[1]) for a, b in pairs]
    kernel = ladder(transports=maps)
    state = jax.tree.map(lambda leaf: leaf[:100], exact(kernel, np.random.default_rng(0)))
    noise = jax.jit(jax.vmap(kernel.draw))(jr.split(jr.key(0), 100))
    _, scan = jax.jit(jax.vmap(lambda n, s: kernel.scan(n, s)))(noise, state)
    np.testing.assert_allclose(scan.swap_rate, 1.0, atol=1e-9)


def test_densities_carried_are_those_of_the_positions():
    kernel = ladder()
    state, info = moved(kernel, exact(kernel, np.random.default_rng(2)), 5)
    carried = state.carried
    density = jax.jit(jax.vmap(jax.vmap(kernel.target.log_density)))(carried.positions)
    reference = jax.jit(jax.vmap(jax.vmap(kernel.reference.log_prob)))(carried.positions)
    np.testing.assert_allclose(carried.log_target, density)
    np.testing.assert_allclose(carried.log_reference, reference)
    assert np.mean(info.accepted) > 0.5
    assert carried.parity[0] == 1


@pytest.mark.deep
def test_round_trips_are_counted_and_near_their_bound():
    kernel = ladder(steps=0.6)
    state, _ = moved(kernel, exact(kernel, np.random.default_rng(3)), 60)
    noise = jax.jit(jax.vmap(kernel.draw))(jr.split(jr.key(0), LADDERS))
    _, scan = jax.jit(jax.vmap(kernel.scan))(noise, state)
    predicted = trip_rate(np.asarray(scan.swap_rate).mean(0))
    found = float(np.mean(state.carried.trips)) / 60
    assert 0.5 * predicted < found < 1.05 * predicted


# ── in the runner ───────────────────────────────────────────────────────────────────────────────


def run(kernel: Any, **options: Any) -> np.ndarray:
    settings = {"key": 3, "num_chains": 5, "num_samples": 24, "progress": False} | options
    return inv.sample(kernel, **settings).positions


@pytest.mark.deep
def test_resumed_runs_have_the_same_draws(tmp_path):
    kernel = ladder()
    whole = run(kernel, num_warmup=3)
    run(kernel, num_warmup=3, num_samples=10, checkpoint=tmp_path / "c")
    resumed = run(kernel, num_warmup=3, checkpoint=tmp_path / "c", resume=True)
    np.testing.assert_array_equal(resumed, whole)
    again = run(kernel, num_warmup=3, checkpoint=tmp_path / "c", resume=True)
    np.testing.assert_array_equal(again, whole)


def test_saved_ladders_load(tmp_path):
    kernel = ladder(transports=[bent_transport(k) for k in range(3)])
    inv.save(tmp_path / "k.inv", kernel)
    loaded = inv.load(tmp_path / "k.inv", kernel.target)
    np.testing.assert_array_equal(run(loaded), run(kernel))


@pytest.mark.deep
def test_in_a_cycle_other_kernels_hand_the_replicas_on():
    kernel = inv.Cycle([ladder(), inv.random_walk(gaussian(), 0.3)])
    rows = run(kernel, num_chains=64, num_samples=200).reshape(-1, DIM)
    np.testing.assert_allclose(rows.mean(0), CENTRE, atol=0.05)
    np.testing.assert_allclose(rows.std(0), WIDTH, rtol=0.06)


def test_a_density_of_infinity_stops_the_chain():
    target = inv.Target(lambda x: jnp.where(x[0] > 1.5, jnp.inf, -0.5 * jnp.sum(x**2)), 2)
    kernel = Tempered(target, wide(), BETAS, 0.5, leaps=None)
    draws = inv.sample(
        kernel, key=0, num_chains=8, num_samples=50, initial=np.zeros((8, 2)), progress=False
    )
    assert draws.stopped.all()
    assert np.isfinite(draws.positions).all()


def test_a_state_without_replicas_is_refused():
    kernel = ladder()
    with pytest.raises(inv.InputError, match="a state made by its own init"):
        kernel.step(jr.key(0), State(jnp.zeros(2), jnp.zeros(())))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"betas": [0.0, 0.5]}, "betas must increase from 0 to 1"),
        ({"betas": [0.0, 0.6, 0.5, 1.0]}, "betas must increase"),
        ({"scales": np.ones((2, 2))}, "scales must be a number or have shape"),
        ({"transports": [bent_transport(0)]}, "transports must be 3"),
        ({"leaps": 0}, "leaps must be at least 1"),
    ],
)
def test_bad_input(options, words, as_users_run):
    with pytest.raises(inv.InputError, match=words):
        ladder(**options)


# ── adaptation and its record ───────────────────────────────────────────────────────────────────


def test_stepping_stones_give_log_z_both_ways():
    rng = np.random.default_rng(0)
    target, reference = gaussian(), wide()
    rows = np.stack([m + s * rng.normal(size=(50, 40, DIM)) for m, s in map(moments, BETAS)], 2)
    flat = jnp.asarray(rows.reshape(-1, DIM))
    weights = jax.jit(jax.vmap(target.log_density))(flat) - jax.jit(jax.vmap(reference.log_prob))(
        flat
    )
    forward, backward, error = stepping_stones(np.asarray(weights).reshape(rows.shape[:-1]), BETAS)
    exact_log_z = np.log(2 * np.pi) + np.log(WIDTH).sum()
    assert error < 0.1
    for found in (forward, backward):
        assert abs(found - exact_log_z) < 4 * error


def test_equal_rejection_divides_the_barrier():
    betas = equal_rejection([0.0, 0.5, 1.0], [0.2, 0.8], 6)
    assert betas[0] == 0
    assert betas[-1] == 1
    assert (np.diff(betas) > 0).all()
    assert (betas < 0.5).sum() >= 4  # where most is rejected, most replicas are


@pytest.mark.deep
def test_adapted_ladder_finds_all_modes_and_log_z():
    target = inv.targets.mog6()
    kernel = inv.tempered(target, key=0, ladders=16, rounds=4, leaps=4)
    ladder = kernel.ladder
    assert abs(float(ladder.log_z) - np.log(2 * np.pi * 0.25)) < 4 * float(ladder.log_z_error)
    assert float(ladder.log_z_error) < 0.3
    assert int(ladder.round_trips) > 20
    assert abs(float(ladder.barrier) - float(jnp.sum(1 - ladder.swap_acceptance))) < 1e-6
    draws = inv.sample(kernel, key=1, num_chains=64, num_samples=200, progress=False)
    labels = jax.vmap(target.modes.label)(jnp.asarray(draws.positions.reshape(-1, 2)))
    shares = np.bincount(np.asarray(labels), minlength=6) / labels.size
    assert np.abs(shares - 1 / 6).sum() / 2 < 0.06
    assert "round trips" in str(ladder)


@pytest.mark.deep
def test_adaptation_of_a_gaussian_needs_few_replicas():
    """Two short rounds and a measurement: the evidence is right, and the kernel samples."""
    settings = inv.Adaptation(rounds=3, ladders=16, learned_swaps=False)
    kernel = inv.adapt_ladder(ladder(leaps=2), key=0, settings=settings)
    exact_log_z = np.log(2 * np.pi) + np.log(WIDTH).sum()
    assert abs(float(kernel.ladder.log_z) - exact_log_z) < 4 * float(kernel.ladder.log_z_error)
    assert float(kernel.ladder.log_z_error) < 0.2
    assert kernel.num_replicas <= 5
    assert kernel.ladders.shape == (16, kernel.num_replicas - 2, DIM)


def test_joined_is_the_mixture():
    law = Joined(wide(), Normal(jnp.ones(DIM), jnp.ones(DIM)), 0.25)
    x = jnp.array([0.3, -0.2])
    parts = [0.75 * jnp.exp(law.first.log_prob(x)), 0.25 * jnp.exp(law.second.log_prob(x))]
    np.testing.assert_allclose(law.log_prob(x), jnp.log(sum(parts)))
    rows = np.asarray(jax.jit(jax.vmap(law.sample))(jr.split(jr.key(0), 20_000)))
    np.testing.assert_allclose(rows.mean(0), 0.25, atol=0.06)


def test_repeated_scans_are_the_same_ladder():
    kernel = ladder()
    thrice = kernel.repeated(3)
    assert thrice.scans == 3
    assert thrice.evaluations_per_step == 3 * kernel.evaluations_per_step
    np.testing.assert_array_equal(thrice.betas, kernel.betas)
    np.testing.assert_array_equal(thrice.steps, kernel.steps)

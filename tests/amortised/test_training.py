"""Training without a simulator, checkpoints, and verdicts on what a network misses."""

import signal
from dataclasses import replace

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import involutive as inv
from involutive.amortised import stages as room
from involutive.amortised.objective import Paced
from involutive.core.keys import split

pytestmark = pytest.mark.deep  # each trains; `test_amortised` trains in the fast suite

PRIOR = inv.Parameters(x=inv.Normal(0, 4))
NOISE = 0.2
SMALL = inv.AmortiseSettings(
    components=2, width=16, depth=1, summary=4, steps=600, steps_density=100, rate=5e-3, batch=64,
    batch_sets=16, particles=64, temperatures=12,
)  # fmt: skip


def log_likelihood(x, data):
    return -0.5 * jnp.sum((data - x) ** 2) / NOISE**2


def folded(x, data):
    return -0.5 * jnp.sum((data - jnp.abs(x)) ** 2) / NOISE**2


def simulate(key, x):
    return x + NOISE * jr.normal(key, (3,))


def data_sets(count):
    rng = np.random.default_rng(3)
    centres = 4 * rng.normal(size=(count, 1))
    return list(centres + NOISE * rng.normal(size=(count, 3)))


@pytest.fixture(scope="module")
def alone():
    """A network that was trained on data sets and the density alone."""
    family = inv.Family(log_likelihood, PRIOR, data=data_sets(40))
    return inv.amortise(family, key=0, settings=SMALL, progress=False)


def test_data_sets_and_the_density_are_enough(alone):
    assert not alone.outcome.simulated and alone.outcome.steps == 700
    assert alone.outcome.efficiency > 0.3
    data = np.array([2.0, 2.1, 1.9])
    q, target = alone.at(data).initial, alone.family.at(data)
    near, far = (float(q.log_prob(jnp.array([x]))) for x in (2.0, -6.0))
    assert near > far + 3 and target.dim == 1


def parameters(network):
    import equinox as eqx
    import jax

    return jax.tree.leaves(eqx.filter(network, eqx.is_array))


def leaves(many):
    return parameters(many.estimator)


def test_an_interrupted_training_ends_where_it_would_have(alone, tmp_path, monkeypatch):
    family, path, fit, calls = alone.family, tmp_path / "training.inv", room.fit, []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return fit(*arguments, **options)

    options = {"key": 0, "settings": SMALL, "progress": False, "checkpoint": path}
    monkeypatch.setattr(room, "fit", interrupted)
    half = inv.amortise(family, **options)
    assert half.outcome.ended == "interrupted" and half.outcome.steps == 600
    whole = inv.amortise(family, resume=True, **options)
    assert whole.outcome.ended == "finished" and whole.outcome.steps == 100
    assert all((a == b).all() for a, b in zip(leaves(whole), leaves(alone), strict=True))
    with pytest.raises(inv.InputError, match="run with settings"):
        other = inv.AmortiseSettings(components=3)
        inv.amortise(family, resume=True, **(options | {"settings": other}))


def test_a_resumed_training_compares_with_the_network_before_the_density(alone, tmp_path):
    """A checkpoint of the second stage keeps the network of the first."""
    path = tmp_path / "training.inv"
    options = {"key": 0, "settings": SMALL, "progress": False, "checkpoint": path}
    inv.amortise(alone.family, **options)
    saved = room.SavedTraining(path, True, split(jr.key(0), 5)[1], SMALL, alone.family)
    first, _, done = saved.read(
        room.LIKELIHOOD, alone.estimator, Paced((), jnp.ones(()), jnp.ones(()))
    )
    second, _, _ = saved.read(room.DENSITY, *_second(alone))
    assert done == 1
    assert any((a != b).any() for a, b in zip(parameters(first), parameters(second), strict=True))


def _second(many):
    objective = room.log_variance(many.family, SMALL)
    return many.estimator, objective.init(many.estimator, jr.key(0))


def test_ctrl_c_returns_what_was_reached_after_the_chunk_in_flight(alone, monkeypatch):
    """The first signal is remembered; the network has the updates made until then."""
    fit = room.fit

    def asked(*arguments, **options):
        signal.raise_signal(signal.SIGINT)
        return fit(*arguments, **options)

    monkeypatch.setattr(room, "fit", asked)
    settings = replace(SMALL, chunk=50)
    half = inv.amortise(alone.family, key=0, settings=settings, progress=False)
    assert half.outcome.ended == "interrupted" and half.outcome.steps == 50


@pytest.mark.parametrize("heads", [0, 2])
def test_splines_are_kept_where_a_trial_shows_that_they_help(heads, tmp_path):
    """A banana, which one Gaussian cannot follow and a spline coupling can."""

    def banana(x, data):
        at = jnp.sum(jnp.where(data["mask"], data["y"], 0.0)) / jnp.sum(data["mask"])
        return -0.5 * x[0] ** 2 - 0.5 * ((x[1] - x[0] ** 2 - at) / 0.3) ** 2

    def simulated(key):
        keys = jr.split(key, 3)
        x0, at = jr.normal(keys[0]), jr.normal(keys[1])
        x1 = x0**2 + at + 0.3 * jr.normal(keys[2])
        return jnp.stack([x0, x1]), {"y": jnp.full(4, at), "mask": jnp.ones(4, bool)}

    family = inv.Family(banana, 2, simulate=simulated)
    settings = inv.AmortiseSettings(
        components=1, width=16, depth=1, summary=4, heads=heads, steps=200, steps_density=0,
        rate=5e-3, batch=64, splines=2, coupling_width=16, trial=600,
    )  # fmt: skip
    path = tmp_path / "training.inv"
    many = inv.amortise(family, key=0, settings=settings, checkpoint=path, progress=False)
    without, with_splines = many.outcome.tried
    assert with_splines > without and many.outcome.splines == 2
    again = inv.amortise(
        family, key=0, settings=settings, checkpoint=path, resume=True, progress=False
    )
    assert again.outcome.splines == 2 and again.outcome.tried == () and again.outcome.steps == 0


def test_a_mode_that_the_network_misses_is_not_trusted(alone):
    """The network knows posteriors of one mode; those of |x| have two, of equal weight."""
    family = inv.Family(folded, PRIOR, data=data_sets(2))
    blind = inv.FamilyKernel(family, alone.estimator, alone.outcome)
    sets = [np.full(3, at) for at in (4.0, 5.0, 6.0)]
    found = inv.sample_many(blind, sets, key=1, num_samples=150, progress=False)
    for i in range(3):
        weight = max(np.mean(found.positions(i) > 0), np.mean(found.positions(i) < 0))
        assert not found[i].trusted or abs(weight - 0.5) < 0.1
    assert found.failed and "particles" in " ".join(found[found.failed[0]].reasons)
    seen = inv.sample_many(alone, sets, key=1, num_samples=150, progress=False)
    assert [i for i in range(3) if not seen[i].trusted] == []


def test_data_sets_that_fail_are_learned_one_by_one(alone):
    family = inv.Family(folded, PRIOR, data=data_sets(2))
    blind = inv.FamilyKernel(family, alone.estimator, alone.outcome)
    sets = [np.full(3, 5.0)]
    found = inv.sample_many(blind, sets, key=1, num_samples=250, relearn=30, progress=False)
    assert found[0].learned
    assert not found[0].trusted or abs(np.mean(found.positions(0) > 0) - 0.5) < 0.1


def test_a_budget_in_seconds_ends_training_early(alone):
    long = inv.AmortiseSettings(
        components=2, width=16, depth=1, steps=10**7, steps_density=10**7, particles=64,
        temperatures=12, batch=64, batch_sets=16, summary=4,
    )  # fmt: skip
    many = inv.amortise(alone.family, key=0, settings=long, budget=8, progress=False)
    assert 0 < many.outcome.steps < 10**6

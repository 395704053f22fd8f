"""Training without a simulator, checkpoints, and verdicts on what a network misses."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import involutive as inv
from involutive.amortised import stages as room

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


def leaves(many):
    import equinox as eqx
    import jax

    return jax.tree.leaves(eqx.filter(many.estimator, eqx.is_array))


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

"""The search on the host: rows of a density, moves, climbs, annealing."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flowjax.distributions import MultivariateNormal, Normal

import involutive as inv
from involutive._xla.batched import LawRows, Rows
from involutive.learning.budget import Budget, Meter
from involutive.learning.effort import Effort
from involutive.learning.find import search as module
from involutive.learning.find.annealing import anneal, effective, finite_draws, resampled
from involutive.learning.find.climbs import ascend, climb, on_the_way, promising
from involutive.learning.find.moves import Places, move
from involutive.learning.find.search import BESIDE, SPIKE, Search
from involutive.learning.learn import initial_law


def bent(x):
    return -0.5 * jnp.sum(x**2) - 0.1 * x[0] * x[1] ** 3


def rows_of(target, block=64):
    return Rows(target.log_density, target.dim, block)


@pytest.mark.parametrize(
    "count", [100, *(pytest.param(n, marks=pytest.mark.deep) for n in (1, 64))]
)
def test_rows_are_the_density_and_its_derivatives(count):
    rows, points = Rows(bent, 2, 64), np.random.default_rng(0).normal(size=(count, 2))
    np.testing.assert_allclose(rows.values(points), jax.vmap(bent)(points), rtol=1e-6)
    values, slopes = rows.slopes(points)
    np.testing.assert_allclose(values, jax.vmap(bent)(points), rtol=1e-6)
    np.testing.assert_allclose(slopes, jax.vmap(jax.grad(bent))(points), rtol=1e-6)
    curvatures = jax.vmap(jax.hessian(bent))(points)
    np.testing.assert_allclose(rows.curvatures(points), curvatures, rtol=1e-6)
    assert rows.evaluations == count * (1 + 3 + 6)


LAWS = {
    "normal": lambda: Normal(jnp.array([1.0, -2.0]), jnp.array([0.5, 3.0])),
    "any other": lambda: MultivariateNormal(jnp.ones(2), jnp.array([[1.0, 0.5], [0.5, 2.0]])),
}


@pytest.mark.parametrize("make", LAWS.values(), ids=LAWS)
def test_a_law_on_the_host_is_the_law(make):
    law = make()
    rows, points = LawRows(law, 64), np.random.default_rng(0).normal(size=(50, 2))
    value, slope = jax.vmap(jax.value_and_grad(law.log_prob))(points)
    np.testing.assert_allclose(rows.values(points), value, rtol=1e-5)
    np.testing.assert_allclose(rows.slopes(points)[1], slope, rtol=1e-5)
    draws = rows.draws(jr.key(0), 4000)
    again = np.asarray(law.sample(jr.key(1), (4000,)))
    np.testing.assert_allclose(draws.mean(0), again.mean(0), atol=0.2)
    np.testing.assert_allclose(draws.std(0), again.std(0), rtol=0.06)


@pytest.mark.parametrize("gradients", [False, True], ids=["walk", "hmc"])
@pytest.mark.parametrize("each", [False, True], ids=["one metric", "one each"])
def test_moves_keep_the_law(gradients, each):
    """Exact draws of a normal in, moved often, the same law out; and they do move."""
    target, rng = inv.targets.gaussian(2), np.random.default_rng(0)
    rows, start = rows_of(target, 2000), rng.normal(size=(2000, 2))
    factor = np.array([[1.0, 0.0], [0.4, 0.8]])
    factor = np.tile(factor, (2000, 1, 1)) if each else factor
    places = Places.at(rows, start, gradients)
    for _ in range(40):
        places, rate = move(rows, places, factor, 0.4 if gradients else 1.2, rng)
    assert 0.2 < rate.mean() < 1.0
    assert abs(np.corrcoef(start[:, 0], places.points[:, 0])[0, 1]) < 0.1
    np.testing.assert_allclose(places.points.mean(0), 0.0, atol=0.09)
    np.testing.assert_allclose(places.points.std(0), 1.0, atol=0.06)
    np.testing.assert_allclose(places.values, rows.values(places.points), rtol=1e-6)


def test_a_move_never_goes_where_the_density_is_not():
    half = Rows(lambda x: jnp.where(x[0] > 0, -x[0], jnp.nan), 1, 64)
    places = Places.at(half, np.full((64, 1), 0.1), False)
    rng = np.random.default_rng(0)
    for _ in range(20):
        places, _ = move(half, places, np.eye(1), 2.0, rng)
    assert (places.points > 0).all() and np.isfinite(places.values).all()


def test_climbs_end_at_the_top_whatever_the_scale():
    scales = jnp.array([1e-3, 1e3])
    rows = Rows(lambda x: -0.5 * jnp.sum((x / scales) ** 2), 2, 64)
    tops, heights = ascend(rows, np.random.default_rng(0).normal(size=(64, 2)), 200)
    assert heights.min() > -0.1
    spread = climb(rows, tops, jr.key(0), gradients=True).points
    assert (spread.std(0) / np.asarray(scales)).min() > 0.5


def test_a_few_steps_show_where_to_climb():
    """Of many points, those beside the narrow mode stand highest after a few steps."""

    def narrow_and_wide(x):
        logpdf = jax.scipy.stats.norm.logpdf
        return jnp.logaddexp(logpdf(x, -4.0, 0.1).sum(), logpdf(x, 4.0, 2.0).sum())

    points = np.random.default_rng(0).normal(size=(640, 2)) * 3
    points[:5] = -4.0 + 0.2 * np.random.default_rng(1).normal(size=(5, 2))
    best = promising(Rows(narrow_and_wide, 2, 64), points, 5)
    assert (np.abs(best + 4.0) < 1.0).all()


@pytest.mark.parametrize("gradients", [False, True], ids=["walk", "hmc"])
def test_annealing_carries_draws_to_both_modes(gradients):
    target = inv.targets.mixture([[-4.0, 0.0], [4.0, 0.0]], [0.3, 0.7], 0.5)
    rows, law = rows_of(target, 512), LawRows(Normal(jnp.zeros(2), jnp.full(2, 3.0)))
    points, log_weights = finite_draws(rows, law, jr.key(0), 2048)
    found, _ = anneal(rows, law, points, log_weights, jr.key(1), gradients=gradients)
    assert abs((found[:, 0] > 0).mean() - 0.7) < 0.06
    right = found[found[:, 0] > 0]
    np.testing.assert_allclose(right.mean(0), [4.0, 0.0], atol=0.08)
    np.testing.assert_allclose(right.std(0), 0.5, atol=0.06)


def test_draws_are_resampled_only_where_they_weigh_evenly():
    target, law = inv.targets.gaussian(2), LawRows(Normal(jnp.zeros(2), jnp.full(2, 3.0)))
    points, log_weights = finite_draws(rows_of(target), law, jr.key(0), 8192)
    assert effective(np.zeros(7)) == pytest.approx(7.0)
    picked = resampled(points, log_weights, 4000, jr.key(1))
    assert picked is not None
    np.testing.assert_allclose(picked.std(0), 1.0, atol=0.06)
    assert resampled(points, 50 * log_weights, 4000, jr.key(1)) is None


def test_annealing_knows_the_integral():
    rows = Rows(lambda x: 2.0 + jnp.sum(jax.scipy.stats.norm.logpdf(x, 1.0, 0.2)), 2, 512)
    law = LawRows(Normal(jnp.zeros(2), jnp.full(2, 3.0)))
    points, log_weights = finite_draws(rows, law, jr.key(0), 2048)
    _, mass = anneal(rows, law, points, log_weights, jr.key(1), gradients=False)
    assert mass == pytest.approx(2.0, abs=0.2)
    stopped = {"gradients": False, "spent": lambda: True}
    assert anneal(rows, law, points, log_weights, jr.key(1), **stopped)[1] == -np.inf


def test_the_mass_of_a_mode_is_that_of_a_normal():
    rows = rows_of(inv.targets.gaussian(3), 64)
    climbed = climb(rows, np.random.default_rng(0).normal(size=(64, 3)), jr.key(0), gradients=True)
    np.testing.assert_allclose(climbed.masses, 1.5 * np.log(2 * np.pi), atol=1e-3)


def test_a_spike_of_no_mass_leaves_the_way_into_it():
    """The funnel's density is unbounded in its neck: climbs end there, where there is no mass."""
    target = inv.targets.funnel(6)
    rows = rows_of(target, 256)
    starts = 3 * np.random.default_rng(0).normal(size=(256, 6))
    climbed = climb(rows, starts, jr.key(0), gradients=True)
    assert (climbed.masses < -SPIKE).mean() > 0.9
    passed = on_the_way(rows, starts, -BESIDE, jr.key(1), gradients=True)
    assert len(passed) > 100
    low, high = np.quantile(passed[:, 0], [0.02, 0.98])
    assert -15 < low < -6 and high > 0
    assert on_the_way(rows, starts, 1e9, jr.key(1), gradients=True).shape == (0, 6)


def test_climbs_go_on_where_modes_lie_far_beyond_the_start():
    """Of modes at 0, 8, …, 120 on a line, X and X stretched fourfold reach the first few."""
    places = 8.0 * np.arange(16)

    def log_density(x):
        return jax.nn.logsumexp(-0.5 * (x[0] - places) ** 2) - 0.5 * x[1] ** 2

    rows = Rows(log_density, 2, 256)
    search = Search(rows, initial_law(None, 2), Meter(Budget()), Effort(), False)
    found = search.find(jr.key(0), None)
    reached = set(np.round(found[:, 0] / 8).astype(int))
    assert reached == set(range(16))


def test_climbs_end_where_nothing_around_them_is_inside_the_support(monkeypatch):
    """As around a thin support in many dimensions, which a box around it hardly ever meets."""
    law, points = initial_law(None, 2), np.random.default_rng(0).normal(size=(256, 2))
    rows = Rows(lambda x: -0.5 * (x[0] / 100) ** 2 - 0.5 * x[1] ** 2, 2, 64)
    search = Search(rows, law, Meter(Budget()), Effort(climbers=64), False)
    monkeypatch.setattr(module, "finite_rows", lambda rows, points: points[:0])
    assert len(search._climb(points.astype(np.float32), jr.key(0), False).points) == 32

"""The search on the host: rows of a density, moves, climbs, annealing."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats
from flowjax.distributions import MultivariateNormal, Normal

import involutive as inv
from involutive._xla.batched import BatchedDensity, BatchedDistribution
from involutive.learning.budget import Budget
from involutive.learning.find import search as module
from involutive.learning.find.annealing import anneal, finite_draws, finite_points, resampled
from involutive.learning.find.climbs import (
    ascend,
    climb,
    different_tops,
    highest_after_screening,
    points_along_climbs,
)
from involutive.learning.find.moves import Particles, move
from involutive.learning.find.search import find_modes
from involutive.learning.problem import initial_distribution, pose_problem
from involutive.learning.settings import LearnSettings
from involutive.learning.weights import effective

DEFAULT = LearnSettings()
SEARCH = DEFAULT.search


def bent(x):
    return -0.5 * jnp.sum(x**2) - 0.1 * x[0] * x[1] ** 3


def problem_of(target, budget=None, **sizes):
    settings = LearnSettings(**sizes)
    law = initial_distribution(None, target, settings.initial_sd)
    return pose_problem(target, law, settings, budget or Budget(), jr.key(0), False, None)


def rows_of(target, block=64):
    return BatchedDensity(target.log_density, target.dim, block)


@pytest.mark.parametrize(
    "count", [100, *(pytest.param(n, marks=pytest.mark.deep) for n in (1, 64))]
)
def test_rows_are_the_density_and_its_derivatives(count):
    rows, points = BatchedDensity(bent, 2, 64), np.random.default_rng(0).normal(size=(count, 2))
    np.testing.assert_allclose(rows.values(points), jax.vmap(bent)(points), rtol=1e-6)
    values, slopes = rows.gradients(points)
    np.testing.assert_allclose(values, jax.vmap(bent)(points), rtol=1e-6)
    np.testing.assert_allclose(slopes, jax.vmap(jax.grad(bent))(points), rtol=1e-6)
    curvatures = jax.vmap(jax.hessian(bent))(points)
    np.testing.assert_allclose(rows.hessians(points), curvatures, rtol=1e-6)
    assert rows.evaluations == count * (1 + 3 + 6)


def test_no_rows_are_no_rows():
    """Of places to start from, none may be inside the support."""
    rows, none = BatchedDensity(bent, 2, 64), np.zeros((0, 2))
    assert len(finite_points(rows, none)) == 0
    assert [part.shape for part in rows.gradients(none)] == [(0,), (0, 2)]
    assert rows.hessians(none).shape == (0, 2, 2) and rows.evaluations == 0


LAWS = {
    "normal": lambda: Normal(jnp.array([1.0, -2.0]), jnp.array([0.5, 3.0])),
    "any other": lambda: MultivariateNormal(jnp.ones(2), jnp.array([[1.0, 0.5], [0.5, 2.0]])),
}


@pytest.mark.parametrize("make", LAWS.values(), ids=LAWS)
def test_a_law_on_the_host_is_the_law(make):
    law = make()
    rows, points = BatchedDistribution(law, 64), np.random.default_rng(0).normal(size=(50, 2))
    value, slope = jax.vmap(jax.value_and_grad(law.log_prob))(points)
    np.testing.assert_allclose(rows.values(points), value, rtol=1e-5)
    np.testing.assert_allclose(rows.gradients(points)[1], slope, rtol=1e-5)
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
    places = Particles.at(rows, start, gradients)
    for _ in range(40):
        places, rate = move(rows, places, factor, 0.4 if gradients else 1.2, rng, 4)
    assert 0.2 < rate.mean() < 1.0
    assert abs(np.corrcoef(start[:, 0], places.points[:, 0])[0, 1]) < 0.1
    np.testing.assert_allclose(places.points.mean(0), 0.0, atol=0.09)
    np.testing.assert_allclose(places.points.std(0), 1.0, atol=0.06)
    np.testing.assert_allclose(places.values, rows.values(places.points), rtol=1e-6)


def test_a_move_never_goes_where_the_density_is_not():
    half = BatchedDensity(lambda x: jnp.where(x[0] > 0, -x[0], jnp.nan), 1, 64)
    places = Particles.at(half, np.full((64, 1), 0.1), False)
    rng = np.random.default_rng(0)
    for _ in range(20):
        places, _ = move(half, places, np.eye(1), 2.0, rng, 4)
    assert (places.points > 0).all() and np.isfinite(places.values).all()


def test_climbs_end_at_the_top_whatever_the_scale():
    scales = jnp.array([1e-3, 1e3])
    rows = BatchedDensity(lambda x: -0.5 * jnp.sum((x / scales) ** 2), 2, 64)
    tops, heights = ascend(rows, np.random.default_rng(0).normal(size=(64, 2)), 200, SEARCH)
    assert heights.min() > -0.1
    spread = climb(rows, tops, jr.key(0), DEFAULT, gradients=True).points
    assert (spread.std(0) / np.asarray(scales)).min() > 0.5


def test_a_few_steps_show_where_to_climb():
    """Of many points, those beside the narrow mode stand highest after a few steps."""

    def narrow_and_wide(x):
        logpdf = jax.scipy.stats.norm.logpdf
        return jnp.logaddexp(logpdf(x, -4.0, 0.1).sum(), logpdf(x, 4.0, 2.0).sum())

    points = np.random.default_rng(0).normal(size=(640, 2)) * 3
    points[:5] = -4.0 + 0.2 * np.random.default_rng(1).normal(size=(5, 2))
    best = highest_after_screening(BatchedDensity(narrow_and_wide, 2, 64), points, 5, DEFAULT)
    assert (np.abs(best + 4.0) < 1.0).all()


@pytest.mark.parametrize("gradients", [False, True], ids=["walk", "hmc"])
def test_annealing_carries_draws_to_both_modes(gradients):
    target = inv.targets.mixture([[-4.0, 0.0], [4.0, 0.0]], [0.3, 0.7], 0.5)
    rows, law = rows_of(target, 512), BatchedDistribution(Normal(jnp.zeros(2), jnp.full(2, 3.0)))
    points, log_weights, _ = finite_draws(rows, law, jr.key(0), 2048, SEARCH)
    found = anneal(rows, law, points, log_weights, jr.key(1), DEFAULT, gradients=gradients).points
    assert abs((found[:, 0] > 0).mean() - 0.7) < 0.06
    right = found[found[:, 0] > 0]
    np.testing.assert_allclose(right.mean(0), [4.0, 0.0], atol=0.08)
    np.testing.assert_allclose(right.std(0), 0.5, atol=0.06)


def test_draws_are_resampled_only_where_they_weigh_evenly():
    target, law = (
        inv.targets.gaussian(2),
        BatchedDistribution(Normal(jnp.zeros(2), jnp.full(2, 3.0))),
    )
    points, log_weights, _ = finite_draws(rows_of(target), law, jr.key(0), 8192, SEARCH)
    assert effective(np.zeros(7)) == pytest.approx(7.0)
    picked = resampled(points, log_weights, 4000, jr.key(1), 500.0)
    assert picked is not None
    np.testing.assert_allclose(picked.points.std(0), 1.0, atol=0.06)
    assert picked.log_z == pytest.approx(np.log(2 * np.pi), abs=0.1)
    assert resampled(points, 50 * log_weights, 4000, jr.key(1), 500.0) is None


def test_annealing_knows_the_integral():
    rows = BatchedDensity(lambda x: 2.0 + jnp.sum(jax.scipy.stats.norm.logpdf(x, 1.0, 0.2)), 2, 512)
    law = BatchedDistribution(Normal(jnp.zeros(2), jnp.full(2, 3.0)))
    points, log_weights, _ = finite_draws(rows, law, jr.key(0), 2048, SEARCH)
    found = anneal(rows, law, points, log_weights, jr.key(1), DEFAULT, gradients=False)
    assert found.log_z == pytest.approx(2.0, abs=0.2)
    rows.limit = rows.evaluations + 3 * 2048
    stopped = anneal(rows, law, points, log_weights, jr.key(1), DEFAULT, gradients=False)
    assert stopped.log_z == -np.inf and len(stopped.points) == 2048


def test_annealing_knows_the_integral_of_a_density_with_a_small_support():
    def in_a_box(x):
        return jnp.where(jnp.all(jnp.abs(x - 1.0) < 1.0), 0.5, -jnp.inf)

    law = BatchedDistribution(Normal(jnp.zeros(2), jnp.full(2, 3.0)))
    drawn = finite_draws(BatchedDensity(in_a_box, 2, 512), law, jr.key(0), 4096, SEARCH)
    inside = (scipy.stats.norm.cdf(2 / 3) - 0.5) ** 2
    assert drawn.log_share == pytest.approx(np.log(inside), abs=0.1)
    problem = problem_of(inv.Target(in_a_box, 2), particles=512, search_draws=4096)
    assert find_modes(problem, None).log_z == pytest.approx(0.5 + np.log(4.0), abs=0.2)


def test_the_mass_of_a_mode_is_that_of_a_normal():
    rows = rows_of(inv.targets.gaussian(3), 64)
    climbed = climb(
        rows, np.random.default_rng(0).normal(size=(64, 3)), jr.key(0), DEFAULT, gradients=True
    )
    np.testing.assert_allclose(climbed.log_masses, 1.5 * np.log(2 * np.pi), atol=1e-3)


def test_a_spike_of_no_mass_leaves_the_way_into_it():
    """The funnel's density is unbounded in its neck: climbs end there, where there is no mass."""
    target = inv.targets.funnel(6)
    rows = rows_of(target, 256)
    starts = 3 * np.random.default_rng(0).normal(size=(256, 6))
    climbed = climb(rows, starts, jr.key(0), DEFAULT, gradients=True)
    assert (climbed.log_masses < -DEFAULT.spike_nats).mean() > 0.9
    passed = points_along_climbs(
        rows, starts, -SEARCH.beside_nats, jr.key(1), DEFAULT, gradients=True
    )
    assert len(passed) > 100
    low, high = np.quantile(passed[:, 0], [0.02, 0.98])
    assert -15 < low < -6 and high > 0
    assert points_along_climbs(rows, starts, 1e9, jr.key(1), DEFAULT, gradients=True).shape == (
        0,
        6,
    )


@pytest.mark.deep
def test_climbs_go_on_where_modes_lie_far_beyond_the_start():
    """Of modes at 0, 8, …, 120 on a line, X and X stretched fourfold reach the first few."""
    places = 8.0 * np.arange(16)

    def log_density(x):
        return jax.nn.logsumexp(-0.5 * (x[0] - places) ** 2) - 0.5 * x[1] ** 2

    found = find_modes(problem_of(inv.Target(log_density, dim=2)), None)
    reached = set(np.round(found.points[:, 0] / 8).astype(int))
    assert reached == set(range(16))


def test_climbs_end_where_nothing_around_them_is_inside_the_support(monkeypatch):
    """As around a thin support in many dimensions, which a box around it hardly ever meets."""
    points = np.random.default_rng(0).normal(size=(256, 2))
    rows = BatchedDensity(lambda x: -0.5 * (x[0] / 100) ** 2 - 0.5 * x[1] ** 2, 2, 64)
    finite, calls = module.finite_points, []

    def none_around(density, rows):
        calls.append(len(rows))
        return finite(density, rows)[: 0 if len(calls) > len(DEFAULT.widths) else None]

    monkeypatch.setattr(module, "finite_points", none_around)
    settings = LearnSettings(climbers=60)
    climbed = module._climb_widely(rows, points.astype(np.float32), jr.key(0), settings, False)
    assert len(climbed.points) == 60 and len(calls) == len(DEFAULT.widths) + 1


def test_an_infinite_density_is_named_with_its_parameters():
    """No chain could leave such a point, and learning used to end in advice on `initial=`."""

    def log_density(rate, loc):
        return jnp.where(rate > 2.5, jnp.inf, -0.5 * (rate**2 + loc**2))

    target = inv.Target(log_density, inv.Parameters(rate=inv.positive(), loc=inv.real()))
    with pytest.raises(inv.InputError, match=r"\+inf at rate = \d.*, loc = .*; return -inf where"):
        inv.learn(target, key=0, progress=False)


def test_tops_of_one_mode_are_one():
    rows = rows_of(inv.targets.mog6(), 64)
    starts = 4 * np.random.default_rng(0).normal(size=(128, 2))
    climbed = climb(rows, starts, jr.key(0), DEFAULT, gradients=False)
    assert len(different_tops(climbed, SEARCH)) == len(climbed.laplace(SEARCH)[0]) == 6


def test_a_narrow_mode_in_many_dimensions_is_climbed_to_from_narrow_starts():
    """From N(0, 3² I) in 60 dimensions every climb ends in the wider mode."""
    centre = np.zeros(60)
    centre[0] = 4.0

    def log_density(x):
        wide = -0.5 * jnp.sum((x + centre) ** 2)
        narrow = -0.5 * jnp.sum((x - centre) ** 2) / 0.3**2 - 60 * jnp.log(0.3)
        return jnp.logaddexp(jnp.log(0.7) + wide, jnp.log(0.3) + narrow)

    target = inv.Target(log_density, dim=60)
    sizes = {"climbers": 96, "search_draws": 512, "particles": 64, "spread_steps": 4}
    reached = find_modes(problem_of(target, **sizes), None).points
    assert (reached[:, 0] > 2).any() and (reached[:, 0] < -2).any()


def test_a_budget_of_evaluations_is_never_exceeded():
    for evaluations in (50, 1_000, 40_000, 300_000):
        problem = problem_of(inv.targets.mog6(), Budget(evaluations=evaluations))
        found = find_modes(problem, None)
        assert found.cost.evaluations <= 0.45 * evaluations

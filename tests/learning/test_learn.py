"""`learn`: from draws, from nothing, on awkward densities; what it reaches is checked on chains."""

import warnings

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import involutive as inv
from involutive.bijections.whitening import whitening
from involutive.diagnostics.metrics import ess_per_draw, mode_weights
from involutive.kernel.composite import Cycle
from involutive.learning.budget import SEARCH, Budget, Meter
from involutive.learning.effort import Effort
from involutive.learning.fit.em import count_clusters, fit_mixture
from involutive.learning.fit.recipe import Recipe
from involutive.learning.judge.independence import independence_figures
from involutive.learning.learn import learn
from involutive.learning.refine.rounds import Learner
from involutive.sampling.sample import parameter_hash

SMALL = Effort(climbers=128, particles=512, chains=96, steps=40, rounds=2)
SHORT = Recipe(components=(8,), tune_steps=300, flow_below=0.0, rows=4000)
# as small as it goes, for two modes on the line: what is tested is that it works, not how well
TINY = {
    "recipe": Recipe(components=(2,), tune_steps=30, flow_below=0.0, rows=1000, batch=64),
    "effort": Effort(climbers=64, particles=256, chains=64, steps=20, rounds=2),
    "progress": False,
}


@pytest.fixture(scope="module")
def tiny():
    return learn(inv.targets.mog2_1d(), key=5, **TINY)


def test_both_modes_are_found_and_weighed(tiny):
    draws = inv.sample(tiny, key=1, num_chains=64, num_samples=300, progress=False)
    assert mode_weights(draws).total_variation < 0.05
    assert tiny.outcome.converged
    assert tiny.outcome.evaluations > 0


def test_sampling_does_not_change_the_kernel(tiny):
    before = parameter_hash(tiny)
    inv.sample(tiny, key=2, num_chains=64, num_samples=300, progress=False)
    assert parameter_hash(tiny) == before


def test_outcome_says_what_was_reached(tiny):
    text = str(tiny.outcome)
    assert "effective draws per draw" in text and "R-hat" in text and "converged" in text
    reached = tiny.outcome.reached
    assert len(reached) == 1  # no round was needed
    assert all(0 < row["ess"] <= 1 for row in reached)
    assert reached[0]["seconds"] <= tiny.outcome.nearly_learned <= tiny.outcome.seconds


def test_a_start_far_out_leaves_at_once(tiny):
    far = np.full((64, 1), 30.0)
    draws = inv.sample(
        tiny, key=3, num_chains=64, num_samples=300, num_warmup=0, initial=far, progress=False
    )
    assert np.abs(draws.positions[:, 30:]).max() < 10


@pytest.mark.deep
def test_from_nothing_finds_and_weighs_every_mode():
    kernel = learn(inv.targets.mog6(), key=0, recipe=SHORT, effort=SMALL, progress=False)
    draws = inv.sample(kernel, key=1, num_chains=64, num_samples=300, progress=False)
    assert mode_weights(draws).total_variation < 0.03
    assert ess_per_draw(draws).least > 0.7


@pytest.mark.deep
def test_from_draws_the_proposal_is_nearly_independent():
    target = inv.targets.two_modes(4, separation=10.0)
    draws = np.asarray(target.sample(jr.key(0), 4000))
    kernel = learn(target, key=1, samples=draws, recipe=SHORT, progress=False)
    chains = inv.sample(kernel, key=2, num_chains=64, num_samples=300, progress=False)
    assert ess_per_draw(chains).least > 0.7
    assert mode_weights(chains).total_variation < 0.02


@pytest.mark.deep
def test_learning_is_deterministic():
    target = inv.targets.mog2_1d()
    draws = np.asarray(target.sample(jr.key(0), 1000))
    hashes = {
        parameter_hash(learn(target, key=7, samples=draws, recipe=SHORT, progress=False))
        for _ in range(2)
    }
    assert len(hashes) == 1


def stop_at(monkeypatch, name, call):
    """Let a stage of learning be interrupted when it is called for that time."""
    proceed, calls = getattr(Learner, name), []

    def stage(self, *arguments):
        calls.append(name)
        if len(calls) == call:
            raise KeyboardInterrupt
        return proceed(self, *arguments)

    monkeypatch.setattr(Learner, name, stage)


def test_an_interrupted_run_resumes_to_the_same_kernel(tiny, tmp_path, monkeypatch):
    target, path = tiny.target, tmp_path / "learning.inv"
    stop_at(monkeypatch, "finish_weighed", 1)
    with pytest.raises(KeyboardInterrupt):
        learn(target, key=5, checkpoint=path, **TINY)
    resumed = learn(target, key=5, checkpoint=path, resume=True, **TINY)
    assert parameter_hash(resumed) == parameter_hash(tiny)
    with pytest.raises(inv.InputError, match="was saved by a run with key"):
        learn(target, key=6, checkpoint=path, resume=True, **TINY)


@pytest.mark.deep
def test_an_interrupted_round_resumes_to_the_same_kernel(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "involutive.learning.refine.rounds.SUFFICES", 2.0
    )  # so that rounds are made
    target, path = inv.targets.mog2_1d(), tmp_path / "learning.inv"
    whole = learn(target, key=5, **TINY)
    assert whole.outcome.rounds == 2 and len(whole.outcome.reached) == 4
    stop_at(monkeypatch, "next_round", 2)
    with pytest.raises(KeyboardInterrupt):
        learn(target, key=5, checkpoint=path, **TINY)
    resumed = learn(target, key=5, checkpoint=path, resume=True, **TINY)
    assert parameter_hash(resumed) == parameter_hash(whole)


@pytest.mark.deep
def test_hmc_helps_a_mixture_that_is_poor_in_many_dimensions():
    """Sixteen skewed coordinates: a mixture has few effective draws, and no round is needed."""
    skewed = inv.Target(lambda x: jnp.sum(6 * x - jnp.exp(x)), 16)
    kernel = learn(skewed, key=0, progress=False)
    assert kernel.outcome.rounds == 0 and isinstance(kernel.kernel, Cycle)
    assert 0.2 < kernel.outcome.reached[-1]["ess"] < 0.5 < kernel.outcome.ess_per_draw
    draws = inv.sample(kernel, key=1, num_chains=64, num_samples=500, progress=False)
    # log of a gamma variate of shape 6: mean ψ(6), variance ψ'(6)
    np.testing.assert_allclose(draws.positions.mean((0, 1)), 1.70612, atol=0.02)
    np.testing.assert_allclose(draws.positions.var((0, 1)), 0.18132, atol=0.01)


@pytest.mark.deep
def test_a_bounded_density_without_gradients():
    box = inv.Target(lambda x: jnp.where(jnp.all((x > 0) & (x < 1)), 0.0, -jnp.inf), dim=2)
    kernel = learn(box, key=0, recipe=SHORT, effort=SMALL, progress=False)
    draws = inv.sample(kernel, key=1, num_chains=32, num_samples=400, progress=False)
    assert draws.positions.min() > 0 and draws.positions.max() < 1
    np.testing.assert_allclose(draws.positions.mean((0, 1)), 0.5, atol=0.03)
    np.testing.assert_allclose(draws.positions.std((0, 1)), 12**-0.5, atol=0.02)


@pytest.mark.deep
def test_scales_from_tiny_to_huge():
    scales = jnp.array([1e-4, 1e4, 1.0])
    target = inv.Target(lambda x: -0.5 * jnp.sum((x / scales) ** 2), dim=3)
    kernel = learn(target, key=0, recipe=SHORT, effort=SMALL, progress=False)
    draws = inv.sample(kernel, key=1, num_chains=64, num_samples=300, progress=False)
    np.testing.assert_allclose(draws.positions.std((0, 1)) / np.asarray(scales), 1.0, atol=0.06)


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""
    now = [100.0]
    monkeypatch.setattr("involutive.learning.budget.time.perf_counter", lambda: now[0])
    return now


def test_a_limit_in_seconds_is_shared_out(clock):
    meter = Meter(Budget(seconds=40.0))
    assert meter.allows_round(1) and not meter.past(SEARCH)
    clock[0] += 20.0
    assert meter.past(SEARCH) and meter.allows_round(1)  # nothing is known of rounds yet
    assert meter.seconds_left == 10.0  # a quarter is kept back for the end
    clock[0] += 4.0
    meter.kept_back, meter.round_seconds = 5.0, 4.0
    assert meter.allows_round(1) and meter.seconds_left == 11.0
    clock[0] += 8.0
    assert not meter.allows_round(1)  # a round more, and the end, would take 9 of the 8 left
    assert meter.allows(0, 2.0) and not meter.past(1.0)
    clock[0] += 10.0
    assert not meter.allows(0) and meter.past(1.0)


def test_without_a_limit_nothing_is_cut_short(clock):
    meter = Meter(Budget())
    clock[0] += 1e6
    assert meter.allows_round(1e12) and not meter.past(SEARCH) and meter.seconds_left is None


@pytest.mark.deep
def test_the_shortest_budget_still_gives_a_kernel():
    kernel = learn(
        inv.targets.gaussian(2), key=0, recipe=SHORT, effort=SMALL, budget=0.1, progress=False
    )
    assert kernel.outcome.rounds == 0
    draws = inv.sample(kernel, key=1, num_chains=32, num_samples=200, progress=False)
    np.testing.assert_allclose(draws.positions.std((0, 1)), 1.0, atol=0.2)


def test_points_very_far_out_leave_a_mixture_finite():
    points = np.random.default_rng(0).normal(size=(400, 3))
    points[:3] *= 1e12
    points[5] *= 1e18
    law = fit_mixture(jnp.asarray(points), 8, jr.key(0)).law()
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(law))


@pytest.mark.deep
def test_a_budget_of_evaluations_is_kept():
    budget = Budget(evaluations=1e6)
    kernel = learn(inv.targets.gaussian(2), key=0, budget=budget, progress=False)
    assert kernel.outcome.evaluations < 1.2e6


@pytest.mark.deep
def test_the_papers_bootstrap_is_a_strategy():
    target = inv.targets.gaussian(2)
    kernel = learn(target, key=0, strategy="bootstrap", budget=2.0, progress=False)
    assert {row["stage"] for row in kernel.outcome.history} == {"bootstrap"}
    draws = inv.sample(kernel, key=1, num_chains=64, num_samples=500, progress=False)
    np.testing.assert_allclose(draws.positions.std((0, 1)), 1.0, atol=0.1)


@pytest.mark.deep
def test_a_narrow_mode_is_found():
    """A mode a fifteenth as wide as the other, which one point of X in two thousand climbs to."""

    def log_density(x):
        narrow = jax.scipy.stats.norm.logpdf(x, -4.0, 0.1).sum()
        wide = jax.scipy.stats.norm.logpdf(x, 3.0, 1.5).sum()
        return jnp.logaddexp(jnp.log(0.3) + narrow, jnp.log(0.7) + wide)

    kernel = learn(inv.Target(log_density, dim=3), key=0, progress=False)
    draws = inv.sample(kernel, key=1, num_chains=64, num_samples=500, progress=False)
    assert abs((draws.positions[..., 0] < -3).mean() - 0.3) < 0.03


BAD = {
    "target": (lambda t: learn(lambda x: 0.0, key=0), "target must be a Target"),  # type: ignore[arg-type]
    "key": (lambda t: learn(t, key=None), "key must be an int seed"),  # type: ignore[arg-type]
    "few": (lambda t: learn(t, key=0, samples=np.zeros((3, 2))), "at least 20 draws, got 3"),
    "shape": (lambda t: learn(t, key=0, samples=np.zeros((30, 3))), r"shape \(n, 2\)"),
    "nan": (lambda t: learn(t, key=0, samples=np.full((30, 2), np.nan)), "must be finite"),
    "constant": (lambda t: learn(t, key=0, samples=np.ones((30, 2))), "must vary"),
    "initial": (lambda t: learn(t, key=0, initial=np.zeros((4, 5))), r"points of shape \(n, 2\)"),
    "budget": (lambda t: learn(t, key=0, budget="fast"), "budget must be seconds"),
    "strategy": (lambda t: learn(t, key=0, strategy="magic"), "one of recipe, bootstrap"),
    "bootstrap": (
        lambda t: learn(t, key=0, strategy="bootstrap", samples=np.zeros((30, 2))),
        "leave samples= and checkpoint= out",
    ),
    "negative": (lambda t: learn(t, key=0, budget=-1.0), "must be positive, got -1.0"),
}


@pytest.mark.parametrize("call, words", BAD.values(), ids=BAD)
def test_bad_input_is_named(call, words):
    with pytest.raises(inv.InputError, match=words):
        call(inv.targets.gaussian(2))


def test_a_density_that_is_nowhere_finite_is_refused():
    nowhere = inv.Target(lambda x: jnp.sum(x) * jnp.nan, dim=2)
    with warnings.catch_warnings(), pytest.raises(inv.InputError, match="not finite"):
        learn(nowhere, key=0, effort=SMALL, progress=False)


def test_whitening_undoes_scale_and_correlation():
    points = jr.normal(jr.key(0), (5000, 3)) @ jnp.array(
        [[1e-3, 0.0, 0.0], [0.0, 1.0, 2.0], [0.0, 0.0, 1e3]]
    )
    white = jax.vmap(whitening(points).transform)(points)
    np.testing.assert_allclose(np.cov(np.asarray(white).T), np.eye(3), atol=0.05)


def test_mixture_finds_separate_clusters():
    centres = jnp.array([[-8.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
    points = jnp.concatenate(
        [c[None] + jr.normal(jr.key(i), (500, 2)) for i, c in enumerate(centres)]
    )
    mixture = fit_mixture(points, 6, jr.key(9))
    assert count_clusters(mixture) == 3


def test_figures_see_a_rare_sticky_state():
    """A proposal that misses one per cent of the mass is accepted often and mixes badly."""
    target = inv.targets.mixture([[-10.0], [10.0]], [0.99, 0.01])
    wide = inv.GaussianMixture(
        jnp.array([0.999, 0.001]), jnp.full((2, 1), -10.0), jnp.array([[[1.0]], [[100.0]]])
    )
    g = whitening(jr.normal(jr.key(0), (1000, 1)))
    points = jnp.asarray(target.sample(jr.key(1), 2000))  # type: ignore[misc]
    kernel = inv.Kernel(target, inv.FunctionBlock(g), wide)
    figures = independence_figures(kernel, points, jr.key(2))
    assert figures["ess"] < 0.5 * figures["acceptance"]

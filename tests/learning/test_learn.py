"""`learn`: from draws, from nothing, on awkward densities; what it reaches is checked on chains."""

import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import involutive as inv
from involutive.bijections.whitening import whitening
from involutive.diagnostics.metrics import ess_per_draw, mode_weights
from involutive.kernel.composite import Cycle
from involutive.learning import learn as module
from involutive.learning.arguments import problem_of
from involutive.learning.budget import Budget
from involutive.learning.find.search import find_modes
from involutive.learning.fit.em import fit_components
from involutive.learning.fit.fit import fit_proposal
from involutive.learning.fit.mixture import Components, count_clusters, joined
from involutive.learning.judge.independence import independence_metrics
from involutive.learning.learn import learn
from involutive.learning.refine.rounds import next_round, polish
from involutive.learning.warm_start import as_initial
from involutive.sampling.sample import parameter_hash
from involutive.storage.codec import Decoder, Encoder

SHORT = inv.LearnSettings(
    components=(8,), tune_steps=300, couplings_below=0.0, training_draws=4000,
    climbers=128, particles=512, round_chains=96, round_steps=40, most_rounds=2,
)  # fmt: skip
# as small as it goes, for two modes on the line: what is tested is that it works, not how well
TINY = {
    "settings": inv.LearnSettings(
        components=(2,),
        tune_steps=30,
        couplings_below=0.0,
        training_draws=1000,
        batch=64,
        climbers=64,
        search_draws=512,
        particles=256,
        round_chains=64,
        round_steps=20,
        most_rounds=2,
    ),
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
    kernel = learn(inv.targets.mog6(), key=0, settings=SHORT, progress=False)
    draws = inv.sample(kernel, key=1, num_chains=64, num_samples=300, progress=False)
    assert mode_weights(draws).total_variation < 0.03
    assert ess_per_draw(draws).least > 0.7


@pytest.mark.deep
def test_from_draws_the_proposal_is_nearly_independent():
    target = inv.targets.two_modes(4, separation=10.0)
    draws = np.asarray(target.sample(jr.key(0), 4000))
    kernel = learn(target, key=1, samples=draws, settings=SHORT, progress=False)
    chains = inv.sample(kernel, key=2, num_chains=64, num_samples=300, progress=False)
    assert ess_per_draw(chains).least > 0.7
    assert mode_weights(chains).total_variation < 0.02


@pytest.mark.deep
def test_learning_is_deterministic():
    target = inv.targets.mog2_1d()
    draws = np.asarray(target.sample(jr.key(0), 1000))
    hashes = {
        parameter_hash(learn(target, key=7, samples=draws, settings=SHORT, progress=False))
        for _ in range(2)
    }
    assert len(hashes) == 1


def interrupt(monkeypatch, name, call=1, module=module):
    """Let a stage of learning be interrupted when it is called for that time."""
    proceed, calls = getattr(module, name), []

    def stage(*arguments, **named):
        calls.append(name)
        if len(calls) == call:
            raise KeyboardInterrupt
        return proceed(*arguments, **named)

    monkeypatch.setattr(module, name, stage)


def test_an_interrupted_run_returns_what_it_has_and_resumes_to_the_same_kernel(
    tiny, tmp_path, monkeypatch
):
    target, path = tiny.target, tmp_path / "learning.inv"
    with monkeypatch.context() as patched:
        interrupt(patched, "measure")
        kept = learn(target, key=5, checkpoint=path, **TINY)
    assert kept.outcome.ended == "interrupted" and not kept.outcome.converged
    draws = inv.sample(kept, key=1, num_chains=64, num_samples=300, progress=False)
    assert mode_weights(draws).total_variation < 0.05
    resumed = learn(target, key=5, checkpoint=path, resume=True, **TINY)
    assert parameter_hash(resumed) == parameter_hash(tiny)
    with pytest.raises(inv.InputError, match="was saved by a run with key"):
        learn(target, key=6, checkpoint=path, resume=True, **TINY)


@pytest.mark.parametrize("stage", ["find_modes", "fit_proposal"])
def test_an_interrupt_at_any_stage_leaves_a_kernel(stage, monkeypatch):
    interrupt(monkeypatch, stage)
    kept = learn(inv.targets.mog2_1d(), key=5, **TINY)
    assert kept.outcome.ended == "interrupted" and "interrupted" in str(kept.outcome)
    draws = inv.sample(kept, key=1, num_chains=8, num_samples=50, progress=False)
    assert np.isfinite(draws.positions).all() and draws.accepted.any()


@pytest.mark.deep
def test_an_interrupted_round_resumes_to_the_same_kernel(tmp_path, monkeypatch):
    settings = replace(TINY["settings"], suffices=2.0, poor=2.0)  # so that rounds are made
    more = TINY | {"settings": settings}
    # without a symmetry, whose moves would do in place of rounds
    target = inv.targets.mixture([[-1.0], [1.3]], [0.4, 0.6], sd=0.3)
    path = tmp_path / "learning.inv"
    whole = learn(target, key=5, **more)
    assert whole.outcome.rounds == 2 and len(whole.outcome.reached) == 5
    with monkeypatch.context() as patched:
        interrupt(patched, "next_round", 2)
        learn(target, key=5, checkpoint=path, **more)
    resumed = learn(target, key=5, checkpoint=path, resume=True, **more)
    assert parameter_hash(resumed) == parameter_hash(whole)


COUPLINGS = replace(
    TINY["settings"], suffices=2.0, couplings_below=1.1, components=(1,), coupling_steps=20,
    coupling_layers=2, coupling_width=8, most_rounds=1,
    budget=inv.BudgetSettings(structure=1e-9),  # a structure would make rounds needless
)  # fmt: skip


def two_wide_modes():
    """Two modes that a mixture of one component cannot describe."""
    return inv.targets.mixture([[-3.0, -0.5], [3.0, 1.0]], [0.4, 0.6], sd=1.0)


def test_a_round_runs_and_couplings_are_trained():
    settings = replace(COUPLINGS, coupling_layers=1)
    problem, _ = problem_of(two_wide_modes(), None, settings, None, 0, False, None)
    fitted = next_round(problem, fit_proposal(problem, find_modes(problem, None)))
    fitted = polish(problem, fitted)
    stages = {row["stage"] for row in fitted.proposal.history}
    assert fitted.rounds == 1 and {"log-variance", "likelihood"} <= stages
    draws = inv.sample(fitted.proposal.kernel, key=1, num_chains=64, num_samples=200)
    assert np.abs(draws.positions.mean((0, 1)) - [0.6, 0.4]).max() < 0.6


@pytest.mark.deep
def test_rounds_and_couplings_run():
    kernel = learn(two_wide_modes(), key=0, settings=COUPLINGS, progress=False)
    stages = {row["stage"] for row in kernel.outcome.history}
    assert kernel.outcome.rounds == 1 and {"log-variance", "likelihood"} <= stages
    draws = inv.sample(kernel, key=1, num_chains=64, num_samples=200, progress=False)
    assert np.abs(draws.positions.mean((0, 1)) - [0.6, 0.4]).max() < 0.6


def test_x_may_be_a_kernel_draws_or_a_distribution(tiny):
    """As `initial=` takes it: a kernel's proposal, the positions of draws, the rest as it is."""
    settings = inv.SearchSettings()
    law = as_initial(tiny, settings)
    drawn = np.asarray(law.sample(jr.key(0), (2000,)))
    assert (drawn > 0).mean() == pytest.approx(0.5, abs=0.1)
    assert np.abs(drawn).mean() == pytest.approx(0.5, abs=0.05)
    draws = inv.sample(tiny, key=3, num_chains=64, num_samples=300, progress=False)
    points = as_initial(draws, settings)
    assert points.shape == (settings.given_points, 1)
    assert np.isin(points, draws.positions).all()
    assert (points > 0).mean() == pytest.approx(0.5, abs=0.1)
    assert as_initial(law, settings) is law
    with pytest.raises(inv.InputError, match="draws or a learned kernel, got Kernel"):
        as_initial(inv.random_walk(tiny.target, 0.5), settings)


def test_a_kernel_learned_before_is_a_start(tiny):
    shifted = inv.Target(lambda x: tiny.target.log_density(x - 0.02), dim=1)
    again = learn(shifted, key=1, start=tiny, **TINY)
    assert again.outcome.converged and again.outcome.evaluations < tiny.outcome.evaluations
    draws = inv.sample(again, key=1, num_chains=64, num_samples=300, progress=False)
    assert abs((draws.positions > 0).mean() - 0.5) < 0.05
    assert abs(np.abs(draws.positions).mean() - 0.5) < 0.01


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
    kernel = learn(box, key=0, settings=SHORT, progress=False)
    draws = inv.sample(kernel, key=1, num_chains=32, num_samples=400, progress=False)
    assert draws.positions.min() > 0 and draws.positions.max() < 1
    np.testing.assert_allclose(draws.positions.mean((0, 1)), 0.5, atol=0.03)
    np.testing.assert_allclose(draws.positions.std((0, 1)), 12**-0.5, atol=0.02)


@pytest.mark.deep
def test_scales_from_tiny_to_huge():
    scales = jnp.array([1e-4, 1e4, 1.0])
    target = inv.Target(lambda x: -0.5 * jnp.sum((x / scales) ** 2), dim=3)
    kernel = learn(target, key=0, settings=SHORT, progress=False)
    draws = inv.sample(kernel, key=1, num_chains=64, num_samples=300, progress=False)
    np.testing.assert_allclose(draws.positions.std((0, 1)) / np.asarray(scales), 1.0, atol=0.06)


@pytest.mark.deep
def test_the_shortest_budget_still_gives_a_kernel():
    kernel = learn(inv.targets.gaussian(2), key=0, settings=SHORT, budget=0.1, progress=False)
    assert kernel.outcome.rounds == 0
    draws = inv.sample(kernel, key=1, num_chains=32, num_samples=200, progress=False)
    np.testing.assert_allclose(draws.positions.std((0, 1)), 1.0, atol=0.2)


def test_points_very_far_out_leave_a_mixture_finite():
    points = np.random.default_rng(0).normal(size=(400, 3))
    points[:3] *= 1e12
    points[5] *= 1e18
    law = fit_components(jnp.asarray(points), 8, jr.key(0), inv.FitSettings()).distribution()
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(law))


@pytest.mark.deep
def test_a_budget_of_evaluations_is_kept():
    budget = Budget(evaluations=1e6)
    kernel = learn(inv.targets.gaussian(2), key=0, budget=budget, progress=False)
    assert kernel.outcome.evaluations < 1.2e6


@pytest.mark.deep
def test_the_papers_bootstrap_is_a_strategy():
    target = inv.targets.gaussian(2)
    kernel = learn(target, key=0, strategy="bootstrap", budget=10.0, progress=False)
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
    "strategy": (lambda t: learn(t, key=0, strategy="magic"), "one of pipeline, bootstrap"),
    "bootstrap": (
        lambda t: learn(t, key=0, strategy="bootstrap", samples=np.zeros((30, 2))),
        "leave samples= and checkpoint= out",
    ),
    "negative": (lambda t: learn(t, key=0, budget=-1.0), "must be positive, got -1.0"),
    "settings": (lambda t: learn(t, key=0, settings=3), "must be inv.LearnSettings"),  # type: ignore[arg-type]
    "resume": (lambda t: learn(t, key=0, resume=True), "pass checkpoint= as well"),
}


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize("call, words", BAD.values(), ids=BAD)
def test_bad_input_is_named(call, words):
    with pytest.raises(inv.InputError, match=words):
        call(inv.targets.gaussian(2))


def test_a_density_that_is_nowhere_finite_is_refused():
    nowhere = inv.Target(lambda x: jnp.sum(x) * jnp.nan, dim=2)
    with warnings.catch_warnings(), pytest.raises(inv.InputError, match="not finite"):
        learn(nowhere, key=0, settings=SHORT, progress=False)


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
    settings = inv.FitSettings()
    mixture = fit_components(points, 6, jr.key(9), settings)
    assert count_clusters(mixture, settings.overlap) == 3


def test_figures_see_a_rare_sticky_state():
    """A proposal that misses one per cent of the mass is accepted often and mixes badly."""
    target = inv.targets.mixture([[-10.0], [10.0]], [0.99, 0.01])
    narrow = Components(np.zeros(1), np.array([[-10.0]]), np.ones((1, 1, 1)))
    wide = joined([narrow, narrow.inflated(100.0)], (0.999, 0.001)).distribution()
    g = whitening(jr.normal(jr.key(0), (1000, 1)))
    points = jnp.asarray(target.sample(jr.key(1), 2000))  # type: ignore[misc]
    kernel = inv.Kernel(target, inv.FunctionBlock(g), wide)
    metrics = independence_metrics(kernel, points, jr.key(2), 2000)
    assert metrics["ess"] < 0.5 * metrics["acceptance"]


@pytest.mark.parametrize("evaluations", [30, 4_000, 20_000])
def test_an_evaluation_budget_binds(evaluations):
    kernel = learn(
        inv.targets.gaussian(2), key=0, budget=Budget(evaluations=evaluations), progress=False
    )
    assert kernel.outcome.evaluations <= evaluations
    if evaluations < 1_000:
        assert kernel.outcome.ended == "budget" and not kernel.outcome.converged
        assert "allow at least" in kernel.outcome.advice
    if evaluations > 10_000:
        assert kernel.outcome.ended == "finished" and kernel.outcome.converged


def test_a_measured_kernel_is_kept_in_a_checkpoint(tiny):
    encode = Encoder()
    tree = encode({"measured": tiny})
    again = Decoder(encode.arrays, tiny.target)(tree)["measured"]
    assert again.outcome.ess_per_draw == tiny.outcome.ess_per_draw
    x = np.array([0.4])
    assert float(again.initial.log_prob(x)) == float(tiny.initial.log_prob(x))

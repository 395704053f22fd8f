"""Learning that is cut short keeps what it has, wherever it began and wherever it ends."""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from test_learn import TINY, interrupt

import involutive as inv
from involutive._xla.batched import OutOfBudget
from involutive.learning import bootstrap as bootstrapping
from involutive.learning import learn as module
from involutive.learning import route
from involutive.learning.arguments import problem_of
from involutive.learning.budget import Budget
from involutive.learning.checkpoint import SavedStages
from involutive.learning.find.climbs import Climbed
from involutive.learning.find.search import find_modes
from involutive.learning.find.second_search import MissedModes
from involutive.learning.fit import fit as fitting
from involutive.learning.fit.fit import fit_proposal
from involutive.learning.fit.mixture import Components
from involutive.learning.frugal.archive import Archive
from involutive.learning.frugal.explore import explore
from involutive.learning.frugal.state import Weighed
from involutive.learning.judge.ended_early import best_so_far
from involutive.learning.judge.measure import _more_effective, pilot_starts
from involutive.learning.learn import learn
from involutive.learning.problem import Problem
from involutive.learning.refine.rounds import train_on_draws
from involutive.learning.route import Given, better_of_both, try_frugal
from involutive.learning.run import Run
from involutive.learning.stages import Cost, Fitted, Found
from involutive.learning.warm_start import from_samples
from involutive.sampling.progress import Progress

TARGET = inv.targets.mog2_1d()


def posed(target=TARGET, initial=None, budget=None, **changes) -> Problem:
    settings = replace(TINY["settings"], **changes)
    return problem_of(target, initial, settings, budget, 5, False, None)[0]


@pytest.fixture(scope="module")
def fitted() -> Fitted:
    problem = posed()
    found = fit_proposal(problem, find_modes(problem, None))
    assert isinstance(found, Fitted)
    return found


@pytest.fixture(scope="module")
def learned():
    return learn(TARGET, key=5, **TINY)


@pytest.fixture(scope="module")
def draws():
    return np.asarray(TARGET.sample(jr.key(0), 4000))


# ── From draws, and from a kernel ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "evaluations", [1_000, 3_000, pytest.param(30_000, marks=pytest.mark.deep)]
)
def test_a_budget_binds_where_draws_are_given(draws, evaluations):
    kernel = learn(TARGET, key=0, samples=draws, budget=Budget(evaluations=evaluations), **TINY)
    assert kernel.outcome.evaluations <= evaluations
    if evaluations < 10_000:
        assert kernel.outcome.ended == "budget" and "allow at least" in kernel.outcome.advice


def test_a_budget_too_small_for_a_start_is_no_crash(learned):
    kernel = learn(TARGET, key=0, start=learned, budget=Budget(evaluations=500), **TINY)
    assert kernel.outcome.ended == "budget" and kernel.outcome.evaluations <= 500


def test_an_interrupt_while_given_draws_are_trained_on_keeps_them(draws, monkeypatch):
    interrupt(monkeypatch, "train_on_draws")
    kernel = learn(TARGET, key=0, samples=draws, **TINY)
    assert kernel.outcome.ended == "interrupted"
    near = inv.sample(kernel, key=1, num_chains=16, num_samples=200, progress=False).positions
    assert np.quantile(np.abs(near), 0.99) < 2 * np.abs(draws).max()


@pytest.mark.deep
def test_resuming_from_given_draws_does_not_train_again(draws, tmp_path, monkeypatch):
    path = tmp_path / "learning.inv"
    with monkeypatch.context() as patched:
        interrupt(patched, "measure")
        learn(TARGET, key=0, samples=draws, checkpoint=path, **TINY)
    monkeypatch.setattr(module, "train_on_draws", None)
    kernel = learn(TARGET, key=0, samples=draws, checkpoint=path, resume=True, **TINY)
    assert kernel.outcome.ended == "finished" and kernel.outcome.converged


@pytest.mark.deep
def test_draws_outside_the_support_are_left_out(draws):
    """Chains of a round start at training draws, and every start must have a finite density."""
    half = inv.Target(lambda x: jnp.where(x[0] > 0, TARGET.log_density(x), -jnp.inf), 1)
    found = from_samples(posed(half), draws)
    assert found.given and len(found.points) > 1000 and (found.points > 0).all()
    trained = train_on_draws(posed(half), replace(found, points=found.points[:300]))
    assert isinstance(trained, Fitted)
    assert (trained.draws > 0).all() and (trained.states > 0).all()


def test_given_points_outside_the_support_are_left_out():
    """As above: chains of a round start at the points of the search."""
    half = inv.Target(lambda x: jnp.where(x[0] > 0, TARGET.log_density(x), -jnp.inf), 1)
    given = np.linspace(-2.0, 2.0, 50)[:, None]
    assert (find_modes(posed(half, given), given).points > 0).all()


@pytest.mark.deep
def test_a_support_that_no_draw_of_x_meets():
    """Then no place is away from the proposal, and chains start from it alone."""
    far = inv.Target(lambda x: jnp.where(x[0] > 90, -0.5 * (x[0] - 100) ** 2, -jnp.inf), 1)
    given = 100 + np.random.default_rng(0).normal(size=(500, 1))
    problem = posed(far)
    trained = train_on_draws(problem, from_samples(problem, given))
    assert isinstance(trained, Fitted) and len(trained.found.starts) == 0
    spending = problem.spend(1.0, Cost())
    places, elsewhere = pilot_starts(problem, spending, trained, jr.key(0))
    assert (places > 90).all() and not elsewhere.any()


# ── Stages that are cut short ───────────────────────────────────────────────────────────────────


def test_an_interrupt_while_missed_modes_are_climbed_to_keeps_the_kernel(learned, monkeypatch):
    interrupt(monkeypatch, "with_missed_modes")
    kept = learn(TARGET, key=5, **TINY)
    assert kept.outcome.ended == "interrupted" and kept.outcome.converged
    assert kept.outcome.ess_per_draw == learned.outcome.ess_per_draw


def test_a_kernel_that_chains_confirmed_is_what_is_kept(fitted, learned):
    problem = posed()
    later = replace(fitted, measured=learned, rounds=2, cost=Cost(10**9, 77.0))
    kept = best_so_far(problem, later, "interrupted")
    assert kept.kernel is learned.kernel and kept.outcome.converged
    outcome = kept.outcome
    assert (outcome.ended, outcome.rounds, outcome.evaluations) == ("interrupted", 2, 10**9)
    refuted = learned.recorded(replace(learned.outcome, converged=False))
    unmeasured = best_so_far(problem, replace(later, measured=refuted), "interrupted")
    assert unmeasured.kernel is not learned.kernel and not unmeasured.outcome.converged


def test_a_fit_survives_a_budget_that_ends_while_missed_modes_join_it(fitted, monkeypatch):
    def found_more(*_):
        rows = np.full((3, 1), 40.0)
        return MissedModes(rows, Climbed.none(1, rows.dtype)._replace(points=rows), 7)

    def out(*_):
        raise OutOfBudget

    monkeypatch.setattr(fitting, "second_search", found_more)
    monkeypatch.setattr(fitting, "with_components", out)
    problem = posed()
    after = fit_proposal(problem, fitted.found)
    assert isinstance(after, Fitted) and after.proposal.ess > 0.5
    assert after.looked.new == 3 and len(after.found.points) == len(fitted.found.points) + 3


def test_a_budget_that_allows_no_fit_is_counted(fitted):
    problem = posed(budget=Budget(evaluations=10_000))
    spent = replace(fitted.found, cost=Cost(4_000))
    after = fit_proposal(problem, spent)
    assert isinstance(after, Found | Fitted) and 4_000 < after.cost.evaluations <= 5_000
    none = fit_proposal(posed(budget=problem.plan.budget), replace(spent, cost=Cost(5_000)))
    assert isinstance(none, Found) and none.cost.evaluations == 5_000


def test_chains_do_not_start_where_nothing_is_known_of_the_density(fitted):
    problem = posed()
    late = problem.spend(0.0, Cost())
    places, elsewhere = pilot_starts(problem, late, fitted, jr.key(0))
    assert np.isin(places, fitted.draws).all() and not elsewhere.any()


def test_a_kernel_whose_chains_agree_comes_before_one_whose_chains_do_not(learned):
    apart = learned.recorded(replace(learned.outcome, converged=False, ess_per_draw=1.0))
    assert _more_effective(learned, apart) and not _more_effective(apart, learned)


def test_an_interrupted_bootstrap_leaves_a_kernel(monkeypatch):
    interrupt(monkeypatch, "bootstrap", module=bootstrapping)
    kernel = learn(TARGET, key=5, strategy="bootstrap", **TINY)
    assert kernel.outcome.ended == "interrupted" and not kernel.outcome.converged


def test_a_kernel_that_is_learned_again_goes_on_with_its_run(learned, tmp_path):
    """Learning took other seconds then, which no draw depends on."""
    sizes = {"key": 1, "num_chains": 8, "checkpoint": tmp_path / "run", "progress": False}
    inv.sample(learned, num_samples=10, **sizes)
    again = learned.recorded(replace(learned.outcome, seconds=99.0))
    assert inv.sample(again, num_samples=20, resume=True, **sizes).num_samples == 20
    elsewhere = eqx.tree_at(lambda k: k.starts, learned, learned.starts + 1)
    with pytest.raises(inv.InputError, match="has another kernel"):
        inv.sample(elsewhere, num_samples=20, resume=True, **sizes)


def test_a_run_resumed_after_its_ladder_is_not_judged_again(fitted, monkeypatch):
    monkeypatch.setattr(module, "measure", None)
    later = replace(fitted, ladder_ess=0.01, suffices=False)
    problem = posed()
    with Progress("learning", progress=False) as bar:
        run = Run(problem, SavedStages(None, problem), bar, later)
        assert module._judge(run, later) == (later, None, False)


# ── After frugal learning ───────────────────────────────────────────────────────────────────────


def test_what_frugal_learning_weighed_is_not_lost(learned):
    doubtful = replace(learned.outcome, converged=False)
    tried = learned.recorded(replace(doubtful, ess_per_draw=0.08))
    ended = replace(doubtful, ended="interrupted", seconds=9000.0)
    cut = learned.recorded(replace(ended, ess_per_draw=0.01))
    kept = better_of_both(tried, cut).outcome
    assert (kept.ess_per_draw, kept.ended, kept.seconds) == (0.08, "interrupted", 9000.0)
    better = learned.recorded(ended)  # by a proposal that reaches more
    assert better_of_both(tried, better) is better
    at_once = learned.recorded(replace(ended, ess_per_draw=0.0, evaluations=0, seconds=0.0))
    assert better_of_both(tried, at_once).outcome.evaluations == tried.outcome.evaluations
    assert better_of_both(tried, learned) is learned and better_of_both(None, cut) is cut
    assert Given(None, None, None, tried).spent.evaluations == tried.outcome.evaluations


def test_a_frugal_run_that_is_resumed_does_not_time_the_density(monkeypatch):
    problem = posed(frugal=inv.FrugalSettings(first=(100, 0), most_ascents=4, least_ascents=4))
    monkeypatch.setattr(route, "should_be_frugal", None)
    weighed = replace(explore(problem, None), ended="finished")
    for expensive in (True, False):
        last = replace(weighed, expensive=expensive)
        with Progress("learning", progress=False) as bar:
            kernel, final = try_frugal(problem, None, last, SavedStages(None, problem), bar)
        assert kernel is not None and final


def counted(shift=0.0):
    calls = []

    def log_density(x):
        calls.append(1)
        return -0.5 * float(np.sum((x - shift) ** 2))

    return inv.Target(log_density, 2, backend="numpy", name="counted"), calls


def test_a_checkpoint_calls_the_density_once_and_not_at_every_stage(tmp_path):
    target, calls = counted()
    problem = posed(target)
    saved, archive = SavedStages(tmp_path / "run.inv", problem), Archive.empty(2)
    one = Components(np.zeros(1), np.zeros((1, 2)), np.eye(2)[None])
    calls.clear()
    saved.write(Weighed(archive, one, 0.0, 0.0, None))
    first = len(calls)
    saved.write(Weighed(archive, one, 0.0, 0.0, None))
    assert first > 0 and len(calls) == first
    assert isinstance(SavedStages(tmp_path / "run.inv", problem).read(), Weighed)


def test_evaluations_of_another_density_are_not_weighed(tmp_path):
    """Weights alone judge a frugal kernel: with another density's they would be believed."""
    one = Components(np.zeros(1), np.zeros((1, 2)), np.eye(2)[None])
    path = tmp_path / "run.inv"
    SavedStages(path, posed(counted()[0])).write(Weighed(Archive.empty(2), one, 0.0, 0.0, None))
    with pytest.raises(inv.InputError, match="evaluations of another density"):
        SavedStages(path, posed(counted(shift=1.0)[0])).read()


def test_a_frugal_run_that_has_spent_its_budget_ends_learning(learned, monkeypatch):
    """The pipeline would begin with nothing left, and lose what was weighed."""
    ended = learned.recorded(replace(learned.outcome, converged=False, ended="budget"))
    monkeypatch.setattr(route, "should_be_frugal", lambda _: False)
    monkeypatch.setattr(route, "learn_frugally", lambda *_: ended)
    with Progress("learning", progress=False) as bar:
        kernel, final = try_frugal(posed(), learned, None, SavedStages(None, posed()), bar)
    assert kernel is ended and final

"""Frugal learning: every evaluation is weighed, none is lost, and the verdict says how little."""

from dataclasses import replace

import jax.random as jr
import numpy as np
import pytest

import involutive as inv
from involutive._xla.batched import BatchedDensity, BatchedDistribution
from involutive.learning.budget import Budget
from involutive.learning.fit.mixture import Components
from involutive.learning.frugal import frugal as frugal_module
from involutive.learning.frugal.archive import Archive
from involutive.learning.frugal.ascents import Frame, Trail, ascend_quasi_newton
from involutive.learning.frugal.explore import explore
from involutive.learning.frugal.frugal import should_be_frugal
from involutive.learning.frugal.later_search import later_search
from involutive.learning.frugal.refit import refit, tempering
from involutive.learning.frugal.regress import refine_by_regression
from involutive.learning.frugal.search import distinct_modes
from involutive.learning.frugal.state import Weighed
from involutive.learning.problem import initial_distribution, pose_problem
from involutive.learning.weights import effective, log_mean

SMALL = inv.FrugalSettings(
    on=True, first=(300, 0), batch=(300, 0), least_ascents=16, most_ascents=16, later_ascents=8
)
FRUGAL = inv.LearnSettings(frugal=SMALL)
MEANS, WEIGHTS = np.array([[-4.0, 0.0], [3.0, 2.0]]), np.array([0.3, 0.7])


def two(calls: list[int] | None = None, shift: float = 0.0) -> inv.Target:
    def log_density(rows: np.ndarray) -> np.ndarray:
        if calls is not None:
            calls[0] += len(rows)
        squares = np.sum((rows[:, None] - shift - MEANS[None]) ** 2, axis=2)
        return np.logaddexp.reduce(np.log(WEIGHTS) - 0.5 * squares, axis=1)

    return inv.Target(log_density, 2, backend="numpy", vectorized=True, name="two")


def problem_of(target: inv.Target, settings: inv.LearnSettings = FRUGAL, budget=None, key=0):
    law = initial_distribution(None, target, 3.0)
    return pose_problem(target, law, settings, budget or Budget(), jr.key(key), False, None)


def normal(mean: float, variance: float, count: int) -> Components:
    return Components(np.log([float(count)]), np.array([[mean]]), np.array([[[variance]]]))


def test_weights_are_those_of_the_deterministic_mixture():
    """Brute force over all proposals; weights by a point's own proposal would differ."""
    rng = np.random.default_rng(0)
    law = BatchedDistribution(initial_distribution(None, inv.targets.gaussian(1), 3.0))
    first, second = 3 * rng.normal(size=(400, 1)), 1 + 0.5 * rng.normal(size=(100, 1))
    log_p = lambda x: -0.5 * (x[:, 0] - 1) ** 2  # noqa: E731
    archive = Archive.empty(1).with_draws(first, log_p(first), law, 400)
    archive = archive.with_draws(second, log_p(second), law, 0, normal(1.0, 0.25, 100))
    x = archive.points[:, 0]
    of_x = np.exp(-0.5 * (x / 3) ** 2) / (3 * np.sqrt(2 * np.pi))
    of_normal = np.exp(-2 * (x - 1) ** 2) / (0.5 * np.sqrt(2 * np.pi))
    exact = np.log((400 * of_x + 100 * of_normal) / 500)
    np.testing.assert_allclose(archive.log_s, exact, atol=1e-5)
    assert log_mean(archive.log_weights) == pytest.approx(np.log(np.sqrt(2 * np.pi)), abs=0.1)
    own = np.log(np.where(np.arange(500) < 400, of_x, of_normal))
    assert np.abs(archive.log_s - own).max() > 0.1


def test_tempering_keeps_draws_effective():
    log_weights = np.random.default_rng(0).normal(size=1000) * 20
    beta = tempering(log_weights, 100.0)
    assert 0 < beta < 1
    assert effective(beta * log_weights) == pytest.approx(100.0, rel=0.01)
    assert tempering(np.zeros(1000), 100.0) == 1.0


def test_ascents_find_top_and_hessian_and_keep_every_evaluation():
    precision = np.array([[4.0, 1.0, 0.0], [1.0, 2.0, 0.5], [0.0, 0.5, 1.0]])
    calls = [0]

    def log_density(rows: np.ndarray) -> np.ndarray:
        calls[0] += len(rows)
        x = rows - np.array([2.0, -1.0, 0.5])
        return -0.5 * np.einsum("ni,ij,nj->n", x, precision, x)

    target = inv.Target(log_density, 3, backend="numpy", vectorized=True, name="normal")
    settings, rng = inv.LearnSettings(), np.random.default_rng(0)
    starts = 3 * rng.normal(size=(8, 3))
    heights = log_density(starts)
    calls[0] = 0
    trail = Trail(BatchedDensity(target.log_density, 3), Frame(np.zeros(3), np.full(3, 3.0)))
    climbed = ascend_quasi_newton(trail, starts, heights, rng, settings.frugal, gradients=False)
    assert calls[0] == sum(map(len, trail.points)) == sum(map(len, trail.log_p))
    counted = np.exp(np.concatenate([part.log_weights for part in trail.normals])).sum()
    assert counted == pytest.approx(calls[0])
    np.testing.assert_allclose(climbed.tops, np.tile([2.0, -1.0, 0.5], (8, 1)), atol=0.5)
    law = BatchedDistribution(initial_distribution(None, target, 3.0))
    normals = Components(*(np.concatenate(p) for p in zip(*trail.normals, strict=True)))
    archive = Archive.empty(3).with_draws(
        np.concatenate(trail.points), np.concatenate(trail.log_p), law, 0, normals
    )
    mode = refine_by_regression(archive, distinct_modes(climbed, settings)[0], settings)
    root = mode.axes[0] * mode.scales[0]
    np.testing.assert_allclose(mode.tops[0], [2.0, -1.0, 0.5], atol=0.01)
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(precision), atol=0.02)


def test_it_learns_with_few_calls_and_counts_them():
    calls = [0]
    target = two(calls)
    calls[0] = 0
    kernel = inv.learn(target, key=0, settings=FRUGAL, progress=False)
    outcome = kernel.outcome
    assert outcome.converged and outcome.modes == 2 and outcome.ess_per_draw > 0.8
    assert outcome.evaluations <= calls[0] < outcome.evaluations + 10  # and the check before
    assert calls[0] < 4000
    assert outcome.history[0]["stage"].startswith("batch of 300 weighed for 2")
    assert "no pilot" in str(outcome) and np.isnan(outcome.r_hat)
    heavy = np.exp(np.asarray(kernel.proposal.auxiliary.logits))
    assert np.sort(heavy / heavy.sum())[-2:] == pytest.approx([0.3, 0.7], abs=0.05)


def test_when_learning_is_frugal(monkeypatch):
    cheap, plain = inv.targets.mog6(), inv.LearnSettings()
    assert not should_be_frugal(problem_of(cheap, plain))
    assert should_be_frugal(problem_of(cheap, plain, Budget(evaluations=100_000)))
    assert not should_be_frugal(problem_of(cheap, plain, Budget(evaluations=1e6)))
    never = inv.LearnSettings(frugal=inv.FrugalSettings(on=False))
    assert not should_be_frugal(problem_of(cheap, never, Budget(evaluations=100_000)))
    assert should_be_frugal(problem_of(cheap, FRUGAL))
    assert not should_be_frugal(
        problem_of(inv.targets.gaussian(60), plain, Budget(evaluations=100_000))
    )
    box = two()
    for seconds, dear in ((1e-5, False), (0.05, True)):
        monkeypatch.setattr(frugal_module, "_seconds_per_call", lambda _, s=seconds: s)
        assert should_be_frugal(problem_of(box, plain)) is dear


@pytest.mark.parametrize("evaluations", [2_000, 3_000])
def test_a_budget_binds(evaluations):
    calls = [0]
    target = two(calls)
    kernel = inv.learn(target, key=0, budget=Budget(evaluations=evaluations), progress=False)
    assert kernel.outcome.evaluations <= evaluations
    assert kernel.outcome.converged or "budget" in kernel.outcome.advice


@pytest.mark.deep
def test_an_interruption_keeps_what_was_weighed_and_resumes(tmp_path, monkeypatch):
    """The run that goes on ends with the kernel of one that was not interrupted."""
    path = tmp_path / "learning.inv"
    whole = inv.learn(two(), key=0, settings=FRUGAL, progress=False)
    seen, true = list[Weighed](), frugal_module.next_batch

    def twice(problem, weighed):
        seen.append(weighed)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return true(problem, weighed)

    monkeypatch.setattr(frugal_module, "next_batch", twice)
    kernel = inv.learn(two(), key=0, settings=FRUGAL, checkpoint=path, progress=False)
    assert kernel.outcome.ended == "interrupted" and not kernel.outcome.converged
    assert kernel.outcome.looked.places == len(seen[-1].archive)
    monkeypatch.setattr(frugal_module, "next_batch", true)
    calls = [0]
    again = inv.learn(
        two(calls), key=0, settings=FRUGAL, checkpoint=path, resume=True, progress=False
    )
    assert calls[0] < whole.outcome.evaluations
    assert again.outcome.evaluations == whole.outcome.evaluations
    np.testing.assert_array_equal(again.proposal.auxiliary.means, whole.proposal.auxiliary.means)


def test_a_given_kernel_is_weighed_again():
    old = inv.learn(two(), key=0, settings=FRUGAL, progress=False)
    calls = [0]
    target = two(calls, shift=0.3)
    calls[0] = 0
    new = inv.learn(target, key=1, start=old, settings=FRUGAL, progress=False)
    assert new.outcome.converged and new.outcome.ess_per_draw > 0.8
    assert calls[0] < 2500
    assert new.outcome.looked.climbs == SMALL.later_ascents  # no search before the first batch


def test_gradients_take_the_place_of_pairs():
    target = inv.targets.mixture(MEANS.tolist(), WEIGHTS.tolist())
    weighed = explore(problem_of(target), None)
    assert weighed.modes == 2
    assert weighed.cost.evaluations > len(weighed.archive)  # gradients are counted beside


def test_a_density_outside_x_is_named():
    target = inv.Target(
        lambda x: -np.inf if x[0] < 1e6 else 0.0, 1, backend="numpy", name="nowhere"
    )
    with pytest.raises(inv.InputError, match="not finite at any of"):
        explore(problem_of(target), None)


def test_settings_have_a_group():
    with pytest.raises(inv.InputError, match="goal of FrugalSettings must not be negative"):
        inv.FrugalSettings(goal=-1)
    assert replace(SMALL, on=None).on is None


def test_a_later_search_finds_what_the_mixture_misses():
    """Also where the search itself weighs the new mode: it is new by what was seen before."""
    problem = problem_of(two())
    weighed = explore(problem, None)
    assert weighed.teaching is not None and len(weighed.teaching.means) == 2
    kept = np.argmin(np.abs(weighed.teaching.means[:, 0] - 3.0))
    one = Components(*(part[[kept]] for part in weighed.teaching))._replace(log_weights=np.zeros(1))
    near = np.linalg.norm(weighed.archive.points - MEANS[0], axis=1) < 2.5
    rows = np.flatnonzero(~near)  # nothing was seen of the other mode but its slopes
    parts = ("points", "log_p", "log_x", "log_normals")
    archive = replace(weighed.archive, **{p: getattr(weighed.archive, p)[rows] for p in parts})
    blind = replace(weighed, archive=archive, mixture=one, teaching=one, modes=1)
    found = later_search(problem, blind)
    assert found.new == 1 and found.modes == 2 and not found.ended
    assert np.linalg.norm(found.mixture.means - MEANS[0], axis=1).min() < 0.1


def test_a_few_points_leave_the_wide_normal():
    """Of a density with a small support only a few evaluations may be finite."""
    wide = normal(0.0, 9.0, 1)
    points = np.array([[0.01], [0.02]])
    law = BatchedDistribution(initial_distribution(None, inv.targets.gaussian(1), 3.0))
    archive = Archive.empty(1).with_draws(points, np.zeros(2), law, 2)
    mixture, beta, ess = refit(archive, None, wide, jr.key(0), FRUGAL)
    assert mixture is wide and beta == 1.0 and ess == 0.0

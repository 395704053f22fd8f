"""Structured proposals: what they miss joins them, and what they evaluate is counted."""

from dataclasses import replace

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flowjax.bijections import Identity
from flowjax.distributions import Normal

import involutive as inv
from involutive._xla.batched import OutOfBudget
from involutive.auxiliary import Joined
from involutive.auxiliary.covered import Covered
from involutive.auxiliary.hierarchical import evaluations_within
from involutive.involutions.symmetry_search import most_evaluations, symmetries_counted
from involutive.learning.budget import Budget
from involutive.learning.find.climbs import Climbed
from involutive.learning.find.second_search import MissedModes
from involutive.learning.fit import structure
from involutive.learning.fit.complete import complete_modes
from involutive.learning.fit.proposal_weights import affordable_draws, weighted_draws
from involutive.learning.fit.structure import try_structures
from involutive.learning.fit.weighted import Space
from involutive.learning.judge.pilot import evaluations_per_step
from involutive.learning.problem import initial_distribution, pose_problem
from involutive.learning.settings import LearnSettings
from involutive.learning.stages import Cost, Fitted, Found, Looked, Proposal

TARGET = inv.targets.two_modes(2, separation=4.0)
ROWS = np.asarray(TARGET.sample(jr.key(0), 200))


def problem_of(target=TARGET, budget=None):
    law = initial_distribution(None, target, 3.0)
    return pose_problem(target, law, LearnSettings(), budget or Budget(), jr.key(0), False, None)


def proposal(sd, ess, components, target=TARGET):
    law = inv.GaussianMixture(np.ones(1), np.zeros((1, 2)), sd**2 * np.eye(2)[None])
    kernel = inv.Kernel(target, inv.FunctionBlock(Identity((2,))), law)
    return Proposal(kernel, ess, ess, components, [{"stage": f"sd {sd}"}])


def fitted_of(mixture):
    none = Climbed.none(2, ROWS.dtype).laplace(LearnSettings().search)
    found = Found(ROWS, ROWS[:0], *none, 0.0, True, True, Cost())
    return Fitted(found, mixture, ROWS, ROWS, ROWS[:0], 0, False, 0.0, Looked(), Cost())


@pytest.fixture
def candidates(monkeypatch):
    """Every fit of structures, with the points that it had; each is a proposal of its own."""
    made = []

    def best(problem, spending, fitted, keys):
        made.append(len(fitted.found.points))
        one = proposal(3.0 + len(made), 0.3, 0)
        return replace(one, history=[*fitted.proposal.history, *one.history])

    monkeypatch.setattr(structure, "_best_structure", best)
    return made


def searches(monkeypatch, *counts):
    """Second searches that find so many points, one after the other."""
    left = list(counts)

    def search(*_):
        rows = np.full((left.pop(0), 2), 9.0)
        tops = Climbed(rows, rows, rows, np.zeros(len(rows)), np.ones_like(rows),
                       np.tile(np.eye(2), (len(rows), 1, 1)))  # fmt: skip
        return MissedModes(rows, tops, 50)

    monkeypatch.setattr(structure, "second_search", search)
    return left


def test_modes_that_a_structure_misses_join_it(candidates, monkeypatch):
    left = searches(monkeypatch, 6, 0)
    after = try_structures(problem_of(), fitted_of(proposal(2.0, 0.1, 4)))
    assert candidates == [200, 206] and left == []
    assert after.looked.new == 0 and after.looked.second == 50
    assert len(after.found.points) == 206 and after.found.modes == 1
    assert [row["stage"] for row in after.proposal.history] == ["sd 2.0", "sd 4.0", "sd 5.0"]


def test_modes_that_stay_missed_are_recorded(candidates, monkeypatch):
    searches(monkeypatch, 6, 2)
    after = try_structures(problem_of(), fitted_of(proposal(2.0, 0.1, 4)))
    assert after.looked.new == 2 and len(after.found.points) == 206


def test_nothing_is_searched_for_around_the_proposal_of_before(monkeypatch):
    """A proposal with couplings has no components either, and its base is no density of x."""
    monkeypatch.setattr(structure, "second_search", None)
    keep = lambda p, s, fitted, k: replace(fitted.proposal, history=[{"stage": "tried"}])  # noqa: E731
    monkeypatch.setattr(structure, "_best_structure", keep)
    coupled = proposal(2.0, 0.6, 0)
    after = try_structures(problem_of(), fitted_of(coupled))
    assert after.looked == Looked() and after.proposal.kernel is coupled.kernel
    assert not after.suffices  # as for any proposal that is no structure


def test_a_proposal_is_not_judged_on_the_few_draws_that_are_left():
    problem = problem_of(budget=Budget(evaluations=1_000))
    spending, mixture = problem.spend(1.0, Cost()), proposal(2.0, 0.1, 4)
    law = proposal(3.0, 0.1, 0).kernel.auxiliary
    with pytest.raises(OutOfBudget):
        structure._keep_better(
            problem, spending, fitted_of(mixture), mixture, "wide", law, jr.key(0)
        )
    assert spending.evaluations == 0
    larger = problem_of(budget=Budget(evaluations=6_000))
    spending = larger.spend(1.0, Cost())
    assert affordable_draws(larger, spending, law) == 3_000
    with pytest.raises(OutOfBudget):  # a hierarchy evaluates the density for every draw
        affordable_draws(larger, spending, funnel_proposal()[1])


# ── Counts ──────────────────────────────────────────────────────────────────────────────────────


def funnel_proposal(dim=4):
    funnel = inv.targets.funnel(dim)
    return funnel, inv.Hierarchical(funnel, Normal(jnp.zeros(1), 3.0), [0], jnp.zeros(dim))


@pytest.mark.deep
def test_what_a_hierarchy_evaluates_is_counted():
    """A gradient counts as three, a Hessian as three per child."""
    funnel, law = funnel_proposal()
    wide = inv.GaussianMixture(np.ones(1), np.zeros((1, 4)), 9 * np.eye(4)[None])
    assert evaluations_within(wide) == 0 and evaluations_within(law) == 12
    for made in (Covered(law, wide, 0.1), Joined(law, wide, 0.1)):
        assert evaluations_within(made) == 12
    kernel = inv.Kernel(funnel, inv.FunctionBlock(Identity((4,))), law)
    assert evaluations_per_step(kernel) == 37  # a draw and two densities of q, and one of p
    assert evaluations_per_step(kernel, of_proposal=False) == 1
    both = inv.Mixture([inv.random_walk(funnel, 0.5), kernel], [0.1, 0.9])
    assert evaluations_per_step(both) == 38
    spending = problem_of(funnel).spend(1.0, Cost())
    weighted_draws(spending, law, 10, jr.key(0))
    assert spending.evaluations == 10 * (1 + 2 * 12)


def test_what_chains_and_trainings_evaluate_is_not_left_for_the_density():
    problem = problem_of(budget=Budget(evaluations=1_000))
    spending = problem.spend(1.0, Cost())
    spending.density.values(ROWS)
    spending.note(700)
    assert spending.density.left == 100 and spending.evaluations == 900
    with pytest.raises(OutOfBudget):
        spending.density.values(ROWS)


@pytest.mark.parametrize("make", [
    lambda: inv.targets.gaussian(6), lambda: inv.targets.two_modes(5, separation=4.0),
    lambda: inv.targets.mog6(),
])  # fmt: skip
def test_the_search_for_symmetries_is_counted(make):
    target = make()
    _, evaluations = symmetries_counted(target, 0, None)
    assert 0 < evaluations <= most_evaluations(target)


def test_the_search_for_symmetries_has_an_end():
    with pytest.raises(OutOfBudget):
        symmetries_counted(TARGET, 0, None, deadline=0.0)


def test_modes_that_a_search_left_out_are_found_by_the_weights():
    """Of 25 modes on a grid the search has 20: climbs from large p/q reach the other five."""
    means = 4.0 * (np.stack(np.divmod(np.arange(25), 5), axis=1) - 2.0)
    target = inv.targets.mixture(means, sd=0.3)
    problem = problem_of(target)
    spending = problem.spend(1.0, Cost())
    rows, tops = np.asarray(target.sample(jr.key(1), 500)), means[:20]
    factors = np.tile(0.3 * np.eye(2), (20, 1, 1))
    masses = np.full(20, float(np.log(2 * np.pi * 0.09 / 25)))
    found = Found(rows, rows, tops, factors, masses, 0.0, True, True, Cost())
    space = Space.around(spending.density, np.zeros(2), 6 * np.eye(2), problem.settings, rows)
    more = complete_modes(problem, spending, space, found, jr.key(2))
    assert more.modes == 25 and len(more.points) > len(rows)
    apart = np.linalg.norm(more.tops[20:, None] - means[None, 20:], axis=2)
    assert apart.min(axis=0).max() < 0.02
    assert complete_modes(problem, spending, space, more, jr.key(3)).modes == 25
    poor = replace(found, factors=factors / 100)  # p/q is large everywhere
    assert complete_modes(problem, spending, space, poor, jr.key(4)) is poor


def test_what_is_known_to_be_missed_stays_on_record(monkeypatch):
    """A last search that reaches nothing does not say that the structure covers everything."""
    problem, fitted = problem_of(), fitted_of(proposal(2.0, 0.1, 4))
    none = Climbed.none(2, ROWS.dtype)
    seen = MissedModes(ROWS[:3] + 50.0, none, 7)
    narrow = proposal(0.1, 0.5, 0)
    monkeypatch.setattr(structure, "second_search", lambda *a, **k: MissedModes(ROWS[:0], none, 0))
    monkeypatch.setattr(structure, "_best_structure", lambda *a: narrow)
    spending = problem.spend(1.0, Cost())
    kept, best = structure._fit_again(
        problem, spending, fitted, narrow, seen, [jr.key(i) for i in range(8)], jr.key(9)
    )
    assert best.kernel is narrow.kernel
    assert kept.looked.new == 3

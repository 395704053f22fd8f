"""Replicas as a stage of learning: kept where the composed kernel does not converge."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import involutive as inv
from involutive.core.keys import as_key
from involutive.kernel.replicas import Tempered
from involutive.learning.budget import Budget
from involutive.learning.find.search import find_modes
from involutive.learning.fit.fit import fit_proposal
from involutive.learning.judge.measure import measure
from involutive.learning.judge.merit import best_measured
from involutive.learning.problem import initial_distribution, pose_problem
from involutive.learning.refine.replicas import (
    replicas_before_rounds,
    sufficient,
    try_replicas,
)
from involutive.learning.stages import Cost


@pytest.fixture(scope="module")
def measured():
    target = inv.targets.mog2_1d()
    settings = inv.LearnSettings(pilot_draws=400, pilot_least=400)
    law = initial_distribution(None, target, 3.0)
    problem = pose_problem(target, law, settings, Budget(), as_key(0), False, None)
    fitted = fit_proposal(problem, find_modes(problem, None))
    return problem, fitted, measure(problem, fitted, problem.keys.judge)


def test_rounds_that_lose_effective_draws_do_not_replace_what_was_measured(measured):
    problem, fitted, learned = measured

    def best_of(before, last):
        return best_measured(problem, replace(fitted, measured=before), last)

    worse = learned.recorded(replace(learned.outcome, ess_per_draw=0.01, evaluations=10**9))
    kept = best_of(learned, worse).outcome
    assert kept.ess_per_draw == learned.outcome.ess_per_draw and kept.evaluations == 10**9
    doubtful = learned.recorded(replace(learned.outcome, converged=False))
    assert best_of(doubtful, worse) is worse and best_of(None, worse) is worse
    apart = learned.recorded(replace(doubtful.outcome, r_hat=3.0))
    assert best_of(doubtful, apart).outcome.r_hat == doubtful.outcome.r_hat


def test_replicas_come_before_rounds_only_where_the_proposal_is_poor(measured):
    problem, fitted, _ = measured
    assert replicas_before_rounds(problem, fitted) is fitted
    assert sufficient(problem, fitted) is None


def test_a_kernel_that_suffices_carries_the_cost_of_what_came_after_it(measured):
    problem, fitted, learned = measured
    later = replace(fitted, measured=learned, cost=Cost(10**9, 77.0))
    outcome = sufficient(problem, later).outcome
    assert (outcome.evaluations, outcome.seconds) == (10**9, 77.0)


@pytest.mark.deep
def test_a_ladder_before_the_rounds_gives_them_its_draws(measured):
    problem, fitted, learned = measured
    poor = replace(fitted, proposal=replace(fitted.proposal, ess=0.01), draws=fitted.draws[:10])
    after = replicas_before_rounds(problem, poor)
    assert after.ladder_ess == 0.01 and len(after.draws) > 1000
    assert after.cost.evaluations > fitted.cost.evaluations
    best = sufficient(problem, after)
    assert best is not None and isinstance(best.kernel, Tempered)
    assert replicas_before_rounds(problem, after) is after
    stuck = learned.recorded(replace(learned.outcome, converged=False))
    assert try_replicas(problem, after, stuck) is stuck  # no better proposal since


@pytest.mark.deep
def test_a_kernel_that_mixes_is_kept(measured):
    problem, fitted, learned = measured
    assert try_replicas(problem, fitted, learned) is learned


@pytest.mark.deep
def test_replicas_take_the_place_of_a_kernel_that_does_not_converge(measured, tmp_path):
    problem, fitted, learned = measured
    stuck = learned.recorded(replace(learned.outcome, converged=False))
    best = try_replicas(problem, fitted, stuck)
    assert isinstance(best.kernel, Tempered)
    assert best.outcome.converged
    assert [row["stage"].split(" of ")[0] for row in best.outcome.history[-2:]] == ["pilot"] * 2
    draws = inv.sample(best, key=1, num_chains=32, num_samples=200, progress=False)
    labels = jax.vmap(problem.target.modes.label)(jnp.asarray(draws.positions.reshape(-1, 1)))
    exact = float(np.asarray(problem.target.modes.weights)[0])
    assert abs(float(jnp.mean(labels == 0)) - exact) < 0.05
    inv.save(tmp_path / "ladder.inv", best)
    assert isinstance(inv.load(tmp_path / "ladder.inv", problem.target).kernel, Tempered)
    assert best.proposal.auxiliary.shape == (1,)

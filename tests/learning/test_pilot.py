"""Pilot chains: chains that agree are not said to disagree, and groups that differ are."""

import numpy as np
import pytest

import involutive as inv
from involutive.diagnostics.findings import LARGEST_RHAT
from involutive.learning.judge.pilot import pilot_metrics
from involutive.sampling.starts import started_elsewhere
from involutive.sampling.trace import Trace

ELSEWHERE = started_elsewhere(np.arange(64))
LEAST = inv.JudgeSettings().least_ess


def pilot(seed, apart=0.0, draws=200, memory=0.9):
    """The metrics of AR(1) chains; those that started elsewhere are `apart` sds from the others."""
    noise = np.random.default_rng(seed).normal(size=(draws, 64, 3))
    rows = [noise[0]]
    for step in noise[1:]:
        rows.append(memory * rows[-1] + np.sqrt(1 - memory**2) * step)
    position = np.stack(rows, axis=1)
    position[ELSEWHERE] += apart
    rates = np.ones(position.shape[:2])
    trace = Trace(*[rates] * len(Trace._fields))._replace(position=position, acceptance_rate=rates)
    return pilot_metrics(trace, 0, ELSEWHERE, inv.JudgeSettings())


def test_groups_that_agree_pass_and_few_draws_get_an_allowance():
    found = [pilot(seed) for seed in range(40)]
    assert all(each.groups <= each.allowed_groups for each in found)
    most = max(each.groups for each in found if each.effective >= LEAST)
    assert most > LARGEST_RHAT["nested_r_hat"], "without an allowance chains that agree would fail"
    assert max(each.allowed_groups for each in found if each.enough) <= 1.05


@pytest.mark.parametrize("seed", range(3))
def test_groups_that_differ_do_not_pass(seed):
    """By less than the allowance for few effective draws: 1.02 is what counts for many."""
    found = pilot(seed, apart=0.35, draws=1000, memory=0.5)
    assert found.enough and LARGEST_RHAT["nested_r_hat"] < found.allowed_groups < 1.025
    assert found.allowed_groups < found.groups < 1.05 and not found.agree


def test_so_many_effective_draws_are_allowed_what_the_verdict_allows():
    many = pilot(0, draws=1000, memory=0.0)
    assert np.isclose(many.allowed_groups, LARGEST_RHAT["nested_r_hat"], atol=1e-3)

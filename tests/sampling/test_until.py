"""Sampling until a goal holds: when it stops, what it says, and that stopping does not bias."""

from itertools import pairwise

import numpy as np
import pytest

import involutive as inv
from involutive.core.statistics import ess, rhat
from involutive.sampling.stopping import FIRST_LOOK, WIDEN, Watch


@pytest.fixture(scope="module")
def walk():
    return inv.random_walk(inv.targets.gaussian(1), 2.4)


def test_stops_when_the_goal_holds_and_not_before(walk):
    draws = inv.sample(walk, key=0, num_chains=8, until=inv.Until(ess=600, rhat=1.02))
    record = draws.provenance["until"]
    assert record["reason"] == "goal"
    assert draws.num_samples < 20_000
    for values in (draws.positions[..., 0], draws.positions[..., 0] ** 2):
        assert ess(values) >= 600 and rhat(values) <= 1.02
    for earlier in record["looks"][:-1]:
        assert earlier["ess"] < 600 or earlier["rhat"] > 1.02


def test_looks_widen(walk):
    draws = inv.sample(walk, key=0, num_chains=8, until=inv.Until(ess=1500))
    counts = [look["draws"] for look in draws.provenance["until"]["looks"]]
    assert counts[0] == FIRST_LOOK and len(counts) > 3
    assert all(b == np.ceil(WIDEN * a) for a, b in pairwise(counts))


def test_begins_with_the_draws_of_a_plain_run(walk):
    until = inv.sample(walk, key=5, num_chains=4, until=inv.Until(ess=100))
    plain = inv.sample(walk, key=5, num_chains=4, num_samples=until.num_samples)
    np.testing.assert_array_equal(until.positions, plain.positions)


def test_a_budget_ends_it(walk):
    draws = inv.sample(walk, key=0, num_chains=2, until=inv.Until(ess=1e9, max_samples=130))
    assert draws.num_samples == 130
    assert draws.provenance["until"]["reason"] == "max_samples"
    assert [look["draws"] for look in draws.provenance["until"]["looks"]] == [100, 130]
    assert any(f.kind == "ended early" for f in draws.summary().findings)
    draws = inv.sample(walk, key=0, num_chains=2, until=inv.Until(seconds=1e-9))
    assert draws.provenance["until"]["reason"] == "seconds"
    assert draws.num_samples <= FIRST_LOOK


def test_a_mode_not_visited_keeps_it_going():
    kernel = inv.random_walk(inv.targets.mog2(), 0.5)
    start = np.tile([5.0, 0.0], (8, 1))
    until = inv.Until(ess=50, max_samples=600)
    draws = inv.sample(kernel, key=0, num_chains=8, initial=start, until=until)
    assert draws.provenance["until"]["reason"] == "max_samples"
    last = draws.provenance["until"]["looks"][-1]
    assert last["ess"] == 0 and last["least"].startswith("mode")
    # without the modes the same chains look settled: the rule cannot know what it cannot see
    blind = inv.Target(kernel.target.log_density, 2)
    draws = inv.sample(inv.random_walk(blind, 0.5), key=0, num_chains=8, initial=start, until=until)
    assert draws.provenance["until"]["reason"] == "goal"


def test_the_progress_bar_names_the_worst(walk):
    watch = Watch(inv.Until(ess=1e6, rhat=1.001), walk.target)
    assert watch.metrics() == {}
    positions = np.random.default_rng(0).normal(size=(4, 100, 1))
    assert not watch.ends(positions, 0.0)
    shown = watch.metrics()
    assert "/1,000,000 (" in shown["ess"] and "/1.001 (" in shown["R-hat"]
    assert shown["met"] == "0/2 quantities"


@pytest.mark.usefixtures("as_users_run")
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "must be given a goal, got none"),
        ({"ess": -1}, "ess of Until must be a positive number, got -1"),
        ({"ess": float("nan")}, "ess of Until must be a positive number"),
        ({"ess": "all"}, "ess of Until must be a positive number, got 'all'"),
        ({"rhat": "1.01"}, "rhat of Until must be a positive number, got '1.01'"),
        ({"rhat": 1.0}, "rhat of Until must be above 1"),
        ({"seconds": 0}, "seconds of Until must be a positive number"),
        ({"ess": 10, "max_samples": 2}, "max_samples of Until must be at least 4, got 2"),
    ],
)
def test_bad_goals_are_refused(fields, words):
    with pytest.raises(inv.InputError, match=words):
        inv.Until(**fields)


def _stopped_means(kernel, repeats, goal):
    """The mean of |x|² and its standard error by every run that stopped at the goal."""
    rows = []
    for seed in range(repeats):
        draws = inv.sample(kernel, key=seed, num_chains=4, num_warmup=20, until=goal)
        squares = draws.positions[..., 0] ** 2
        rows.append((squares.mean(), squares.std() / np.sqrt(ess(squares)), draws.num_samples))
    return np.array(rows).T


def _check_unbiased(means, errors, lengths, least):
    """E|x|² = 1: the mean over runs within 4 errors, and 95% intervals that cover it."""
    assert np.ptp(lengths) > 0, "runs that all stop at one look test no stopping rule"
    z = (means.mean() - 1) / (means.std(ddof=1) / np.sqrt(means.size))
    assert abs(z) < 4, f"biased by {z:.1f} standard errors"
    assert abs(means.mean() - 1) < 0.2 * means.std(ddof=1), "bias is noticeable beside the noise"
    assert (np.abs(means - 1) < 1.96 * errors).mean() > least


@pytest.mark.deep
def test_stopping_does_not_bias(walk):
    _check_unbiased(*_stopped_means(walk, 80, inv.Until(ess=120)), least=0.85)


@pytest.mark.deep
def test_stopping_does_not_bias_deep(walk):
    means, errors, lengths = _stopped_means(walk, 600, inv.Until(ess=120))
    coverage = (np.abs(means - 1) < 1.96 * errors).mean()
    shift = (means.mean() - 1) / means.std(ddof=1)
    print(
        f"stopping rule: bias {shift:.3f} sd of one run, coverage of 95% intervals {coverage:.3f}"
    )
    assert abs(shift) < 0.1
    _check_unbiased(means, errors, lengths, least=0.91)

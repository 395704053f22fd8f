"""A verdict says what stands behind it, and chains that start elsewhere can overturn it."""

from dataclasses import replace

import equinox as eqx
import numpy as np
import pytest

import involutive as inv
from involutive.core.statistics import rhat_between


@pytest.fixture(scope="module")
def learned():
    settings = inv.LearnSettings(
        components=(2,), climbers=64, search_draws=512, particles=256, fit_draws=4096
    )
    return inv.learn(inv.targets.mog2_1d(), key=5, settings=settings, progress=False)


def sampled(kernel):
    return inv.sample(kernel, key=1, num_chains=64, num_samples=250, progress=False)


def test_a_learned_kernel_earns_the_word(learned):
    draws = sampled(learned)
    verdict = draws.summary().verdict
    assert verdict.startswith("Trustworthy: at least")
    assert "16 chains that started away from the proposal agree" in verdict
    assert "final search" in verdict and "0.05 to 4 times the width of the initial" in verdict


def test_chains_alone_earn_less(learned):
    local = inv.hmc(inv.targets.gaussian(2), 0.8, 3)
    verdict = sampled(local).summary().verdict
    assert verdict.startswith("No sign of trouble in the chains")
    assert "No search was made for modes" in verdict


def test_a_frugal_kernel_says_how_little_was_looked(learned):
    looked = replace(learned.outcome.looked, frugal=True, places=4000, climbs=60)
    verdict = sampled(learned.recorded(replace(learned.outcome, looked=looked))).summary().verdict
    assert verdict.startswith("No sign of trouble in the chains: at least")
    assert "4,000 evaluations and 60 ascents searched for modes" in verdict
    assert "one start in 20 leads to may be missed" in verdict


def test_a_proposal_that_misses_a_mode_is_found_out_by_chains_from_elsewhere(learned):
    """All chains from the proposal agree; those from X end in the mode that it misses."""
    target = learned.target
    narrow = inv.random_walk(target, 0.03)
    places = np.where(np.arange(64) % 2 == 0, -0.5, 0.5)[:, None]
    blind = eqx.tree_at(lambda k: k.kernel, learned, narrow)
    initial = inv.GaussianMixture(np.ones(1), np.array([[-0.5]]), np.full((1, 1, 1), 0.0025))
    blind = eqx.tree_at(lambda k: (k.initial, k.starts), blind, (initial, places))
    summary = sampled(blind).summary()
    assert not summary.trustworthy
    assert "starts disagree" in {finding.kind for finding in summary.findings}
    trusting = inv.sample(
        blind, key=1, num_chains=64, num_samples=250, initial=initial, progress=False
    )
    assert "starts disagree" not in {f.kind for f in trusting.summary().findings}


def test_what_the_second_search_found_is_named(learned):
    looked = replace(learned.outcome.looked, new=7)
    outcome = replace(learned.outcome, looked=looked)
    kernel = inv.Learned(
        learned.target, learned.initial, learned.kernel, learned.warmup, outcome, learned.starts
    )
    findings = sampled(kernel).summary().findings
    assert any("7 places that the proposal does not cover" in f.problem for f in findings)


@pytest.mark.parametrize(
    ("effective", "most", "begins"),
    [
        (500.0, 50.0, "Not trustworthy yet: search found more"),  # weights that mean something
        (5.0, 50.0, "No sign of trouble in the chains"),  # weights that mean nothing
        (5.0, 10.0, "Not trustworthy yet: search found more"),  # more than chains can have seen
        (float("inf"), 50.0, "Not trustworthy yet: search found more"),  # replicas
        (5.0, float("nan"), "Not trustworthy yet: search found more"),  # chains were not asked
    ],
)
def test_log_z_is_compared_where_the_weights_mean_something(learned, effective, most, begins):
    known = replace(learned.outcome.looked, log_z_search=30.0, log_z_weights=0.0)
    looked = replace(known, effective=effective, log_z_chains=most)
    kernel = learned.recorded(replace(learned.outcome, looked=looked))
    verdict = sampled(kernel).summary().verdict
    assert verdict.startswith(begins)
    assert ("too uneven to tell" in verdict) == begins.startswith("No sign")


def test_rhat_between_groups():
    rng = np.random.default_rng(0)
    values, elsewhere = rng.normal(size=(16, 200, 2)), np.arange(16) % 4 == 3
    assert rhat_between(values, elsewhere) < 1.02
    values[elsewhere, :, 1] += 1.0
    assert rhat_between(values, elsewhere) > 1.1
    assert np.isnan(rhat_between(values, np.zeros(16, bool)))

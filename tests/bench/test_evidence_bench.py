"""The benchmark of the evidence: what its rows count, its truths, and its planted faults."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.stats
from scipy.special import logsumexp

from involutive.bench import evidence as bench
from involutive.diagnostics.measured import Estimate, Evidence

TRUE = bench.CASES["nine"]().log_z


def found(off: float, error: float, withheld: bool = False) -> Evidence:
    log_z, side = TRUE + off, Estimate(TRUE + off, error)
    reasons = ("mass lies outside",) if withheld else ()
    return Evidence(float("nan") if withheld else log_z, error, 0.1, 0.9, side, side, reasons)


def made(monkeypatch, answers) -> None:
    """Let learning and evidence return what is given, in turn."""
    given = iter(answers)
    monkeypatch.setattr(bench, "learn", lambda target, **options: None)
    monkeypatch.setattr(bench, "evidence", lambda kernel, **options: next(given))


def test_a_row_counts_errors_intervals_and_what_was_withheld(monkeypatch):
    made(monkeypatch, [found(0.001, 0.001)] * 18 + [found(-0.011, 0.001), found(0.0, 1.0, True)])
    row = bench.run("nine", 2, 20, 100)
    assert row["mean absolute error"] == pytest.approx((18 * 0.001 + 0.011) / 19)
    assert (row["covered"], row["withheld"], row["not trusted"]) == ("18 of 20", 1, 1)
    assert row["holds"] and row["allowed"] == 0.003


NOT_HELD = {
    "errors too large": [found(0.004, 0.003)] * 19 + [found(0.004, 0.001)],
    "intervals too narrow": [found(0.001, 0.001)] * 17 + [found(0.001, 0.0001)] * 3,
    "intervals too wide": [found(0.001, 1.0)] * 20,
    "all withheld": [found(0.0, 1.0, True)] * 20,
}


@pytest.mark.parametrize("answers", NOT_HELD.values(), ids=NOT_HELD)
def test_a_bar_that_is_missed_is_said(monkeypatch, answers):
    made(monkeypatch, answers)
    assert not bench.run("nine", 1, 20, 100)["holds"]


def mixture(means, sd):
    """The log of an equal mixture of round normals, normalised."""
    return lambda x: (
        logsumexp(scipy.stats.norm(means, sd).logpdf(x[:, None]).sum(axis=2), axis=1)
        - np.log(len(means))
    )


def funnel(x):
    normal = scipy.stats.norm
    return normal(0, 3).logpdf(x[:, 0]) + normal(0, np.exp(x[:, :1] / 2)).logpdf(x[:, 1:]).sum(1)


HALF = np.full(10, 5 / np.sqrt(10))
NORMALISED = {
    "nine": mixture(bench.NINE, bench.NINE_SD),
    "forty": mixture(bench.FORTY, 1.0),
    "two": lambda x: np.logaddexp(
        np.log(1 / 3) + mixture(-HALF[None], 1.0)(x), np.log(2 / 3) + mixture(HALF[None], 1.0)(x)
    ),
    "funnel": funnel,
}  # the wells: test_field.py


@pytest.mark.parametrize("name", NORMALISED)
def test_log_z_of_a_case_is_that_of_its_density(name):
    case = bench.CASES[name]()
    assert case.target.sample is not None
    draws = np.asarray(case.target.sample(jr.key(0), 50), float)
    log_p = jax.vmap(case.target.log_density)(jnp.asarray(draws))
    np.testing.assert_allclose(log_p - case.log_z, NORMALISED[name](draws), rtol=1e-6, atol=1e-6)


@pytest.mark.deep
def test_planted_faults_are_refused():
    """Once each; `python -m involutive.bench.evidence --refuse` has a hundred seeds."""
    rows = bench.refusals(1, 5000)
    assert len(rows) >= 6 and all(row["holds"] for row in rows), rows

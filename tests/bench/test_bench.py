"""The benchmark: two peers on one target end to end, the judge's verdicts, the tables."""

import json
import sys

import jax.random as jr
import numpy as np
import pytest

import involutive as inv
from involutive import bench
from involutive.bench import compare, peers, record, report
from involutive.bench.judge import judge
from involutive.bench.processes import with_processes
from involutive.bench.suites import make, reference
from involutive.bench.targets import DEFAULT
from involutive.core.text import as_json

FIGURES = {
    "setup_seconds": 1.0,
    "sampling_seconds": 2.0,
    "setup_evaluations": 10.0,
    "sampling_evaluations": 4000.0,
    "exchangeable": False,
}


def exact(name: str, count: int = 1000) -> np.ndarray:
    target = make(name)
    assert target.sample is not None
    return np.asarray(target.sample(jr.key(5), 4 * count)).reshape(4, count, -1)


@pytest.mark.parametrize("name", ["mog2_1d", "mog6", "ring5", "eight_modes", "funnel"])
def test_exact_draws_are_correct_and_fully_effective(name):
    found = judge(make(name), reference(name), exact(name), FIGURES)
    assert found.wrong == ""
    assert found.ess_per_draw > 0.8
    assert found.ess_per_second == pytest.approx(found.ess / 2.0)
    assert found.seconds_to["1000"] == pytest.approx(1.0 + 1000 / found.ess_per_second)
    assert found.extrapolated == {"1000": False, "10000": True, "100000": True}
    assert found.evaluations_per_ess == pytest.approx(4000.0 / found.ess)


SPOILT = {
    "a mode missed": (lambda x: np.where(x[..., :1] > 4, -x, x), "mode weights"),
    "too narrow": (lambda x: 0.9 * x, "quantile"),
    "not finite": (lambda x: np.where(x > 6, np.nan, x), "not finite"),
}


@pytest.mark.parametrize(("spoil", "words"), SPOILT.values(), ids=SPOILT)
def test_wrong_draws_are_wrong_and_have_no_ess(spoil, words):
    found = judge(make("mog6"), reference("mog6"), spoil(exact("mog6")), FIGURES)
    assert words in found.wrong
    assert not found.correct
    assert found.ess == 0.0
    assert found.seconds_to["1000"] == np.inf


def test_few_draws_are_allowed_the_error_of_few_draws():
    found = judge(make("eight_modes"), reference("eight_modes"), exact("eight_modes", 150), FIGURES)
    assert found.mode_error is not None and found.mode_error > 0.06
    assert found.wrong == ""
    assert "too few to tell" in found.unclear and not found.correct and found.ess == 0.0
    row = as_json(found.as_dict() | {"target": "eight_modes", "peer": "smc"})
    assert compare.line(row).endswith(f"unclear: {found.unclear}")


def test_every_peer_and_target_has_its_place():
    assert set(DEFAULT) >= {"mog2_1d", "mog6", "ring5", "two_modes", "eight_modes", "funnel"}
    assert not peers.installed("pocomc") or peers.load("pocomc")
    with pytest.raises(inv.InputError, match=r"a peer must be one of involutive.*got 'stan'"):
        bench.run(peers=["stan"])
    with pytest.raises(inv.InputError, match=r"target must be one of mog2_1d.*got 'moon'"):
        bench.run(targets=["moon"])


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> bench.Bench:
    out = tmp_path_factory.mktemp("bench")
    return bench.run(quick=True, out=out, targets=["mog2_1d"], peers=["emcee", "hmc"])


@pytest.mark.deep  # peers have a limit of time
def test_two_peers_on_one_target(small):
    emcee, hmc = small.rows
    assert not emcee.get("failed") and not hmc.get("failed")
    # neither has time to be right here: few draws of one, chains of the other that never cross
    for row in (emcee, hmc):
        assert row["correct"] == (not row["wrong"] and not row["unclear"])
    assert emcee["setup_seconds"] > 0 and hmc["sampling_seconds"] > 0
    saved = json.loads((small.folder / "bench.json").read_text())
    assert [row["peer"] for row in saved["rows"]] == ["emcee", "hmc"]
    assert saved["header"]["quick"] is True
    assert (small.folder / "bench.png").stat().st_size > 5000
    assert f"| emcee | {report.verdict(emcee)} |" in (small.folder / "bench.md").read_text()
    assert "QUICK" in small.markdown


@pytest.mark.deep  # processes that compile
def test_a_second_process_steps_beside_the_first():
    one, two = with_processes((1, 2), chains=32, seconds=0.2)
    assert one["efficiency"] == 1.0
    assert two["chain-steps a second"] > 0 and two["processes"] == 2


def test_the_table_says_when_learning_was_nearly_done():
    found = judge(make("mog6"), reference("mog6"), exact("mog6"), FIGURES).as_dict()
    row = as_json(found | {"target": "mog6", "peer": "involutive", "learned_seconds": 4.25})
    header = record.header_of("default", True, [0], 1.0, ["mog6"], ["involutive"], None)
    assert "after 4.2 s of learning" in report.markdown(header, [row])


def test_a_peer_that_fails_costs_its_own_row(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    row = compare.one("emcee", "mog2_1d", 0, 1.0, True)
    assert row["failed"] == "ended with 1: no message"
    assert report.verdict(row) == row["failed"]


def test_a_peer_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(compare, "GRACE", 0.0)
    row = compare.one("emcee", "mog2_1d", 0, 0.1, False)
    assert row["failed"] == "no result within 0 s"


def test_the_picture_blames_no_sampler_that_was_not_there():
    there, absent = {"failed": "no result within 12 s"}, {"failed": "pocomc is not installed"}
    rows = [
        {"target": "mog6", "peer": "smc"} | there,
        {"target": "mog6", "peer": "pocomc"} | absent,
    ]
    header = record.header_of("default", True, [0], 1.0, ["mog6"], ["smc", "pocomc"], None)
    (words,) = report.draw(header, rows).axes[0].texts
    assert "smc" in words.get_text() and "pocomc" not in words.get_text()

"""The benchmark of frugal learning counts every call, and shows the worst of its seeds."""

from types import SimpleNamespace

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from involutive import targets
from involutive.bench import frugal
from involutive.bench.frugal import CASES, Case, _worst, as_numpy, rows_of
from involutive.bench.peers.base import PeerRun


def test_every_call_is_counted():
    target = targets.mog6()
    seen = as_numpy(target)
    assert seen.black_box is not None
    before = seen.black_box.calls
    points = np.random.default_rng(0).normal(size=(5, 2))
    values = seen.black_box.rows(points)
    assert seen.black_box.calls == before + 5
    exact = [float(target.log_density(jnp.asarray(row))) for row in points]
    np.testing.assert_allclose(values, exact, rtol=1e-5)


def test_a_row_is_of_the_worst_seed():
    good = {"learning": 1, "evaluations": 5, "effective": 9.0, "right": True, "wrong": "",
            "verdict": "fine"}  # fmt: skip
    bad = good | {"evaluations": 7, "effective": 0.0, "right": False, "wrong": "off"}
    row = _worst("name", bad, [good, bad], 6)
    assert (row["evaluations"], row["effective"], row["right"]) == (7, 0, "1 of 2")
    assert row["verdict"] == "off" and row["allowed"] == 6


def test_evaluations_of_a_peer_are_those_up_to_the_goal(monkeypatch):
    """Half of the effective draws wanted: the set-up once, and twice the draws."""
    case = CASES["mog6"]
    sample = case.make().sample
    assert sample is not None
    draws = np.asarray(sample(jr.key(0), 5000)).reshape(1, 5000, 2)
    peer = SimpleNamespace(run=lambda task: PeerRun(draws, 1.0, 1.0, 100.0, 5000.0))
    monkeypatch.setattr(frugal, "load", lambda name: peer)
    monkeypatch.setattr(frugal, "EXACT", 20_000)
    row = frugal.of_peer("nautilus", "mog6", case, 0, 10_000)
    assert row["right"] and row["effective"] == pytest.approx(5000, rel=0.2)
    assert row["evaluations"] == pytest.approx(100 + 5000 * 10_000 / row["effective"], rel=0.01)
    spoilt = np.where(draws[..., :1] > 4, -draws, draws)
    peer.run = lambda task: PeerRun(spoilt, 1.0, 1.0, 100.0, 5000.0)
    row = frugal.of_peer("nautilus", "mog6", case, 0, 10_000)
    assert not row["right"] and row["evaluations"] == 5100


@pytest.mark.deep
def test_few_evaluations_are_enough():
    """One seed of two targets, to a fifth of the goal."""
    for name in ("mog6", "two modes, 10-D"):
        case = CASES[name]
        row = rows_of(name, Case(case.make, case.most), range(1), 2000, False)
        assert row["right"] == "1 of 1"
        assert row["effective"] >= 2000
        assert case.most is not None and row["evaluations"] < 0.8 * case.most

"""Modes of draws whose number and weights are known; comparisons by evidence."""

from dataclasses import replace

import numpy as np
import pytest

import involutive as inv
from involutive.bench import modes
from involutive.diagnostics.compare import compare
from involutive.diagnostics.measured import Estimate, Evidence
from involutive.interop import arviz as bridge
from involutive.report.sections import modes_section


def exact(target, seed=0, chains=16, count=400):
    """Exact draws of a target as a run."""
    return modes.exact_draws(target, seed, chains, count)


@pytest.mark.parametrize("name", ["six", "rings", "banana", "tails", "funnels"])
def test_the_number_of_modes_and_their_weights(name):
    case = modes.CASES[name]()
    draws = exact(case.target)
    found = draws.modes()
    assert len(found) == case.modes
    assert abs(found.weights.sum() - 1) < 1e-12 and (np.diff(found.weights) <= 0).all()
    assert (modes.in_errors(draws) <= 2).mean() > 0.6


def test_a_wrong_weight_is_so_many_errors_off():
    """Draws that hold too little of a mode: its weight is off by what is missing."""
    target = inv.targets.mog2()
    draws = exact(target)
    half = draws.positions[..., 0] > 0
    kept = np.flatnonzero(~half.ravel() | (np.arange(half.size) % 2 == 0))[:4000]
    few = replace(
        draws, positions=draws.positions.reshape(1, -1, 2)[:, kept],
        log_density=draws.log_density.reshape(1, -1)[:, kept],
    )  # fmt: skip
    off = modes.in_errors(few)
    share = np.mean(few.positions[..., 0] < 0)
    assert off == pytest.approx(abs(share - 0.5) / few.modes().errors)
    assert (off > 5).all()


def test_a_row_of_the_benchmark_says_whether_it_holds():
    good, bad = np.array([0.5, 1.9]), np.array([0.5, 2.1])
    row = modes.row_of("two", 2, [2] * 19 + [3], [good] * 19)
    assert row["holds"] and row["right number"] == "19 of 20"
    assert row["weights within two errors"] == "38 of 38"
    assert not modes.row_of("two", 2, [2] * 18 + [3, 1], [good] * 18)["holds"]
    wrong = modes.row_of("two", 2, [2] * 20, [good] * 12 + [bad] * 8)
    assert not wrong["holds"] and wrong["largest, in errors"] == 2.1
    assert not modes.row_of("two", 2, [1] * 20, [])["holds"]


@pytest.mark.deep
@pytest.mark.parametrize("name", modes.CASES)
def test_modes_over_seeds(name):
    """The right number in at least 19 of 20 seeds, and weights within two errors as often."""
    row = modes.run(name, 20, 1, True)
    assert row["holds"], row


@pytest.mark.deep
@pytest.mark.parametrize("name", ["six", "rings"])
def test_modes_of_chains_over_seeds(name):
    """The same of chains with a learned kernel."""
    row = modes.run(name, 20, 1, False)
    assert row["holds"], row


def test_a_shallow_dip_joins_and_a_deep_one_does_not():
    for distance, count in ((2.2, 1), (4.5, 2)):
        target = inv.targets.mixture([[0.0, 0.0], [distance, 0.0]])
        assert len(exact(target).modes()) == count


def test_what_is_in_a_mode():
    target = inv.targets.mixture([[-5.0, 1.0], [5.0, 2.0]], [0.25, 0.75], sd=0.5)
    draws = exact(target)
    evidence = Evidence(1.0, 0.01, 0.1, 0.9, Estimate(1.0, 0.01), Estimate(1.0, 0.01))
    heavy, light = draws.modes(evidence)
    assert abs(heavy.weight - 0.75) < 4 * heavy.error and heavy.chains == light.chains == 16
    assert abs(light.mean["x[0]"] + 5) < 0.1 and abs(heavy.sd["x[1]"] - 0.5) < 0.05
    assert abs(heavy.log_z.log_z - 1 - np.log(heavy.weight)) < 1e-12
    assert abs(draws.modes().changes - 2 * 0.25 * 0.75) < 0.03
    assert "2 modes: 0.7" in str(draws.modes()) and "<table>" in draws.modes()._repr_html_()


def test_the_report_has_a_table_of_modes_with_their_evidence():
    draws = exact(inv.targets.mog2(), chains=4, count=100)
    body = modes_section(draws.modes(known(1.0, 0.01))).body
    assert body.count("<tr>") == 3 and '<th scope="col">log Z</th>' in body and "0.3" in body
    assert "<table" not in modes_section(exact(inv.targets.gaussian(2), count=20).modes()).body


def test_chains_that_never_change_their_mode():
    draws = inv.sample(inv.random_walk(inv.targets.mog2(), 0.5), key=0, num_chains=8,
                       num_samples=200, initial=np.tile([[5.0, 0], [-5.0, 0]], (4, 1)))  # fmt: skip
    found = draws.modes()
    assert len(found) == 2 and found.changes == 0 and found[0].chains == 4
    assert found[0].error > 0.1, "four chains in a mode are four draws of its weight"
    assert "no chain ever changed its mode" in found.line


def test_the_summary_says_it_and_files_keep_it(tmp_path):
    draws = exact(inv.Target(inv.targets.mog2().log_density, 2, sample=inv.targets.mog2().sample))
    assert "2 modes: 0." in str(draws.summary())
    again = bridge.read_draws(bridge.to_netcdf(draws, tmp_path / "draws.nc"))
    np.testing.assert_array_equal(again.modes().labels, draws.modes().labels)
    assert "one mode" in str(exact(inv.targets.gaussian(2)).summary())


def test_a_file_without_modes_says_so(tmp_path):
    draws = exact(inv.targets.gaussian(2), chains=2, count=20)
    again = bridge.read_draws(bridge.to_netcdf(draws, tmp_path / "draws.nc"))
    with pytest.raises(inv.InputError, match="draws read from a file do not hold it"):
        again.modes()


def known(log_z, error, **more):
    side = Estimate(log_z, error)
    return Evidence(log_z, error, 0.1, 0.9, side, side, **more)


def test_compare_by_hand():
    found = compare({"a": known(-10.0, 0.01), "b": known(-10.0 + np.log(3), 0.02)})
    assert found.names == ("b", "a")
    np.testing.assert_allclose(found.probability, (0.75, 0.25))
    np.testing.assert_allclose(found.probability_error, 0.75 * 0.25 * np.hypot(0.01, 0.02))
    np.testing.assert_allclose(found.log_bayes_factor[1], (-np.log(3), np.hypot(0.01, 0.02)))
    assert "no prior was declared for a, b" in str(found)
    assert len(found.plot().axes) == 2 and "<table>" in found._repr_html_()
    found = compare({"a": known(0.0, 0.1, marginal=True), "b": known(0.0, 0.1, marginal=True)},
                    prior={"a": 1.0, "b": 3.0})  # fmt: skip
    np.testing.assert_allclose(found.probability, (0.75, 0.25))
    assert not found.notes


def test_compare_refuses_what_is_not_known():
    with pytest.raises(inv.InputError, match="at least two models"):
        compare({"a": known(0.0, 0.1)})
    with pytest.raises(inv.InputError, match="withheld: mass outside"):
        compare({"a": known(0.0, 0.1), "b": known(float("nan"), 0.1, reasons=("mass outside",))})
    with pytest.raises(inv.InputError, match="prior must name the models"):
        compare({"a": known(0.0, 0.1), "b": known(1.0, 0.1)}, prior={"a": 1.0})


def test_draws_by_name():
    draws = exact(inv.targets.mog2(), chains=2, count=10)
    assert draws["x"].shape == (2, 10, 2)
    assert draws.get_samples()["x"].shape == (20, 2)
    assert draws.get_samples(group_by_chain=True)["x"].shape == (2, 10, 2)
    table = draws.to_dataframe()
    assert list(table.columns) == ["chain", "draw", "x[0]", "x[1]", "lp"] and len(table) == 20
    np.testing.assert_array_equal(table["x[1]"][table["chain"] == 1], draws.positions[1, :, 1])
    with pytest.raises(inv.InputError, match="one of x, got 'y'"):
        draws["y"]

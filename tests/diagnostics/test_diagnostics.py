"""What a summary says of runs whose faults are known, because they were planted."""

from dataclasses import replace

import arviz as az
import jax.numpy as jnp
import numpy as np
import pytest

import involutive as inv
from involutive.core.statistics import ess, nested_rhat
from involutive.diagnostics import metrics
from involutive.diagnostics.findings import lag_distances
from involutive.diagnostics.metrics import ess_per_draw, mode_weights, summarise

BASE = inv.Target(lambda x: -0.5 * jnp.sum(x**2), 2, name="plain")
MIX = inv.targets.mog2()


def made(positions, target=BASE, rate=0.8, **fields):
    """Draws at given positions, healthy in everything that `fields` does not replace."""
    positions = np.asarray(positions)
    shape, chains = positions.shape[:2], positions.shape[0]
    draws = inv.Draws(
        positions=positions,
        log_density=-0.5 * np.sum(positions**2, axis=2),
        accepted=np.ones(shape, bool),
        acceptance_rate=np.full(shape, rate),
        nonfinite=np.zeros(chains, int),
        irreversible=np.zeros(chains, int),
        stopped=np.zeros(chains, bool),
        target=target,
    )
    return replace(draws, **fields)


def independent(chains=8, draws=400, dim=2, seed=0):
    return np.random.default_rng(seed).normal(size=(chains, draws, dim))


def kinds(draws):
    return {finding.kind for finding in summarise(draws).findings}


def modes(sides):
    """Positions in the two modes of mog2, at the sides (chains, draws) of -1 and 1."""
    noise = 0.5 * independent(*sides.shape)
    return noise + np.stack([5.0 * sides, np.zeros(sides.shape)], axis=2)


def test_a_healthy_run_is_trusted():
    summary = made(independent()).summary()
    assert summary.findings == [] and summary.trustworthy
    assert summary.verdict.startswith("No sign of trouble in the chains: at least")
    assert list(summary.table.index) == ["x[0]", "x[1]", "|x|²"]
    columns = ["mean", "sd", "5%", "95%", "ess_bulk", "ess_tail", "r_hat", "mcse"]
    assert list(summary.table.columns) == columns
    row = summary.table.loc["x[0]"]
    assert abs(row["mean"]) < 4 * row["mcse"] and abs(row["sd"] - 1) < 0.1
    assert abs(row["5%"] + 1.645) < 0.15 and row["ess_bulk"] > 2000 and row["r_hat"] < 1.01


def test_chains_that_disagree():
    shifted = independent() + 3.0 * (np.arange(8) % 2)[:, None, None]
    summary = made(shifted).summary()
    assert not summary.trustworthy
    assert "The chains disagree: R-hat is" in str(summary)
    assert "inv.learn" in str(summary)


def test_stuck_chains_are_named():
    positions = independent()
    positions[3, 100:] = positions[3, 100]
    finding = next(f for f in summarise(made(positions)).findings if f.kind == "stuck chains")
    assert "1 of 8 chains (3) stood still" in finding.problem
    assert "longest rest was 299 of 400" in finding.problem
    positions[3, 140:] = independent()[4, 140:]  # a rest of a tenth is no finding
    assert "stuck chains" not in kinds(made(positions))


def test_low_ess():
    draws = made(independent(4, 60))
    finding = next(f for f in summarise(draws).findings if f.kind == "low ESS")
    assert "Too few effective draws" in finding.problem and "of 240 draws" in finding.problem
    assert "times as many draws" in finding.remedy
    nearly = summarise(made(independent(4, 90))).findings[0]
    assert "about 2 times as many draws" in nearly.remedy  # not "about 1 times"


def test_nothing_ever_moves():
    summary = made(np.ones((4, 100, 2))).summary()
    assert not summary.trustworthy and summary.ess_per_draw == 0
    assert "never changed" in str(summary)
    assert {"low ESS", "stuck chains"} <= {f.kind for f in summary.findings}


@pytest.mark.parametrize("period", [2, 3, 5])
def test_periodic_moves(period):
    orbit = independent(32, period)
    positions = np.tile(orbit, (1, 300 // period, 1)) + 1e-3 * independent(
        32, 300 // period * period
    )
    draws = made(positions, rate=0.99)
    finding = next(f for f in summarise(draws).findings if f.kind == "periodic moves")
    assert f"draws {period} steps apart are closer than neighbours" in finding.problem
    assert "Acceptance 0.99 comes with" in finding.problem and "per draw" in finding.problem


def test_a_few_draws_are_neither_periodic_nor_in_want_of_another_kernel():
    few = made(independent(4, 10) + 3 * np.arange(4)[:, None, None])
    assert "periodic moves" not in kinds(made(independent(1, 5)))
    found = {finding.kind: finding.remedy for finding in summarise(few).findings}
    assert found["chains disagree"] == "at least 400 draws in total; shorter runs seldom agree."
    assert "times as many draws" in found["low ESS"]


def test_an_orbit_through_the_origin_is_seen_in_the_square():
    start = independent(32, 1)
    positions = start * np.where(np.arange(300) % 2, -1.0, 1.0)[None, :, None]
    figures = ess_per_draw(made(positions))
    assert figures.quantity == "|x|²" and figures.least < 0.01
    assert figures.each["x[0]"] > 0.5, "the coordinate alone looks better than independent draws"


def test_small_accepted_moves():
    positions = 0.01 * independent(4, 1000).cumsum(axis=1)
    draws = made(positions, rate=0.98)
    assert "moves lead nowhere" in kinds(draws) and "periodic moves" not in kinds(draws)


def test_independent_draws_are_not_periodic():
    apart = lag_distances(independent(32, 300))
    np.testing.assert_allclose(apart, 1.0, atol=0.05)


@pytest.mark.parametrize(
    ("field", "kind", "words"),
    [
        ("nonfinite", "non-finite densities", "not a number at 5 proposals"),
        ("irreversible", "round-trip failures", "did not return to its start at 5 proposals"),
    ],
)
def test_rejected_and_counted(field, kind, words):
    few, many = np.zeros(8, int), np.full(8, 100)
    few[2] = 5
    finding = next(f for f in summarise(made(independent(), **{field: few})).findings)
    assert finding.kind == kind and words in finding.problem and not finding.serious
    assert summarise(made(independent(), **{field: few})).trustworthy
    assert not summarise(made(independent(), **{field: many})).trustworthy


def test_stopped_chains_are_named():
    stopped = np.zeros(8, bool)
    stopped[[1, 5]] = True
    summary = made(independent(), stopped=stopped).summary()
    assert "2 of 8 chains (1, 5) met a density of +inf" in str(summary)
    assert summary.verdict == "Not trustworthy yet: stopped chains."


def test_a_log_density_too_large_for_float32():
    large = np.full((8, 400), -3e6, np.float32)
    summary = made(independent().astype(np.float32), log_density=large).summary()
    assert "float32 numbers are 0.25 apart" in str(summary) and not summary.trustworthy
    assert kinds(made(independent(), log_density=large.astype(np.float64))) == set()
    assert kinds(made(independent(), log_density=np.full((8, 400), -500, np.float32))) == set()


def test_one_draw_far_out_does_not_judge_float32():
    """A chain that starts far out passes a huge log density, where no decision is close."""
    values = np.full((8, 400), -20, np.float32)
    values[3, 0] = -1e9
    assert kinds(made(independent().astype(np.float32), log_density=values)) == set()


def test_a_mode_never_visited():
    draws = made(modes(np.ones((8, 400))), MIX)
    assert mode_weights(draws).total_variation == 0.5
    assert ess_per_draw(draws).least == 0 and ess_per_draw(draws).quantity.startswith("mode")
    assert "mode(s) 0 were never visited" in str(summarise(draws))


def test_mode_weights_beyond_noise():
    rng = np.random.default_rng(1)
    fair = np.where(rng.random((8, 400)) < 0.5, -1.0, 1.0)
    assert kinds(made(modes(fair), MIX)) == set()
    tilted = np.where(rng.random((8, 400)) < 0.6, -1.0, 1.0)
    figures = mode_weights(made(modes(tilted), MIX))
    assert abs(figures.total_variation - 0.1) < 0.02
    assert kinds(made(modes(tilted), MIX)) == {"mode weights"}


def test_modes_that_are_not_known():
    with pytest.raises(inv.InputError, match="plain does not; pass modes= to Target"):
        mode_weights(made(independent()))


def test_too_few_to_judge():
    assert not made(independent(4, 5)).summary().trustworthy
    assert "too few" in kinds(made(independent(4, 5)))
    assert "too few to tell whether they agree" in str(made(independent(1, 1000)).summary())


def test_acceptance_is_never_shown_alone():
    for draws in (made(independent()), made(np.ones((4, 100, 2)))):
        for text in (str(draws.summary()), draws.summary()._repr_html_(), repr(draws)):
            for line in text.splitlines():
                assert "acceptance" not in line or "effective draws per draw" in line


def test_variables_and_coordinates_differ():
    target = inv.Target(
        lambda x: -0.5 * jnp.sum(x**2),
        2,
        constrain=lambda x: {"tau": jnp.exp(x[0]), "one": jnp.ones(2)},
        dims={"one": ["side"]},
        coords={"side": ["left", "right"]},
    )
    summary = made(independent(), target).summary()
    assert list(summary.table.index) == ["tau", "one[left]", "one[right]", "|x|²"]
    assert summary.trustworthy, "a constant of the model is no fault of the chains"
    assert set(ess_per_draw(made(independent(), target)).each) == {"flat[0]", "flat[1]", "|x|²"}


def test_html_is_escaped():
    target = inv.Target(lambda x: -jnp.sum(x**2), 2, name="<script>")
    text = made(independent(), target).summary()._repr_html_()
    assert "<script>" not in text and "&lt;script&gt;" in text


def test_a_wide_table_shows_the_worst():
    target = inv.Target(lambda x: -jnp.sum(x**2), 40)
    positions = independent(4, 100, 40)
    positions[..., 33] = positions[..., 33].cumsum(axis=1)
    text = str(made(positions, target).summary())
    assert "x[33]" in text and "(16 quantities with more effective draws are in .table)" in text
    rows = [line.split()[0] for line in text.splitlines()[3:28]]
    assert rows[-1] == "|x|²" and len(rows) == 25, "|x|² takes no parameter's place"
    numbers = [int(name[2:-1]) for name in rows[:-1]]
    assert numbers == sorted(numbers), "parameters keep their order"


def test_many_short_chains_are_judged_by_nested_rhat():
    rng = np.random.default_rng(2)
    steps = rng.normal(size=(256, 40, 2))
    slow = np.zeros((256, 40, 2))
    slow[:, 0] = steps[:, 0]
    for t in range(1, 40):
        slow[:, t] = 0.8 * slow[:, t - 1] + 0.6 * steps[:, t]
    summary = made(slow).summary()
    assert summary.table["r_hat"].max() > 1.05, "classic R-hat measures the length of a chain"
    assert summary.table["nested_r_hat"].max() < 1.02
    assert summary.trustworthy
    apart = slow + 2 * np.sign(slow[:, :1])
    summary = made(apart).summary()
    assert "nested R-hat is" in str(summary) and not summary.trustworthy


def test_nested_rhat_sees_a_common_drift():
    drift = independent(64, 40) + np.linspace(0, 6, 40)[None, :, None]
    assert nested_rhat(drift[..., 0]) > 1.2 > nested_rhat(independent(64, 40)[..., 0])
    assert "chains disagree" in kinds(made(drift)), "no group differs, the halves do"


@pytest.mark.skipif(not hasattr(az, "rhat_nested"), reason="ArviZ 0.x has no nested R-hat")
def test_nested_rhat_agrees_with_arviz():
    groups = np.repeat(np.arange(4), 8)
    values = independent(32, 50, 1)[..., 0] + 0.3 * groups[:, None]
    expected = float(az.rhat_nested(values, superchain_ids=groups))
    np.testing.assert_allclose(nested_rhat(values, groups), expected, rtol=1e-10)


def test_nested_rhat_by_hand():
    """Without ranks in the way: two groups of two chains, B and W of the normal scores."""
    values = np.array([[0.0, 1, 2, 3], [0.5, 1.5, 2.5, 3.5], [10, 11, 12, 13], [10.5, 11.5, 9, 8]])
    assert nested_rhat(values, [0, 0, 1, 1]) > 1.9
    assert nested_rhat(values, [0, 1, 0, 1]) < 1.2
    with pytest.raises(inv.InputError, match="two groups of one size"):
        nested_rhat(values, [0, 0, 0, 1])
    assert np.isnan(nested_rhat(np.zeros((4, 8))))


@pytest.mark.deep
def test_learned_and_stuck_samplers_side_by_side():
    target = inv.targets.mog6()
    stuck = inv.sample(inv.hmc(target, 0.1, 5), key=0, num_chains=16, num_samples=200)
    assert {"chains disagree", "low ESS"} <= {f.kind for f in stuck.summary().findings}
    assert stuck.summary().ess_per_draw < 0.02


def test_very_many_draws_are_diagnosed_thinned(monkeypatch):
    """The work is bounded, and the summary says so; what a draw is worth stays what it was."""
    kernel = inv.hmc(inv.targets.gaussian(2), 0.9, 2)
    draws = inv.sample(kernel, key=0, num_chains=16, num_samples=2000)
    whole = draws.summary()
    assert whole.metrics.every == 1 and "diagnosed" not in str(whole)
    seen = []
    monkeypatch.setattr(metrics, "MOST", 4000)
    monkeypatch.setattr(metrics, "ess", lambda x, *a: (seen.append(x.shape), ess(x, *a))[1])
    thinned = draws.summary()
    assert max(shape[0] * shape[1] for shape in seen) <= 4000
    assert "16 chains of 2000 draws, every 8-th diagnosed (ESS is at least this)" in str(thinned)
    assert thinned.ess_per_draw == pytest.approx(whole.ess_per_draw, rel=0.3)
    assert thinned.table["mean"]["x[0]"] == pytest.approx(whole.table["mean"]["x[0]"], abs=0.1)
    assert thinned.table["ess_bulk"]["x[0]"] <= whole.table["ess_bulk"]["x[0]"]

"""Angles: figures that do not depend on where the circle is cut."""

import numpy as np
import pytest
import scipy.stats

import involutive as inv
from involutive.diagnostics.circular import circular_figures, circular_mean_sd
from involutive.interop.arviz import read_draws, to_netcdf

LEVELS = (0.05, 0.95)


def wrapped(values):
    return np.mod(np.asarray(values) + np.pi, 2 * np.pi) - np.pi


@pytest.fixture
def values():
    return 0.3 * np.random.default_rng(0).normal(size=(4, 500))


def test_figures_turn_with_the_angle(values):
    ends = (-np.pi, np.pi)
    here, there = (circular_figures(wrapped(values + at), ends, LEVELS) for at in (0.0, np.pi))
    for column in ("mean", "5%", "95%"):
        gap = wrapped(there[column] - here[column] - np.pi)
        assert abs(gap) < 1e-9
    for column in ("sd", "ess_bulk", "r_hat", "mcse"):
        assert there[column] == pytest.approx(here[column], rel=0.05 if column != "r_hat" else 0.01)
    assert here["sd"] == pytest.approx(0.3, rel=0.05)
    assert here["mean"] == pytest.approx(values.mean(), abs=0.01)
    assert here["mcse"] == pytest.approx(0.3 / np.sqrt(2000), rel=0.2)
    assert abs(wrapped(there["5%"] - np.pi) - np.quantile(values, 0.05)) < 0.02


def test_figures_are_in_the_units_of_the_circle(values):
    hours = np.mod(23.5 + values, 24)
    found = circular_figures(hours, (0.0, 24.0), LEVELS)
    assert found["mean"] == pytest.approx(23.5, abs=0.05)
    assert found["sd"] == pytest.approx(0.3, rel=0.05)
    assert found["95%"] == pytest.approx(np.mod(23.5 + np.quantile(values, 0.95), 24), abs=0.05)


def test_chains_on_two_sides_of_the_circle_disagree(values):
    values = values + np.array([0, 0, 3, 3])[:, None]
    found = circular_figures(wrapped(values), (-np.pi, np.pi), LEVELS)
    assert found["r_hat"] > 1.5 and found["ess_bulk"] < 50


def test_mean_and_sd_of_part_of_the_draws(values):
    """As the modes of a run have them; also where all draws are one direction."""
    ends, hours = (0.0, 24.0), np.mod(23.8 + values, 24)
    figures = circular_figures(hours, ends, LEVELS)
    assert circular_mean_sd(hours.ravel(), ends) == (figures["mean"], figures["sd"])
    mean, sd = circular_mean_sd(np.full(7, 23.5), ends)
    assert mean == pytest.approx(23.5) and sd == pytest.approx(0.0, abs=1e-6)


def test_modes_of_an_angle_are_cut_nowhere():
    """Two modes of an angle, one of them across the seam at ±π: each has its own mean and sd."""
    import jax.numpy as jnp

    target = inv.Target(
        lambda phi: jnp.logaddexp(jnp.log(3.0) + 20 * jnp.cos(phi - 3.0), 20 * jnp.cos(phi)),
        inv.Parameters(phi=inv.angle()),
    )
    rng = np.random.default_rng(0)
    far = rng.uniform(size=(8, 500)) < 0.75
    phi = np.where(far, 3.0, 0.0) + rng.vonmises(0.0, 20.0, size=far.shape)
    flat = np.stack([np.cos(phi), np.sin(phi)], axis=2)
    ones, none = np.ones(far.shape), np.zeros(8, int)
    draws = inv.Draws(
        flat, 20 * ones, ones.astype(bool), ones, none, none, none.astype(bool), target
    )
    heavy, light = draws.modes()
    assert heavy.weight == pytest.approx(0.75, abs=0.02)
    assert wrapped(heavy.mean["phi"] - 3.0) == pytest.approx(0.0, abs=0.03)
    assert light.mean["phi"] == pytest.approx(0.0, abs=0.03)
    exact = scipy.stats.vonmises(20).std()
    assert (heavy.sd["phi"], light.sd["phi"]) == pytest.approx((exact, exact), rel=0.06)


@pytest.mark.deep
def test_a_mode_across_the_seam_is_one(tmp_path):
    """Summary, picture and file of an angle at ±π, beside the linear figures, which are wrong."""
    import jax.numpy as jnp

    target = inv.Target(
        lambda phi: 8 * jnp.cos(phi - np.pi), inv.Parameters(phi=inv.angle()), name="seam"
    )
    kernel = inv.random_walk(target, 0.5)
    draws = inv.sample(kernel, key=1, num_chains=16, num_samples=300, num_warmup=200)
    table = draws.summary().table
    exact = scipy.stats.vonmises(8)
    assert abs(wrapped(table.loc["phi", "mean"] - np.pi)) < 0.05
    assert table.loc["phi", "sd"] == pytest.approx(exact.std(), rel=0.1)
    assert table.loc["phi", "r_hat"] < 1.03
    again = read_draws(to_netcdf(draws, tmp_path / "draws.nc"))
    assert again.derived.angles() == {"phi": (-np.pi, np.pi)}
    assert again.summary().table.loc["phi", "sd"] == pytest.approx(table.loc["phi", "sd"])
    assert np.ptp(again.derived.unwrapped()["phi"]) < 2 * np.pi - 1


@pytest.mark.deep
@pytest.mark.usefixtures("foreign_keys")  # compiling ahead may name one key twice
def test_a_learned_proposal_moves_across_the_seam():
    """Share on either side within 0.01 of exact; ESS per draw within 5 % of half a turn on."""
    import jax.numpy as jnp

    def learned(centre):
        def log_density(x, phi):
            return 4 * jnp.cos(phi - centre) - 0.5 * (x - jnp.sin(phi - centre)) ** 2

        target = inv.Target(log_density, inv.Parameters(x=inv.real(), phi=inv.angle()))
        # the sizes of the default budget without its end after five minutes on a busy machine
        kernel = inv.learn(target, key=0, progress=False, budget=3600)
        print(f"{centre:.2f}: {kernel.outcome}")
        return inv.sample(kernel, key=1, num_chains=64, num_samples=1000)

    seam, apart = learned(np.pi - 0.3), learned(-0.3)
    phi = seam.to_arviz()["posterior"]["phi"].to_numpy()
    exact = scipy.stats.vonmises(4).cdf(0.3) - scipy.stats.vonmises(4).cdf(-np.pi + 0.3)
    share = float(np.mean(phi > 0))
    assert share == pytest.approx(exact, abs=0.01)
    ratio = seam.summary().ess_per_draw / apart.summary().ess_per_draw
    print(f"share {share:.4f} of {exact:.4f}, ESS per draw {ratio:.4f} of that half a turn on")
    assert ratio == pytest.approx(1, abs=0.05)

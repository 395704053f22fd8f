"""Draws as ArviZ containers, saved and read back, and ArviZ's figures of arrays."""

import json
import subprocess
import sys

import arviz as az
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import involutive as inv
from involutive.core import statistics
from involutive.interop import arviz as bridge


@pytest.fixture(scope="module")
def schools():
    """Draws of a hierarchical Gaussian with named dims, a positive parameter and a nested name."""
    names = ["Choate", "Deerfield", "Exeter"]
    like = {"mu": 0.0, "log_tau": 0.0, "theta": jnp.zeros(3)}

    def constrain(z):
        both = jnp.stack([z["mu"], z["log_tau"]])
        named = {"mu": z["mu"], "tau": jnp.exp(z["log_tau"]), "theta": z["theta"]}
        return named | {"pair": jnp.outer(both, both)}

    target = inv.Target(
        lambda z: -0.5 * (z["mu"] ** 2 + z["log_tau"] ** 2 + jnp.sum(z["theta"] ** 2)),
        like=like,
        name="schools",
        constrain=constrain,
        dims={"theta": ["school"]},
        coords={"school": names},
    )
    return inv.sample(inv.hmc(target, 0.6, 3), key=3, num_chains=4, num_samples=60)


def test_posterior_is_constrained_and_named(schools):
    posterior = bridge.group(schools.to_arviz(), "posterior")
    assert set(posterior.data_vars) == {"mu", "tau", "theta", "pair"}
    assert posterior["theta"].dims == ("chain", "draw", "school")
    assert posterior["school"].values.tolist() == ["Choate", "Deerfield", "Exeter"]
    assert posterior["pair"].dims == ("chain", "draw", "pair_dim_0", "pair_dim_1")
    np.testing.assert_allclose(posterior["tau"], np.exp(schools.positions[..., 1]))
    np.testing.assert_array_equal(
        posterior["theta"].sel(school="Exeter"), schools.positions[..., 4]
    )


def test_sample_stats_have_arviz_names(schools):
    stats = bridge.group(schools.to_arviz(), "sample_stats")
    assert {"lp", "acceptance_rate", "diverging", "accepted"} <= set(stats.data_vars)
    np.testing.assert_array_equal(stats["lp"], schools.log_density)
    assert stats["diverging"].dtype == bool
    assert not stats["diverging"].any()


def test_attributes_tell_where_it_came_from(schools):
    attributes = bridge.group(schools.to_arviz(), "posterior").attrs
    assert attributes["inference_library"] == "involutive"
    assert attributes["inference_library_version"] == inv.__version__
    assert attributes["sampling_time"] > 0
    assert json.loads(attributes["provenance"])["num_samples"] == 60


def test_arviz_summary_reads_it(schools):
    table = az.summary(schools.to_arviz())
    assert "theta[Choate]" in table.index
    assert len(table) == 1 + 1 + 3 + 4


def test_netcdf_round_trip(schools, tmp_path):
    path = bridge.to_netcdf(schools, tmp_path / "draws.nc")
    again = bridge.read_draws(path)
    for name in ("positions", "log_density", "accepted", "acceptance_rate", "diverging"):
        np.testing.assert_array_equal(getattr(again, name), getattr(schools, name))
        assert getattr(again, name).dtype == getattr(schools, name).dtype
    assert again.provenance == schools.provenance
    assert again.target.name == "schools"
    before, after = (bridge.group(d.to_arviz(), "posterior") for d in (schools, again))
    assert before.equals(after)
    assert list(tmp_path.iterdir()) == [path]


def test_netcdf_keeps_modes_and_the_verdict(tmp_path):
    kernel = inv.random_walk(inv.targets.mog2(), 0.5)
    draws = inv.sample(kernel, key=0, num_chains=4, num_samples=50)
    again = bridge.read_draws(bridge.to_netcdf(draws, tmp_path / "draws.nc"))
    assert again.derived.weights == (0.5, 0.5)
    assert str(again.summary()) == str(draws.summary())
    assert bridge.group(bridge.from_netcdf(tmp_path / "draws.nc"), "sample_stats")["mode"].ndim == 2


def test_a_slash_in_a_name_becomes_a_dot(tmp_path):
    target = inv.Target(lambda x: -jnp.sum(x**2), 1, constrain=lambda x: {"scope/a": x[0]})
    draws = inv.sample(inv.random_walk(target, 1.0), key=0, num_chains=2, num_samples=10)
    assert list(bridge.group(draws.to_arviz(), "posterior").data_vars) == ["scope.a"]
    bridge.to_netcdf(draws, tmp_path / "draws.nc")


def test_diverging_marks_the_draw_that_met_nan():
    target = inv.Target(lambda x: jnp.where(x[0] > 1.0, jnp.nan, -0.5 * x[0] ** 2), 1)
    draws = inv.sample(
        inv.random_walk(target, 2.0), key=1, num_chains=4, num_samples=100, initial=np.zeros((4, 1))
    )
    marked = bridge.group(draws.to_arviz(), "sample_stats")["diverging"].values
    np.testing.assert_array_equal(marked.sum(axis=1), draws.nonfinite)
    assert marked.sum() > 0
    assert not draws.accepted[marked].any()


def test_what_is_not_ours_is_refused_in_one_line(schools, tmp_path):
    with pytest.raises(inv.InputError, match="there is no file"):
        bridge.read_draws(tmp_path / "none.nc")
    (tmp_path / "text.nc").write_text("hello")
    with pytest.raises(inv.InputError, match="must be a NetCDF file written by this library"):
        bridge.read_draws(tmp_path / "text.nc")
    with pytest.raises(inv.InputError, match="in a folder that exists"):
        bridge.to_netcdf(schools, tmp_path / "missing" / "draws.nc")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"dims": {"x": ["a", "b"]}}, "dims of x must name its 1 axes"),
        ({"dims": {"x": "axis"}}, "dims of x must name its 1 axes, as a list, got 'axis'"),
        ({"dims": {"y": ["a"]}}, "dims must be of constrained variables, which are x, got y"),
        ({"periods": {"phi": (0, 1)}}, "periods must be of constrained variables"),
        ({"periods": {"x": (1, 0)}}, "periods of x must be the two ends of its circle"),
        ({"dims": {"x": ["a"]}, "coords": {"a": [1]}}, "coords of a must have 2 places"),
    ],
)
def test_labels_that_do_not_fit_are_named(labels, message):
    with pytest.raises(inv.InputError, match=message):
        inv.Target(lambda x: -jnp.sum(x**2), 2, **labels)


def test_figures_agree_with_arviz():
    values = np.asarray(jr.normal(jr.key(0), (4, 100, 3))).cumsum(axis=1)
    assert statistics.ess(values).shape == (3,)
    np.testing.assert_allclose(
        statistics.ess(values[..., 1]), np.asarray(az.ess(values[..., 1], method="bulk")).item()
    )
    np.testing.assert_allclose(statistics.rhat(values)[2], float(az.rhat(values[..., 2])))
    tails = np.asarray(az.ess(values[..., 0], method="tail", prob=(0.05, 0.95))).item()
    np.testing.assert_allclose(statistics.ess(values, "tail")[0], tails)
    np.testing.assert_allclose(
        statistics.mcse(values[..., 0]), np.asarray(az.mcse(values[..., 0])).item()
    )


def test_figures_without_meaning():
    constant = np.zeros((4, 50))
    assert statistics.ess(constant) == 0
    assert np.isnan(statistics.rhat(constant))
    stuck = np.repeat(np.arange(4.0), 50).reshape(4, 50)
    assert statistics.ess(stuck) < 10
    assert statistics.rhat(stuck) > 100
    assert np.isnan(statistics.ess(np.ones((4, 3)))) and np.isnan(
        statistics.ess(np.full((4, 50), np.nan))
    )
    one = np.asarray(jr.normal(jr.key(1), (1, 400)))
    assert statistics.rhat(one) < 1.02
    assert statistics.rhat(one + np.arange(400) / 20) > 1.5


def test_importing_the_library_imports_no_foreign_one():
    names = "('arviz', 'matplotlib', 'numpyro', 'pymc', 'pandas', 'typer')"
    code = (
        "import sys, involutive as inv; inv.interop; "
        f"print([m for m in {names} if m in sys.modules]); inv.interop.arviz; "
        "print('arviz' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split("\n")[:2] == ["[]", "True"]
    with pytest.raises(AttributeError, match="no attribute 'stan'"):
        inv.interop.stan  # noqa: B018

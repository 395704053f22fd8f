"""A trained network: the kernel of one data set, and chains for many data sets at once."""

import json
import subprocess
import sys
from pathlib import Path

import jax.random as jr
import numpy as np
import pytest
from test_amortised import SMALL, data_set, exact, family, invariance  # noqa: F401

import involutive as inv

pytestmark = pytest.mark.deep  # they train; laws are tested with random networks in the fast suite


@pytest.fixture(scope="module")
def many():
    return inv.amortise(family(), key=0, settings=SMALL, progress=False)


def test_the_kernel_of_a_data_set_is_an_ordinary_kernel(many):
    kernel = many.at(data_set())
    draws = inv.sample(kernel, key=1, num_chains=8, num_samples=200, progress=False)
    assert draws["sigma"].min() > 0 and np.mean(draws.accepted) > 0.2
    found = inv.evidence(kernel, key=2, draws=draws, num_samples=500, progress=False)
    assert np.isfinite(found.importance.log_z)
    state, info = kernel.step(jr.key(3), kernel.init({"mu": 0.0, "sigma": 1.0}))
    assert state.position.shape == info.proposal.shape == (2,)


def test_the_kernel_leaves_its_posterior_invariant(many, exact, getkey):  # noqa: F811
    assert invariance(many.at(data_set()), exact, getkey()) < 4.5


def test_the_kernel_of_other_data_is_caught(many, exact, getkey):  # noqa: F811
    assert invariance(many.at(data_set(at=2.0)), exact, getkey()) > 6


OVER_FOUR = """
import jax
jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_enable_x64", True)
import sys
import numpy as np
sys.path.insert(0, {tests!r})
import involutive as inv
from test_amortised import data_set, family
many = inv.load({path!r}, family())
mesh = jax.make_mesh((4,), ("sets",), axis_types=(jax.sharding.AxisType.Auto,))
sets = [data_set(3 + i % 5, at=0.5 * i - 2) for i in range(18)]
found = inv.sample_many(many, sets, key=3, num_samples=100, mesh=mesh, progress=False)
np.save({out!r}, np.stack([found.positions(i) for i in range(18)]))
"""


def test_data_sets_are_spread_over_devices(many, found, tmp_path):
    inv.save(tmp_path / "many.inv", many)
    code = OVER_FOUR.format(
        tests=str(Path(__file__).parent), path=str(tmp_path / "many.inv"),
        out=str(tmp_path / "out.npy"),
    )  # fmt: skip
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
    spread = np.load(tmp_path / "out.npy")
    assert np.allclose(spread, np.stack([found.positions(i) for i in range(18)]), atol=1e-9)


# ── Many data sets ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def sets():
    return [data_set(3 + i % 5, at=0.5 * i - 2) for i in range(18)]


@pytest.fixture(scope="module")
def found(many, sets):
    return inv.sample_many(many, sets, key=3, num_samples=100, progress=False)


def test_every_data_set_has_a_verdict(found, sets):
    assert len(found) == len(sets) == len(found.done)
    assert found.positions(17).shape == (8, 100, 2)
    assert found.column("ess_per_draw").shape == (18,) and (found.column("ess") > 20).all()
    for i in found.failed:
        assert found[i].reasons
    assert "18 of 18 data sets" in str(found)
    assert len(found.to_dataframe()) == 18
    json.dumps([found[i].mode_weights for i in found.done])


def test_chains_of_many_have_the_moments_of_the_posterior(many, sets, found):
    grid = np.stack(np.meshgrid(np.linspace(-8, 9, 300), np.linspace(-5, 4, 250)), -1)
    points = grid.reshape(-1, 2)
    for i in (0, 7, 17):
        log_p = many.family.at(sets[i]).evaluate_rows(points)
        weights = np.exp(log_p - log_p.max())
        mean = weights @ points / weights.sum()
        sd = np.sqrt(weights @ (points - mean) ** 2 / weights.sum())
        z = np.abs(found.positions(i).mean((0, 1)) - mean) / (sd / found[i].ess ** 0.5)
        cell = (17 / 299) * (9 / 249)
        log_z = np.log(np.sum(weights) * cell) + log_p.max()
        assert (z < 4.5).all()
        assert abs(found[i].log_z - log_z) < 5 * found[i].log_z_error + 1e-3


def test_draws_of_one_data_set_have_everything_that_draws_offer(found):
    draws = found.draws(2)
    assert draws["sigma"].shape == (8, 100)
    assert draws.target.dim == 2 and draws.provenance["data_set"] == 2


def test_a_run_is_resumed_bit_for_bit(many, sets, found, tmp_path):
    folder = tmp_path / "run"
    first = inv.sample_many(many, sets[:18], key=3, num_samples=100, folder=folder, progress=False)
    files = sorted(folder.glob("sets-*.inv"))
    assert len(files) == 2
    files[1].unlink()
    with pytest.raises(inv.InputError, match="already holds a run"):
        inv.sample_many(many, sets, key=3, num_samples=100, folder=folder, progress=False)
    with pytest.raises(inv.InputError, match="another key"):
        inv.sample_many(
            many, sets, key=4, num_samples=100, folder=folder, resume=True, progress=False
        )
    again = inv.sample_many(
        many, sets, key=3, num_samples=100, folder=folder, resume=True, progress=False
    )
    for i in range(18):
        assert (again.positions(i) == found.positions(i)).all()
        assert again[i] == found[i] == first[i]

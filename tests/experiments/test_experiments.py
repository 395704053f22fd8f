"""Experiments: what they save, what they draw, and the paper's claims on the quick versions."""

import json
from dataclasses import dataclass

import jax
import jax.random as jr
import numpy as np
import pytest

import involutive as inv
from involutive.diagnostics.metrics import ess_per_draw
from involutive.experiments import framework as fw

OWN = (
    "proposals",
    "convergence",
    "chains",
    "estimator",
    "capacity",
    "universality",
    "families",
)


@dataclass(frozen=True)
class Config:
    seed: int = 0
    size: int = 5

    @staticmethod
    def quick():
        return Config(size=3)


def run(config):
    values = np.random.default_rng(config.seed).normal(size=config.size)
    return {"values": values, "mean": values.mean(), "name": "small", "flag": True}


def table(data):
    return [{"size": data["values"].size, "mean": float(data["mean"])}]


def claims(data):
    return {"there are values": data["values"].size > 0}


def draw(data):
    from involutive.plotting.panels import panels

    figure, axes = panels(1, 1, (3.0, 2.0))
    axes[0, 0].plot(data["values"])
    return {"small": figure}


@pytest.fixture
def small(monkeypatch):
    """An experiment that takes no time, registered as `small`."""
    experiment = fw.Experiment("small", "Small", Config, run, table, claims, draw)
    monkeypatch.setattr(fw, "find_experiment", lambda name: experiment)


def test_one_folder_holds_everything(small, tmp_path):
    outcome = fw.run_experiment("small", quick=True, out=tmp_path, seed=7)
    names = {path.name for path in (tmp_path / "small").iterdir()}
    assert names == {"result.json", "data.npz", "table.md", "table.json", "small.png"}
    header = json.loads((tmp_path / "small" / "result.json").read_text(encoding="utf-8"))
    assert header["seed"] == 7 and header["quick"] is True
    assert header["config"] == {"seed": 7, "size": 3}
    assert header["versions"]["jax"] == jax.__version__
    assert header["claims"] == {"there are values": True} == outcome.claims
    assert outcome.rows[0]["size"] == 3
    assert (tmp_path / "small" / "small.png").read_bytes()[:4] == b"\x89PNG"


def test_data_come_back_as_they_were(small, tmp_path):
    fw.run_experiment("small", out=tmp_path)
    _, data = fw.load_result(tmp_path / "small")
    wanted = run(Config())
    np.testing.assert_array_equal(data["values"], wanted["values"])
    assert data["mean"] == wanted["mean"] and data["name"] == "small" and data["flag"] is True


def test_figures_are_drawn_from_what_was_saved(small, tmp_path):
    fw.run_experiment("small", out=tmp_path)
    folder = tmp_path / "small"
    picture = (folder / "small.png").read_bytes()
    assert fw.draw_saved(folder) == [folder / "small.png"]
    assert (folder / "small.png").read_bytes() == picture
    header, data = fw.load_result(folder)
    fw.save_result(folder, header, data | {"values": data["values"] ** 2}, [])
    fw.draw_saved(folder)
    assert (folder / "small.png").read_bytes() != picture


def test_the_seed_decides(small, tmp_path):
    first = fw.run_experiment("small", out=tmp_path / "a", seed=1)
    again = fw.run_experiment("small", out=tmp_path / "b", seed=1)
    other = fw.run_experiment("small", out=tmp_path / "c", seed=2)
    assert first.rows == again.rows != other.rows


def test_objects_are_not_saved(tmp_path):
    with pytest.raises(inv.InputError, match="data must be numbers or text, got objects in 'x'"):
        fw.save_result(tmp_path, {}, {"x": np.array([object(), object()])}, [])


def test_mistakes_are_answered_in_words(tmp_path):
    with pytest.raises(inv.InputError, match=r"must be one of .*families.*, got 'nothing'"):
        fw.run_experiment("nothing", out=tmp_path)
    with pytest.raises(inv.InputError, match="seed must be at least 0, got -1"):
        fw.run_experiment("families", seed=-1, out=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(inv.InputError, match="out must be a folder that can be written"):
        fw.run_experiment("families", out=tmp_path / "file")
    with pytest.raises(inv.InputError, match=r"must hold result\.json, found none"):
        fw.load_result(tmp_path)


def test_every_experiment_is_listed_with_a_title():
    listed = fw.list_experiments()
    assert set(OWN) <= set(listed)
    assert next(iter(listed)) == "proposals"
    assert all(title and not title.endswith(".") for title in listed.values())


def test_markdown_has_every_column_and_short_numbers():
    text = fw.markdown_table([{"a": 1, "|b|": 0.123456}, {"a": True, "c": "x"}])
    head = "| a | \\|b\\| | c |\n| --- | --- | --- |\n"
    assert text == head + "| 1 | 0.1235 |  |\n| yes |  | x |\n"


@pytest.mark.deep
@pytest.mark.parametrize("name", OWN)
def test_quick_version_supports_every_claim(name, tmp_path):
    outcome = fw.run_experiment(name, quick=True, out=tmp_path, progress=False)
    failed = [claim for claim, holds in outcome.claims.items() if not holds]
    assert not failed
    assert outcome.rows and outcome.figures
    for path in outcome.figures:
        assert 5_000 < path.stat().st_size < 150_000


@pytest.mark.deep
def test_an_experiment_as_small_as_it_goes():
    """The classical samplers as involutions, step for step: true at every size."""
    from involutive.experiments import families

    data = families.run(families.Config(chains=2, steps=150, leaps=4, width=8))
    assert all(families.claims(data).values())
    assert len(families.table(data)) == 3
    assert families.draw(data)


def test_the_recipes_score_tells_shifted_draws_from_exact_ones():
    from involutive.bench.targets import make, reference
    from involutive.experiments.recipe import score

    for name in ("mog6", "funnel"):  # by means, and by medians where tails are heavy
        exact = np.asarray(make(name).sample(jr.key(1), 8000)).reshape(8, 1000, -1)
        assert score(reference(name), exact) < 4.5
        assert score(reference(name), exact + 0.1 * exact.std()) > 6.0


def test_an_experiment_that_is_ended_keeps_the_seeds_it_had(tmp_path, monkeypatch):
    from involutive.experiments import recipe

    figures = iter([[0.9, 0.95, 0.01, 1.0, 1.0, 3.0]])

    def once(*_):
        for found in figures:
            return found
        raise KeyboardInterrupt

    monkeypatch.setattr(recipe, "_once", once)
    with pytest.raises(KeyboardInterrupt):
        fw.run_experiment("recipe", quick=True, out=tmp_path)
    header, data = fw.load_result(tmp_path / "recipe")
    (row,) = recipe.table(data)
    assert row["ESS per draw (worst)"] == 0.9 and row["seeds"] == 1
    assert all(header["claims"].values()) and fw.draw_saved(tmp_path / "recipe")


@pytest.mark.parametrize(
    ("name", "behind"), [("acceptance", "first proposals"), ("near", "states near a mode")]
)
def test_convergence_claims_fail_with_one_seed_behind_at_one_step(name, behind):
    from involutive.experiments import convergence, members

    members_at = np.array([[0.99] * 10, [0.97] * 10])  # lambda=1, and A-NICE-MC
    data = {"members": np.array([members.PAPER, members.PEER]), "seeds dead": np.zeros(5, bool)}
    data |= {"goals": np.array([0.95, 0.92, 0.96])}
    for figure, sign in (("acceptance", 1), ("near", 1), ("nll", -1)):
        data |= {figure: sign * members_at, f"seeds {figure}": np.full((5, 10), sign * 0.99)}
    assert all(convergence.claims(data).values())
    step = 0 if name == "acceptance" else 8
    data[f"seeds {name}"][3, step] = data[name][1, step]  # as good is not better
    (failed,) = (claim for claim, holds in convergence.claims(data).items() if not holds)
    assert behind in failed


@pytest.mark.deep
def test_likelihood_first_mixes_where_the_critics_alone_do_not():
    from involutive.experiments import convergence, members

    config = convergence.Config(family_steps=1500)
    samples = inv.targets.mog6().sample(jr.key(0), 20_000)
    objective = members.objective_of(members.FIRST, config)
    done = members.train(members.FIRST, objective, config, samples, jr.key(1))
    assert done.history[-1]["step"] == 1750
    starts = np.asarray(inv.targets.mog6().sample(jr.key(2), 64))
    draws = inv.sample(
        done.kernel, key=3, num_chains=64, num_samples=500, initial=starts, progress=False
    )
    assert ess_per_draw(draws).least > 0.02

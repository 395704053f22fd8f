"""Experiments: what they save, what they draw, and the paper's claims on the quick versions."""

import json
from dataclasses import dataclass

import jax
import jax.random as jr
import numpy as np
import pytest

import involutive as inv
from involutive.experiments import framework as fw

OWN = (
    "proposals",
    "mixing",
    "convergence",
    "chains",
    "bootstrapped",
    "estimator",
    "capacity",
    "universality",
    "families",
)


# networks are fitted where proposals ask for them: that the hypothesis of the proof fails elsewhere
# is what the experiment found, and is reported
FALSE = {"the networks approximate R and S better with m over all of Ω⁺⁺"}


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
    failed = {claim for claim, holds in outcome.claims.items() if not holds}
    assert failed <= FALSE
    assert outcome.rows and outcome.figures
    for path in outcome.figures:
        assert 5_000 < path.stat().st_size < 400_000


@pytest.mark.deep
def test_an_experiment_as_small_as_it_goes():
    """The classical samplers as involutions, step for step: true at every size."""
    from involutive.experiments import families

    data = families.run(families.Config(chains=2, steps=150, leaps=4, width=8))
    assert all(families.claims(data).values())
    assert len(families.table(data)) == 3
    assert families.draw(data)


def test_the_recipes_score_tells_shifted_draws_from_exact_ones():
    from involutive.bench.suites import make, reference
    from involutive.experiments.recipe import score

    for name in ("mog6", "funnel"):  # by means, and by medians where tails are heavy
        exact = np.asarray(make(name).sample(jr.key(1), 8000)).reshape(8, 1000, -1)
        assert score(reference(name), exact) < 4.5
        assert score(reference(name), exact + 0.1 * exact.std()) > 6.0


@pytest.mark.deep
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
    assert all(header["claims"].values())
    assert list((tmp_path / "recipe").glob("*.png"))  # drawn although it was ended


def _mixing_rows(member: str, seeds: list[int], energy: float) -> dict[str, np.ndarray]:
    rows = len(seeds)
    return {
        "target": np.full(rows, "mog6"), "member": np.full(rows, member), "seed": np.array(seeds),
        "ess": np.full(rows, 0.4), "stationary_acceptance": np.full(rows, 0.6),
        "autocorrelation": np.full((rows, 2), 0.01), "weights": np.full(rows, 0.01),
        "energy": energy / np.arange(1, 12)[None, :] + np.zeros((rows, 1)),
        "energy_floor": np.full(rows, 0.1), "nll": np.zeros((rows, 11)),
        "acceptance": np.full((rows, 10), 0.95),
    }  # fmt: skip


def test_mixing_compares_the_seeds_that_both_were_trained_from():
    from involutive.experiments import mixing, mixing_page

    ours, peer = _mixing_rows(mixing.OURS, [0, 1, 2], 1.0), _mixing_rows(mixing.PEER, [1, 7], 2.0)
    ours["energy"][0] = 9.0  # of a seed that the peer has not
    data = {key: np.concatenate([ours[key], peer[key]]) for key in ours}
    found = mixing_page.claims(data)
    (beside,) = [claim for claim in found if "A-NICE-MC" in claim]
    assert beside.startswith("mog6, 1 seed,") and found[beside]
    assert found["mog6, 3 seeds: at least 0.35 effective draws per draw"]
    assert not found["mog6, 3 seeds, from X: energy distance at most twice the floor by step 10"]
    data["energy"][3] = 0.01
    assert not mixing_page.claims(data)[beside]


def _trainings(name: str, seeds: int, ess: float, energy: float) -> dict[str, np.ndarray]:
    spread = 0.01 * np.random.default_rng(len(name)).normal(size=seeds)
    return {
        "member": np.full(seeds, name),
        "ess": ess + spread,
        "energy": energy + 0.01 * spread[:, None] + np.zeros((seeds, 11)),
        "acceptance": 0.5 + ess + spread[:, None] + np.zeros((seeds, 10)),
    }


def test_a_claim_needs_two_standard_errors_and_seeds():
    from involutive.experiments import convergence, members

    def found(ess: float, seeds: int = 5) -> dict[str, bool]:
        rows = [
            _trainings(members.OURS, seeds, ess, 0.01), _trainings(members.PEER, seeds, 0.2, 0.02)
        ]  # fmt: skip
        data = {key: np.concatenate([row[key] for row in rows]) for key in rows[0]}
        return convergence.claims(data)

    assert len(found(0.4)) == 3 and all(found(0.4).values())
    failed = [claim for claim, holds in found(0.201).items() if not holds]
    assert len(failed) == 2 and not any("energy" in claim for claim in failed)
    assert found(0.4, seeds=1) == {}


def test_energy_distance_has_a_floor_and_sees_a_shift():
    from involutive.experiments.measures import energy_distances

    a, b = (np.random.default_rng(k).normal(size=(500, 2)) for k in range(2))
    floor, shifted = energy_distances(np.stack([b, b + 0.5]), a)
    assert 0 < floor < 0.02 < 0.1 < shifted


def test_the_number_of_seeds_is_for_experiments_that_have_several(tmp_path):
    with pytest.raises(inv.InputError, match=r"seeds must be left out of chains, .*: .*recipe"):
        fw.run_experiment("chains", out=tmp_path, seeds=2)
    with pytest.raises(inv.InputError, match="seeds must be at least 1, got 0"):
        fw.run_experiment("recipe", out=tmp_path, seeds=0)
    assert not list(tmp_path.iterdir())


@pytest.mark.deep
def test_mixing_takes_up_what_an_earlier_run_left(tmp_path, monkeypatch):
    from involutive.experiments import mixing

    config = mixing.Config((("mog6", mixing.OURS),), 2, (3,), 2, 1, 64, 10, 30, 200)
    trained, made = [], mixing._Work.made

    def noted(work, job, *rest):
        trained.append(job.name)
        return made(work, job, *rest)

    monkeypatch.setattr(mixing._Work, "made", noted)
    (tmp_path / "first").mkdir()
    first = list(mixing.run(config, tmp_path / "first"))
    assert [len(data["ess"]) for data in first] == [1, 2] and len(trained) == 2
    (tmp_path / "first" / "trained" / "mog6-involutive-1-3.npz").unlink()
    again = list(mixing.run(config, tmp_path / "first"))
    assert trained[2:] == ["mog6-involutive-1-3"]  # the other seed is not trained again
    np.testing.assert_array_equal(again[-1]["energy"], first[-1]["energy"])
    (row,) = mixing.table(again[-1])
    assert row["seeds"] == 2 and mixing.claims(again[-1])
    assert set(mixing.draw(again[-1])) == {"mixing", "mixing-states"}
    kernel = inv.load(
        tmp_path / "first" / "trained" / "mog6-involutive-0-3.inv", mixing.MAKERS["mog6"]()
    )
    assert kernel.auxiliary.shape == (30,)

"""Suites: runs that resume and join, the field's table, distances, posteriordb, the leaderboard."""

import json
from functools import cache

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from matplotlib.figure import Figure

import involutive as inv
from involutive import bench
from involutive.bench import (
    compare,
    growth,
    integrals,
    leaderboard,
    posteriordb,
    record,
    report,
    suites,
)
from involutive.bench.entry import SPREAD, Entry
from involutive.bench.field import figures, table
from involutive.bench.field.published import PUBLISHED
from involutive.bench.judge import judge
from involutive.bench.peers.base import Task, equal_draws, of_rows
from involutive.bench.posteriors import POSTERIORS
from involutive.bench.targets import Reference, summary, with_square
from involutive.core.text import as_json

FIGURES = {"setup_seconds": 1.0, "sampling_seconds": 2.0, "setup_evaluations": 1000.0,
           "sampling_evaluations": 4000.0, "exchangeable": False}  # fmt: skip


@cache
def judged(target: str) -> dict:
    """The verdict on exact draws, as a run would give it; a small reference is enough here."""
    known = suites.make(target)
    assert known.sample is not None
    draws = np.asarray(known.sample(jr.key(0), 4000))
    truth = summary(with_square(draws), 4000)
    found = judge(known, truth, draws.reshape(4, 1000, -1), FIGURES).as_dict()
    found.pop("mode_shares")
    assert found["correct"]
    return as_json({"dim": known.dim, "modes_seen": ""} | found)


def made(target: str, peer: str, seed: int = 0, **more) -> dict:
    """A row of exact draws, as a run would give it."""
    return {"target": target, "peer": peer, "seed": seed} | judged(target) | more


def header(suite: str, targets: list[str], peers: list[str], **changes) -> dict:
    return record.header_of(suite, True, [0], 1.0, targets, peers, None) | changes


def test_every_target_of_every_suite_is_known():
    for suite, entries in suites.SUITES.items():
        assert suites.names_of(suite, False, None) == list(entries)
        assert set(suites.names_of(suite, True, None)) <= set(entries)
    assert set(PUBLISHED) <= set(suites.SUITES["field"])
    with pytest.raises(inv.InputError, match=r"a suite must be one of default, field.*'stan'"):
        bench.run(suite="stan")


def test_a_run_goes_on_where_it_was_cut_off(tmp_path, monkeypatch):
    ran = []

    def one(peer, target, seed, *more):
        ran.append((target, peer, seed))
        return made(target, peer, seed)

    monkeypatch.setattr(compare, "one", one)
    monkeypatch.setattr("involutive.bench.report.draw", lambda *run: Figure())  # pictures: below
    options = {"quick": True, "out": tmp_path, "peers": ["smc"], "seconds": 1.0}
    bench.run(targets=["mog6"], **options)
    found = bench.run(targets=["mog6", "mog2_1d"], seeds=2, **options)
    assert ran == [("mog6", "smc", 0), ("mog6", "smc", 1), ("mog2_1d", "smc", 0),
                   ("mog2_1d", "smc", 1)]  # fmt: skip
    assert len(found.rows) == 4
    bench.run(targets=["mog6"], **(options | {"seconds": 2.0}))  # another size: run again
    assert ran[-1] == ("mog6", "smc", 0) and len(ran) == 5


def test_runs_of_one_code_join_and_others_are_refused(tmp_path):
    one = header("default", ["mog6"], ["smc", "emcee"])
    two = header("default", ["mog6", "ring5"], ["smc"])
    failed = {"target": "mog6", "peer": "smc", "seed": 0, "failed": "no result within 1 s"}
    for name, head, rows in (("a", one, [failed, made("mog6", "emcee")]),
                             ("b", two, [made("mog6", "smc"), made("ring5", "smc")])):  # fmt: skip
        (tmp_path / name).mkdir()
        record.write(tmp_path / name, head, rows, picture=False)
    found = bench.joined([tmp_path / "a", tmp_path / "b" / "bench.json"], tmp_path / "joined")
    assert [record.identity(row)[:2] for row in found.rows] == [
        ("mog6", "smc"), ("mog6", "emcee"), ("ring5", "smc")]  # fmt: skip
    assert not found.rows[0].get("failed")  # the run that ended is kept
    assert (tmp_path / "joined" / "bench.png").is_file()
    other = two | {"code": "other"}
    record.write(tmp_path / "b", other, [made("ring5", "smc")], picture=False)
    with pytest.raises(inv.InputError, match=r"must have the same code.*other"):
        bench.joined([tmp_path / "a", tmp_path / "b"])


def test_data_that_are_missing_are_left_out_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(compare, "one", lambda *a: pytest.fail("nothing can be run"))
    found = bench.run(suite="field", targets=["sonar_61"], peers=["involutive"], out=tmp_path)
    assert found.rows == []
    assert "| sonar_61 |  |  | left out: needs sonar.all-data" in found.markdown


def test_the_fields_table_stands_beside_the_published_figures():
    row = made("gmm_v1", "involutive", log_z=0.0004, log_z_stated=0.0003, log_z_note="",
               log_z_off=0.0004, log_z_error=0.001, importance_share=0.99, w2=0.5, w2_floor=0.3,
               w2_floor_most=0.7)  # fmt: skip
    head = header("field", ["gmm_v1", "gmm40_2"], ["involutive"])
    text = "\n".join(table.table(head, [row]))
    assert "0.001 (10 × 2000), 0.0004 (own)" in text and "ahead: 0.001 against 0.00269" in text
    assert "lollcat/fab-jax" in text and "0.5 (0.3 to 0.7)" in text
    assert "| gmm40_2 |  |  | not run |" in text
    worse = row | {"log_z_error": 0.01}
    assert "behind: 0.01 against 0.00269" in "\n".join(table.table(head, [worse]))
    low = {"w2": 1.1, "w2_floor": 1.05}
    assert "below the floor" in table.against("many_well_5", [low])


def test_log_z_errors_are_those_of_the_protocol():
    known = Entry(lambda data: inv.targets.gaussian(1), log_z=2.0)
    said = {"log_z": 2.5, "error": 0.1, "repeats": [1.9, 2.2], "share": 0.5, "seconds": 1.0,
            "evaluations": 5.0, "alone_seconds": 3.0, "alone_evaluations": 9.0,
            "note": ""}  # fmt: skip
    found = figures.integral(known, said)
    assert found["log_z_off"] == 0.5 and found["log_z_error"] == pytest.approx(0.15)
    assert "log_z_off" not in figures.integral(known, said | {"log_z": None})
    assert figures.integral(known, None) == {}


def test_log_z_stands_beside_its_cost():
    """Error times seconds and evaluations: of the run, or of log Z alone where that is known."""
    log_z = {"log_z_off": 0.02, "log_z_stated": 0.03, "log_z_note": ""}
    peer = made("gmm_v1", "dynesty", **log_z)
    ours = [made("gmm_v1", "involutive", seed, **log_z, alone_seconds=0.5, alone_evaluations=80.0)
            for seed in (0, 1)]  # fmt: skip
    ours[1] |= {"log_z_off": -0.04}
    assert integrals.cost(peer) == (3.0, 5000.0)  # set-up and sampling
    withheld = made("gmm_v1", "smc", log_z_note="the two sides disagree")
    failed = {"target": "gmm_v1", "peer": "nautilus", "seed": 0, "failed": "no result within 1 s"}
    peers = ["involutive", "dynesty", "nautilus", "smc"]
    head = header("evidence", ["gmm_v1"], peers)
    lines = integrals.table(head, [*ours, peer, failed, withheld])
    assert lines[2:] == [
        "| gmm_v1 | involutive | 2 of 2 | 0.03 | 0.03 | 0.5 | 0.015 | 0.00045 | 80 | 2.4 |",
        "| gmm_v1 | dynesty | 1 of 1 | 0.02 | 0.03 | 3.0 | 0.06 | 0.0012 | 5,000 | 100 |",
        "| gmm_v1 | nautilus | 0 of 1: no result within 1 s |  |  |  |  |  |  |  |",
        "| gmm_v1 | smc | 0 of 1: the two sides disagree |  |  |  |  |  |  |  |",
    ]
    assert "## log Z" in report.markdown(head, [*ours, peer, failed])


def test_a_suite_may_have_its_own_samplers(monkeypatch):
    ran = []
    monkeypatch.setattr(compare, "one", lambda p, t, *more: ran.append((t, p)) or made(t, p))
    bench.run(suite="evidence", quick=True)
    assert ran == [("gmm_v1", p) for p in ("involutive", "dynesty", "nautilus", "smc")]
    assert all(suites.entry(name).log_z is not None for name in suites.EVIDENCE)


def test_distances_have_a_floor_that_wrong_draws_are_above():
    rng = np.random.default_rng(0)
    cloud = rng.normal(size=(1200, 3))
    zeros = np.zeros(4)
    truth = Reference(np.zeros((5, 4)), zeros, zeros, 1200, True, cloud)
    known = Entry(lambda data: inv.targets.gaussian(3))
    right = figures.distances(known, truth, rng.normal(size=(2, 500, 3)))
    wrong = figures.distances(known, truth, rng.normal(size=(2, 500, 3)) + 1.0)
    assert 0.7 * right["w2_floor"] < right["w2"] < 1.4 * right["w2_floor_most"]
    assert wrong["w2"] > right["w2"] + 2.0  # the squared shift is 3
    assert right["w2_draws"] == 300
    centred = Entry(lambda data: inv.targets.gaussian(3), centred=3)
    assert figures.distances(centred, truth, rng.normal(size=(2, 500, 3)) + 1.0)["w2"] < 0.5


def test_matching_is_the_optimal_one():
    a, b = np.array([[0.0], [1.0], [5.0]]), np.array([[5.5], [0.5], [1.5]])
    assert figures.squared_w2(a, b) == pytest.approx(0.25)


def test_equal_draws_are_worth_their_weights():
    points = np.arange(1000.0)[:, None]
    weights = np.where(points[:, 0] < 500, 0.0, -np.inf)
    drawn = equal_draws(points, weights, 0)
    assert drawn.shape == (1, 500, 1) and drawn.max() < 500
    assert np.unique(drawn).size == 500


def test_the_prior_of_a_task_is_its_start():
    task = Task("smc", inv.targets.gaussian(2), 0, 1.0, True, spread=7.0)
    assert np.asarray(task.starts(4000)).std() == pytest.approx(7.0, rel=0.05)
    x = jnp.array([1.0, -2.0])
    normal = -0.5 * (5 / 49) - 2 * np.log(7 * np.sqrt(2 * np.pi))
    assert float(task.log_initial(x)) == pytest.approx(normal, rel=1e-5)
    assert float(task.log_likelihood(x)) == pytest.approx(-2.5 - normal, rel=1e-5)
    assert task.from_cube(np.array([0.5, 0.8413447]))[1] == pytest.approx(7.0, rel=1e-4)
    values = of_rows(lambda x: jnp.log(x[0]))(np.array([[-1.0], [1.0], [np.e]]))
    assert values.tolist() == pytest.approx([-1e300, 0.0, 1.0])
    assert SPREAD == 3.0


def test_eight_schools_draws_fit_the_density():
    target = POSTERIORS["eight_schools"].make(None)
    assert target.sample is not None
    draws = np.asarray(target.sample(jr.key(0), 4000))
    from involutive.bench.reach.cases import CASES

    truth = CASES["eight_schools"]().truth
    for level in (-1.0, 0.0, 1.0, 2.0):
        share = np.mean(draws[:, 1] < level)
        assert share == pytest.approx(truth[f"log τ < {level}"], abs=0.03)


def test_growth_has_slopes_and_a_picture():
    points = [(2.0, 100.0), (4.0, 50.0), (8.0, 25.0)]
    assert growth.rate_slope(points) == pytest.approx(-1.0)
    assert growth.rate_slope(points[:1]) is None
    rows = [{"target": f"dim_{d}", "peer": "smc", "correct": True,
             "ess_per_second_in_all": 100 / d} for d in (2, 10)]  # fmt: skip
    figure = growth.draw({"peers": {"smc": ""}}, rows)
    assert "slope -1.0" in figure.axes[0].get_legend().get_texts()[0].get_text()
    assert suites.make("modes_8").modes.weights == (1 / 8,) * 8
    assert suites.make("dim_50").dim == 50


# ── posteriordb ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def database(tmp_path):
    """A posteriordb with one posterior that has a form here and one that has none."""
    root = tmp_path / "posterior_database"
    draws = root / "reference_posteriors" / "draws" / "draws"
    for folder in (root / "posteriors", root / "data" / "data", draws):
        folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    iq = np.linspace(-1, 1, 40)
    about = {"model_name": "kidscore_momiq", "data_name": "kidiq",
             "reference_posterior_name": "kid"}  # fmt: skip
    (root / "posteriors" / "kid.json").write_text(json.dumps(about))
    other = {"model_name": "irt_2pl", "data_name": "irt", "reference_posterior_name": "irt"}
    (root / "posteriors" / "irt.json").write_text(json.dumps(other))
    data = {"N": 40, "mom_iq": iq.tolist(), "kid_score": (2 + iq + rng.normal(size=40)).tolist()}
    (root / "data" / "data" / "kidiq.json").write_text(json.dumps(data))
    chain = {"beta[1]": rng.normal(2, 0.1, 500).tolist(), "beta[2]": [1.0] * 500,
             "sigma": [np.e] * 500}  # fmt: skip
    (draws / "kid.json").write_text(json.dumps([chain, chain]))
    return tmp_path


def test_posteriordb_runs_what_has_a_form_here(database):
    assert posteriordb.is_database(database) and not posteriordb.is_database(database / "x")
    assert suites.names_of("posteriors", False, database) == ["kid"]
    assert posteriordb.skipped(database) == ["irt"]
    head = record.header_of("posteriors", True, [0], 1.0, ["kid"], ["involutive"], database)
    assert head["left_out"] == {"irt": "has no JAX form or no draws here"}
    target = suites.make("kid", database)
    data = json.loads((database / "posterior_database/data/data/kidiq.json").read_text())
    gaps = (np.array(data["kid_score"]) - 2 - np.array(data["mom_iq"])) / np.e
    expected = -0.5 * np.sum(gaps**2) - 40 - np.log1p((np.e / 2.5) ** 2) + 1  # the last: log σ
    places = suites.reference("kid", database)
    assert places is not None and places.draws == 1000
    assert places.mean[1] == pytest.approx(1.0)
    at = jnp.asarray([2.0, 1.0, float(places.mean[2])])
    assert float(target.log_density(at)) == pytest.approx(expected, abs=1e-3)


def test_models_of_posteriordb_are_densities():
    rng = np.random.default_rng(1)
    y = rng.normal(size=30)
    data = {"y": y, "sigma": np.ones(30), "K": np.array(2.0), "X": rng.normal(size=(30, 3)),
            "mom_iq": y, "mom_hs": y, "kid_score": y, "earn": y, "height": y}  # fmt: skip
    for name, model in posteriordb.MODELS.items():
        parameters, log_density = model(data)
        target = inv.Target(log_density, parameters, arguments="dict", name=name)
        assert np.isfinite(float(target.log_density(jnp.full(parameters.dim, 0.1)))), name


# ── leaderboard ─────────────────────────────────────────────────────────────────────────────────


def test_the_leaderboard_colours_links_and_counts():
    ours, peer = made("mog6", "involutive"), made("mog6", "dynesty")
    peer = peer | {"seconds_to": {"10000": 99.0}, "evaluations_to": {"10000": 10.0}}
    wrong = made("ring5", "dynesty") | {"wrong": "mode weights off by 0.5", "correct": False}
    rows = [ours, peer, made("ring5", "involutive"), wrong]
    run = (header("default", ["mog6", "ring5", "mog2_1d"], ["involutive", "dynesty"]), rows)
    text = leaderboard.page([run])
    assert leaderboard.COLOURS["wrong"] in text and 'href="#default-1-ring5-dynesty">wrong' in text
    assert 'id="default-1-ring5-dynesty"' in text and "mog2_1d" not in text
    assert leaderboard.standing(run, "seconds") == (2, 2)
    assert leaderboard.standing(run, "evaluations", ("dynesty",)) == (1, 2)
    assert "First in seconds on 2 of 2 multimodal targets" in text
    busy = (run[0], [row | {"cores_had": 0.2, "wall_seconds": 9.0} for row in rows])
    assert leaderboard.standing(busy, "seconds") == (0, 0)
    assert leaderboard.standing(busy, "evaluations", ("dynesty",)) == (1, 2)
    assert ">busy machine<" in leaderboard.page([busy])
    shown = leaderboard.readme_table([run])
    assert "| dynesty, 99 s |" in shown and "| none | dynesty |" in shown


def test_the_readme_is_changed_between_its_markers_only(tmp_path):
    old = f"before\n{leaderboard.BEGIN}\nold\n{leaderboard.END}\nafter\n"
    new = leaderboard.between_markers(old, "| new |")
    assert new == f"before\n{leaderboard.BEGIN}\n| new |\n{leaderboard.END}\nafter\n"
    with pytest.raises(inv.InputError, match="must have the lines"):
        leaderboard.between_markers("no markers", "x")
    folder = tmp_path / "run"
    folder.mkdir()
    rows = [made("mog6", "involutive"), made("mog6", "smc"), made("ring5", "involutive")]
    run = (header("default", ["mog6", "ring5"], ["involutive", "smc"]), rows)
    record.write(folder, *run, picture=False)
    (tmp_path / "README.md").write_text(old)
    leaderboard.main([folder], tmp_path / "page.md", tmp_path / "README.md")
    text = (tmp_path / "README.md").read_text()
    assert "| mog6 |" in text and "ring5" not in text  # alone on it
    assert "# Leaderboard" in (tmp_path / "page.md").read_text()

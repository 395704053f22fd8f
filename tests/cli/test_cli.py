"""The command: what it reads, writes and prints, and how it refuses."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flowjax.bijections import Identity
from flowjax.distributions import Normal

import involutive as inv
from involutive.bench.interrupts import interrupted
from involutive.cli import interrupts, machine
from involutive.cli import main as cli
from involutive.cli.demo import Size, run_demo
from involutive.cli.source import read_target
from involutive.cli.speech import Speech
from involutive.interop.arviz import to_netcdf
from involutive.learning.outcome import Learned, Outcome

TIMES = (0.2, 0.5, 1.0, 2.0, 4.0, 6.0, 10.0, 15.0, 25.0, 40.0)  # seconds after the start

pytestmark = pytest.mark.usefixtures("as_users_run")

POSTERIOR = """
import jax.numpy as jnp
import involutive as inv

DIM = 2

def density(x):
    return -0.5 * jnp.sum(x**2)

target = inv.Target(density, dim=2, name="plain")
number = 3
"""


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """Keep the tests' compilation cache, and work in an empty folder."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "set")
    monkeypatch.chdir(tmp_path)
    Path("posterior.py").write_text(POSTERIOR)


def learned(target):
    """What `learn` returns, without learning."""
    kernel = inv.Mixture([inv.random_walk(target, 1.5), inv.hmc(target, 0.6, 3)], [0.1, 0.9])
    history = [{"stage": "log-variance", "step": float(i), "held_out": 1 / (i + 1)} for i in (0, 1)]
    outcome = Outcome(0.9, 0.8, 1.001, 2, 12_345, 3.2, True, "", history)
    law = Normal(jnp.zeros(target.dim), jnp.ones(target.dim))
    return Learned(target=target, initial=law, kernel=kernel, warmup=5, outcome=outcome)


@pytest.fixture
def quick_learn(monkeypatch):
    def learn(target, *, key, budget=None, progress=None, checkpoint=None, resume=False):
        return learned(target)

    monkeypatch.setattr("involutive.learning.learn.learn", learn)
    monkeypatch.setattr("involutive.cli.demo.learn", learn)


def last_json(capsys):
    out = capsys.readouterr().out
    assert out.count("\n") == 1, out  # one object, one line, nothing else
    return json.loads(out)


def refused(capsys, *arguments):
    """Run, expect exit code 2 and one line on standard error; return the line."""
    assert cli.run(list(arguments)) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1, said
    return said.err


# ── The way through ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.deep
def test_learn_sample_report(quick_learn, capsys):
    assert cli.run(["learn", "posterior.py:target", "-o", "p.inv", "--json"]) == 0
    found = last_json(capsys)
    assert found["proposal"] == "p.inv" and found["converged"] and found["ess_per_draw"] == 0.8

    size = ["--chains", "8", "--samples", "250", "--seed", "3"]
    assert cli.run(["sample", "posterior.py:target", "p.inv", "-o", "d.nc", *size, "--json"]) == 0
    found = last_json(capsys)
    assert found["samples"] == 250 and not found["interrupted"]
    assert set(found["quantities"]) >= {"x[0]", "x[1]", "|x|²"}
    assert abs(found["quantities"]["x[0]"]["mean"]) < 0.3

    assert cli.run(["report", "d.nc"]) == 0
    said = capsys.readouterr().out
    assert "wrote d.html" in said and found["verdict"] in said
    page = Path("d.html").read_text()
    assert found["verdict"] in page
    assert "What the proposal does" in page and "Learning" in page  # kept in the file of draws


@pytest.mark.deep
def test_evidence_and_its_report(capsys):
    """log Z of exp(-|x|²/2) in the plane is log 2π; the report shows what was written."""
    target = read_target("posterior.py:target")
    law = inv.GaussianMixture(np.ones(1), np.zeros((1, 2)), 1.2 * np.eye(2)[None])
    inv.save("p.inv", inv.Kernel(target, inv.FunctionBlock(Identity((2,))), law))
    command = ["evidence", "posterior.py:target", "p.inv", "--samples", "4000"]
    assert cli.run([*command, "-o", "e.json", "--json"]) == 0
    found = last_json(capsys)
    assert found["trustworthy"] and abs(found["log_z"] - np.log(2 * np.pi)) < 4 * found["error"]
    assert json.loads(Path("e.json").read_text()) == found
    draws = inv.sample(inv.hmc(target, 0.6, 3), key=0, num_chains=4, num_samples=50)
    to_netcdf(draws, "d.nc")
    assert cli.run(["report", "d.nc", "--evidence", "e.json", "-q"]) == 0
    page = Path("d.html").read_text()
    assert "Evidence" in page and "bridge sampling" in page and "no prior was declared" in page
    inv.save("h.inv", inv.hmc(target, 0.6, 3))
    assert "known density q" in refused(capsys, "evidence", "posterior.py:target", "h.inv")
    assert "is not" in refused(capsys, "report", "d.nc", "--evidence", "posterior.py")


@pytest.fixture
def read_once(monkeypatch):
    """One target for all commands of a test, so that they share what is compiled."""
    monkeypatch.setattr("involutive.cli.sampling.read_target", cache(read_target))


@pytest.mark.deep
@pytest.mark.usefixtures("read_once")
def test_the_seed_decides_the_draws(quick_learn):
    inv.save("p.inv", learned(read_target("posterior.py:target")))
    from involutive.interop.arviz import read_draws

    runs = []
    for name, seed in (("a.nc", "3"), ("b.nc", "3"), ("c.nc", "4")):
        size = ["--chains", "4", "--samples", "20", "--seed", seed, "--quiet"]
        assert cli.run(["sample", "posterior.py:target", "p.inv", "-o", name, *size]) == 0
        runs.append(read_draws(name).positions)
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


@pytest.mark.usefixtures("read_once")
def test_resume_continues_a_run(capsys):
    inv.save("p.inv", learned(read_target("posterior.py:target")))
    common = ["sample", "posterior.py:target", "p.inv", "-o", "d.nc", "--chains", "4", "--resume"]
    assert cli.run([*common, "--samples", "30", "-q"]) == 0
    assert Path("d.nc.checkpoint").is_dir()
    assert cli.run([*common, "--samples", "60", "-q"]) == 0
    assert cli.run(["sample", "posterior.py:target", "p.inv", "-o", "e.nc", "--chains", "4",
                    "--samples", "60", "-q"]) == 0  # fmt: skip
    from involutive.interop.arviz import read_draws

    one, other = read_draws("d.nc"), read_draws("e.nc")
    np.testing.assert_array_equal(one.positions, other.positions)
    assert capsys.readouterr().out == ""


def test_demo_writes_report_and_picture(quick_learn, capsys, tmp_path):
    found = run_demo(0, tmp_path, Speech(), Size(chains=8, samples=200))
    said = capsys.readouterr().out
    assert "modes visited per chain" in said and "wrote" in said
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert (tmp_path / "demo.png").read_bytes()[:4] == b"\x89PNG"
    assert found["samplers"]["HMC"]["modes visited per chain"] == 1.0


def test_experiments_are_listed(capsys):
    assert cli.run(["experiment", "--list"]) == 0
    assert "universality" in capsys.readouterr().out
    assert cli.run(["experiment", "--list", "--json"]) == 0
    assert "proposals" in last_json(capsys)["experiments"]


def test_bench_passes_names_on(monkeypatch, capsys):
    calls = []

    def run(quick, out, targets, peers, seed, progress, seconds, suite, seeds, data):
        calls.append((quick, targets, peers, seed, suite, seeds, data))
        from involutive.bench import Bench

        return Bench({}, [], Path(out))

    monkeypatch.setattr("involutive.bench.run", run)
    monkeypatch.setattr("involutive.bench.Bench.markdown", "a table")
    assert cli.run(["bench", "--quick", "--targets", "mog6, ring5", "--seed", "2", "--json"]) == 0
    assert calls == [(True, ["mog6", "ring5"], None, 2, "default", 1, None)]
    assert cli.run(["bench", "--suite", "field", "--data", "somewhere", "--seeds", "3", "-q"]) == 0
    assert calls[-1] == (False, None, None, 0, "field", 3, Path("somewhere"))
    assert last_json(capsys)["rows"] == []


@pytest.mark.parametrize("command", ["demo", "learn", "sample", "report", "experiment", "bench"])
def test_help_teaches_by_example(command, capsys):
    assert cli.run([command, "--help"]) == 0
    page = capsys.readouterr().out
    examples = [line for line in page.splitlines() if f"• involutive {command}" in line]
    assert len(examples) >= 2, page
    said = " ".join(page.split())
    assert f"involutive {command}" in said.split("Options")[0].replace("Usage: involutive", "")
    for option in ("--quiet", "--json", "--seed"):
        assert option in said


# ── What NAME may be ────────────────────────────────────────────────────────────────────────────


def test_name_may_be_a_target_or_a_density_with_dim():
    assert read_target("posterior.py:target").name == "plain"
    found = read_target("posterior.py:density")
    assert found.dim == 2 and float(found.log_density(jnp.ones(2))) == -1.0


@pytest.mark.usefixtures("foreign_keys")
def test_name_may_be_a_numpyro_model():
    Path("model.py").write_text(
        "import numpyro, numpyro.distributions as dist\n"
        "def model(n=2):\n"
        "    numpyro.sample('scale', dist.HalfNormal(1.0).expand([n]))\n"
    )
    found = read_target("model.py:model")
    assert found.dim == 2
    assert list(found.constrain(jnp.zeros(2))) == ["scale"]


@pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")
def test_name_may_be_a_pymc_model():
    Path("model.py").write_text(
        "import pymc as pm\nwith pm.Model() as model:\n    pm.Normal('mu', 0.0, 1.0, shape=3)\n"
    )
    assert read_target("model.py:model").dim == 3


# ── Refusals: exit code 2, one line ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["learn", "nowhere.py:target"], "there is no file nowhere.py"),
        (["learn", "posterior.py"], "must be given as FILE.py:NAME, got 'posterior.py'"),
        (["learn", "posterior.py:tarqet"], "must define tarqet, but it defines density, target"),
        (["learn", "posterior.py:number"], "number must be a Target, a log density with DIM"),
        (["learn", "posterior.py:target", "-o", "no/p.inv"], "folder that exists"),
        (["learn", "posterior.txt:target"], "there is no file posterior.txt"),
        (["sample", "posterior.py:target", "p.npz", "-o", "d.txt"], "there is no file p.npz"),
        (["report", "none.nc", "-o", "report.pdf"], "there is no file none.nc"),
        (["learn", "posterior.py:target", "--seconds", "-1"], "--seconds must be positive, got -1"),
        (["learn", "posterior.py:target", "--evaluations", "0"], "--evaluations must be positive"),
        (["learn", "posterior.py:target", "--coordinator", "a:1"], "needs --distributed"),
        (["learn", "posterior.py:target", "--distributed", "--process-id", "0"], "together"),
        (["sample", "posterior.py:target", "none.inv"], "there is no file none.inv"),
        (["sample", "posterior.py:target", "posterior.py"], "posterior.py is not"),
        (["sample", "posterior.py:target"], "Missing argument 'proposal'"),
        (["sample", "posterior.py:target", "p.inv", "--chains", "many"], "--chains"),
        (["report", "none.nc"], "there is no file none.nc"),
        (["report", "posterior.py"], "must be a NetCDF file"),
        (["experiment", "nonsense"], "must be one of proposals"),
        (["experiment"], "got none"),
        (["demo", "--seed", "-1"], "--seed"),
        (["demo", "--out", "no/where"], "folder that exists"),
        (["nonsense"], "No such command 'nonsense'"),
        (["bench", "--peers", "nonsense", "--quick"], "nonsense"),
        (["bench", "--suite", "nonsense"], "a suite must be one of default, field"),
        (["bench", "--merge", "none.json"], "must be a bench.json or its folder, got none.json"),
        (["bench", "--posteriordb", "none"], "must be a clone of posteriordb"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, words, capsys):
    assert words in refused(capsys, *arguments)


@pytest.mark.parametrize(("option", "value"), [("--chains", "0"), ("--samples", "0")])
def test_sizes_are_checked(option, value, capsys):
    inv.save("p.inv", learned(read_target("posterior.py:target")))
    line = refused(capsys, "sample", "posterior.py:target", "p.inv", option, value)
    assert "must be at least 1, got 0" in line


@pytest.mark.parametrize("name", ["draws.txt", "draws", "draws.html", "draws.h5"])
def test_draws_are_written_under_their_own_endings_alone(name, capsys):
    Path("p.inv").write_bytes(b"12345678{}")
    line = refused(capsys, "sample", "posterior.py:target", "p.inv", "-o", name)
    assert f"--out must end in .nc or .csv or .parquet, got '{name}'" in line
    assert not Path(name).exists()


@pytest.mark.parametrize("name", ["report.pdf", "report", "report.nc"])
def test_a_report_is_html(name, capsys):
    Path("d.nc").write_bytes(b"\x89HDF")
    line = refused(capsys, "report", "d.nc", "-o", name)
    assert f"--out must end in .html or .htm, got '{name}'" in line
    draws = inv.sample(inv.random_walk(inv.targets.gaussian(2), 1.0), key=0, num_chains=2,
                       num_samples=8)  # fmt: skip
    with pytest.raises(inv.InputError, match=r"must end in \.html"):
        draws.report(name)


def test_parquet_needs_its_library(monkeypatch, capsys):
    monkeypatch.setattr("involutive.cli.arguments.find_spec", lambda name: None)
    Path("p.inv").write_bytes(b"12345678{}")
    line = refused(capsys, "sample", "posterior.py:target", "p.inv", "-o", "d.parquet")
    assert "run pip install pyarrow, or write .nc or .csv" in line


@pytest.mark.usefixtures("read_once")
def test_draws_as_parquet(capsys):
    """The same numbers as in memory, in 64 bits as they were drawn, and no partial file left."""
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    inv.save("p.inv", learned(read_target("posterior.py:target")))
    size = ["--chains", "4", "--samples", "30", "--seed", "3"]
    assert cli.run(["sample", "posterior.py:target", "p.inv", "-o", "d.parquet", *size]) == 0
    assert "wrote d.parquet\n" in capsys.readouterr().out
    rows = pandas.read_parquet("d.parquet")
    assert list(rows.columns) == ["chain", "draw", "x[0]", "x[1]", "lp"] and len(rows) == 120
    kernel = inv.load("p.inv", read_target("posterior.py:target"))
    draws = inv.sample(kernel, key=3, num_chains=4, num_samples=30, progress=False)
    np.testing.assert_array_equal(rows["x[1]"], draws.positions[..., 1].ravel())
    assert not list(Path().glob("*.tmp"))


@pytest.mark.usefixtures("read_once")
def test_draws_as_a_table(capsys):
    inv.save("p.inv", learned(read_target("posterior.py:target")))
    size = ["--chains", "4", "--samples", "30", "--seed", "3"]
    assert cli.run(["sample", "posterior.py:target", "p.inv", "-o", "d.csv", *size]) == 0
    assert "wrote d.csv\n" in capsys.readouterr().out
    rows = np.genfromtxt("d.csv", delimiter=",", names=True, deletechars="")
    assert rows.dtype.names == ("chain", "draw", "x[0]", "x[1]", "lp")
    assert len(rows) == 120 and rows["chain"][-1] == 3 and rows["draw"][-1] == 29
    np.testing.assert_allclose(rows["lp"], -0.5 * (rows["x[0]"] ** 2 + rows["x[1]"] ** 2))


@pytest.mark.parametrize(
    "arguments",
    [
        ["learn", "nowhere.py:x"],
        ["sample", "posterior.py:target", "none.inv"],
        ["report", "none.nc"],
        ["experiment", "nonsense"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_mistake_is_answered_before_anything_heavy_is_imported(arguments):
    """A second of CPU at most; it was six, all imports."""
    code = (
        "import sys, time; from involutive.cli.main import run; "
        f"print(run({arguments!r}), 'jax' in sys.modules, time.process_time())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    status, jax_imported, seconds = done.stdout.split()
    assert (status, jax_imported) == ("2", "False"), done
    assert float(seconds) < 1.0 and done.stderr.count("\n") == 1


def test_learn_passes_its_checkpoint_on(monkeypatch):
    calls = []

    def learn(target, **settings):
        calls.append(settings)
        return learned(target)

    monkeypatch.setattr("involutive.learning.learn.learn", learn)
    assert cli.run(["learn", "posterior.py:target", "-o", "p.inv", "--resume", "-q"]) == 0
    assert cli.run(["learn", "posterior.py:target", "--checkpoint", "kept", "-q"]) == 0
    assert [(str(c["checkpoint"]), c["resume"]) for c in calls] == [
        ("p.inv.checkpoint", True), ("kept", False),
    ]  # fmt: skip


def test_learn_starts_from_a_proposal_of_a_similar_density(monkeypatch, capsys):
    calls = []

    def learn(target, **settings):
        calls.append(settings)
        return learned(target)

    monkeypatch.setattr("involutive.learning.learn.learn", learn)
    inv.save("old.inv", learned(inv.targets.mog2()))
    command = ["learn", "posterior.py:target", "-o", "p.inv"]
    assert cli.run([*command, "--start", "old.inv", "-q"]) == 0  # and no warning of another density
    assert cli.run([*command, "-q"]) == 0
    assert isinstance(calls[0]["start"], Learned) and calls[0]["start"].target.name == "plain"
    assert "start" not in calls[1]
    assert "there is no file none.inv" in refused(capsys, *command, "--start", "none.inv")
    inv.save("other.inv", learned(inv.targets.gaussian(3)))
    assert "of dimension 3, got 2" in refused(capsys, *command, "--start", "other.inv")


def test_the_best_proposal_of_an_interrupted_run_is_written(monkeypatch, capsys):
    def learn(target, **settings):
        kernel = learned(target)
        object.__setattr__(kernel.outcome, "ended", "interrupted")
        return kernel

    monkeypatch.setattr("involutive.learning.learn.learn", learn)
    monkeypatch.setattr(interrupts.patience, "_said", False)
    assert cli.run(["learn", "posterior.py:target", "-o", "p.inv"]) == 130
    assert "the best proposal so far is in p.inv" in capsys.readouterr().err
    assert isinstance(inv.load("p.inv", read_target("posterior.py:target")), Learned)


def test_an_error_in_the_file_names_its_line(capsys):
    Path("broken.py").write_text("x = 1\ny = undefined\n")
    line = refused(capsys, "learn", "broken.py:x")
    assert "broken.py must run without error, but line 2 raised NameError" in line


def test_a_folder_in_the_place_of_a_file_is_refused_before_work(capsys):
    Path("posterior.py").write_text("DIM = 1\n\ndef target(x):\n    return -x[0] ** 2\n")
    Path("folder.nc").mkdir()
    line = refused(capsys, "learn", "posterior.py:target", "-o", ".")
    assert "--out must name a file, got the folder ." in line
    Path("proposal.inv").write_bytes(bytes(8) + b"{")
    line = refused(capsys, "sample", "posterior.py:target", "proposal.inv", "-o", "folder.nc")
    assert "--out must name a file, got the folder folder.nc" in line


def test_a_file_that_exits_is_named(capsys):
    Path("script.py").write_text("import sys\nx = 1\nsys.exit()\n")
    line = refused(capsys, "learn", "script.py:x")
    assert "script.py must run to its end, but it called exit(None); move that under if" in line


def test_a_density_without_dim_is_told_what_is_missing(capsys):
    Path("density.py").write_text("def density(x):\n    return -(x**2).sum()\n")
    assert "set DIM" in refused(capsys, "learn", "density.py:density")


def test_ctrl_c_is_one_line(monkeypatch, capsys):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("involutive.learning.learn.learn", stop)
    monkeypatch.setattr(interrupts.patience, "_said", False)
    assert cli.run(["learn", "posterior.py:target"]) == 130
    said = capsys.readouterr().err.strip()
    assert said == "involutive: interrupted; nothing was kept; pass --resume to keep the state"


@pytest.mark.parametrize("times", [(0.3, 2.5), pytest.param(TIMES, marks=pytest.mark.deep)])
@pytest.mark.row(21)
def test_ctrl_c_ends_learning_within_two_seconds(times, tmp_path, record):
    """On a terminal, with an empty cache, imports included; the table is of the deep suite."""
    Path("hard.py").write_text("import involutive as inv\ntarget = inv.targets.funnel(10)\n")
    learn = ["learn", "hard.py:target", "--checkpoint", "kept"]
    for i, after in enumerate(times):
        ending = interrupted(learn, after, tmp_path, tmp_path / f"cache-{i}")
        print(f"{ending.after:6.1f} s: exit {ending.code} after {ending.seconds:.2f} s")
        assert ending.code == 130 and ending.seconds < 2.0, ending
        assert "involutive: interrupted" in ending.last, ending
        record(21, most_seconds=ending.seconds)
    record(21, interrupts=len(times))


def test_a_bug_of_ours_is_not_hidden(monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("involutive.learning.learn.learn", fail)
    with pytest.raises(ZeroDivisionError):
        cli.run(["learn", "posterior.py:target"])


# ── As installed ────────────────────────────────────────────────────────────────────────────────


def test_as_a_process_the_same(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "involutive.cli.main", "learn", "nowhere.py:x", "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 2 and done.stdout == "", done
    assert done.stderr.startswith("involutive: FILE must exist") and "Traceback" not in done.stderr


def test_completion_offers_the_commands(monkeypatch, capsys):
    monkeypatch.setenv("_INVOLUTIVE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "involutive ")
    monkeypatch.setenv("COMP_CWORD", "1")
    with pytest.raises(SystemExit):
        cli.main([])
    assert "experiment" in capsys.readouterr().out


def test_the_cache_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert machine.cache_folder() == tmp_path / "involutive"


def test_a_kernel_on_other_data_does_not_boast_of_its_old_figures(tmp_path):
    """Its acceptance and ESS are of the density it was learned for, until it is measured again."""
    inv.save("k.inv", learned(inv.targets.gaussian(2)))
    other = inv.Target(lambda x: -2.0 * jnp.sum((x - 1) ** 2), dim=2, name="other data")
    with pytest.warns(UserWarning, match="was saved for another density"):
        kernel = inv.load("k.inv", other)
    stale = "these metrics are of the density it was learned for (gaussian(2)), not of this one"
    assert not kernel.outcome.converged and stale in repr(kernel) and stale in kernel._repr_html_()
    draws = inv.sample(kernel, key=0, num_chains=4, num_samples=40)
    page = draws.report("r.html", kernel=kernel).read_text()
    assert "not of this one" in page
    same = inv.load("k.inv", inv.targets.gaussian(2))
    assert same.outcome.converged and "not of this one" not in repr(same)


def test_a_learned_kernel_survives_saving(getkey):
    kernel = learned(inv.targets.gaussian(2))
    inv.save("k.inv", kernel)
    found = inv.load("k.inv", kernel.target)
    assert isinstance(found, Learned) and found.warmup == 5
    assert vars(found.outcome) == vars(kernel.outcome)
    state, key = kernel.init(jnp.ones(2)), getkey()
    same = jr.clone(key)
    assert (
        found.step(key, state)[0].position.tolist() == kernel.step(same, state)[0].position.tolist()
    )
    draws = inv.sample(found, key=0, num_chains=2, num_samples=10)
    assert draws.provenance["num_warmup"] == 5


# ── pools of workers ────────────────────────────────────────────────────────────────────────────

LIKELIHOOD = """
import os
import threading
import numpy as np
import involutive as inv

LOCK = threading.Lock()  # cannot be sent: every worker runs this file

def log_prob(theta):
    with LOCK, open("pids", "a") as file:
        file.write(f"{os.getpid()}\\n")
    return -0.5 * float(theta @ theta)

target = inv.Target(log_prob, dim=2, backend="numpy")
"""


def draws_of(source, **pool):
    """Draws of `involutive sample` with a random walk, and the processes that were called."""
    from involutive.cli.sampling import SamplingPlan, draw

    inv.save("p.inv", inv.random_walk(read_target(source), 0.7))
    Path("pids").unlink(missing_ok=True)
    plan = SamplingPlan(0, 4, 10, None, 1, None, None, False, **pool)
    draw(source, Path("p.inv"), Path("draws.nc"), plan, Speech(quiet=True, json=False))
    pids = Path("pids").read_text().split()
    return inv.interop.arviz.read_draws("draws.nc").positions, pids


@pytest.mark.deep  # every worker imports this library, because the file does
@pytest.mark.parametrize("way", ["workers", "dask"])
def test_workers_call_a_numpy_density(tmp_path, way):
    """The same draws as without, and none of the calls of the run in this process."""
    import os

    from involutive.bench.pools.measure import cluster

    (tmp_path / "likelihood.py").write_text(
        LIKELIHOOD.replace('"pids"', repr(str(tmp_path / "pids")))
    )
    source = f"{tmp_path / 'likelihood.py'}:target"
    alone, _ = draws_of(source)
    if way == "workers":
        spread, pids = draws_of(source, workers=2)
    else:
        pytest.importorskip("distributed")
        with cluster(2) as client:
            spread, pids = draws_of(source, dask=client.scheduler.address)
    assert np.array_equal(spread, alone)
    assert sum(pid != str(os.getpid()) for pid in pids) >= 4 * 10


@pytest.mark.deep
def test_workers_call_a_numpy_density_for_its_evidence(tmp_path, capsys):
    """The same log Z as without, and most calls in other processes."""
    import os

    path = tmp_path / "likelihood.py"
    path.write_text(LIKELIHOOD.replace('"pids"', repr(str(tmp_path / "pids"))))
    law = inv.GaussianMixture(np.ones(1), np.zeros((1, 2)), 1.2 * np.eye(2)[None])
    target = read_target(f"{path}:target")
    inv.save("p.inv", inv.Kernel(target, inv.FunctionBlock(Identity((2,))), law))
    found = []
    for pool in ([], ["--workers", "2"]):
        (tmp_path / "pids").unlink()
        command = ["evidence", f"{path}:target", "p.inv", "--samples", "1000", "--json"]
        assert cli.run([*command, *pool]) == 0
        pids = (tmp_path / "pids").read_text().split()
        found.append((last_json(capsys)["log_z"], np.mean([p != str(os.getpid()) for p in pids])))
    (alone, none), (spread, most) = found
    assert alone == spread == pytest.approx(np.log(2 * np.pi), abs=0.03)
    assert none == 0 and most > 0.9


def test_no_scheduler_at_the_address_of_dask(tmp_path, monkeypatch, capsys):
    from involutive.cli import workers

    distributed = pytest.importorskip("distributed")

    def refuse(address, timeout):
        raise OSError(f"no scheduler\nat {address}")

    monkeypatch.setattr(distributed, "Client", refuse)
    with pytest.raises(inv.InputError, match="must be the address of a Dask scheduler, got tcp:1"):
        workers._client("tcp:1")


def test_workers_are_for_numpy_densities(capsys):
    inv.save("p.inv", learned(read_target("posterior.py:target")))
    for command in (["learn", "posterior.py:target"], ["evidence", "posterior.py:target", "p.inv"]):
        assert "are for NumPy densities" in refused(capsys, *command, "--workers", "2")


def test_the_doctor_says_what_is_there_and_what_is_missing(capsys, monkeypatch):
    from involutive.cli import doctor

    real = doctor.find_spec
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "pymc" else real(name))
    assert cli.run(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["involutive"] == inv.__version__
    assert {"devices", "cores", "float width", "compiled programs"} == set(found["JAX"])
    lost = {row["package"]: row["remedy"] for row in found["missing"]}
    assert lost["pymc"] == "pip install 'pymc'" and "numpyro" not in lost
    assert cli.run(["doctor"]) == 0
    assert "PyMC models as targets: pip install 'pymc'" in capsys.readouterr().out


def test_the_doctor_advises_where_programs_cannot_be_kept(tmp_path, monkeypatch):
    from involutive.cli import doctor

    assert doctor.advice(tmp_path / "new", ["cpu"]) == []
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    (line,) = doctor.advice(tmp_path / "new", ["cpu"])
    assert "JAX_COMPILATION_CACHE_DIR" in line


def test_a_plan_says_the_command_that_repeats_it():
    from involutive.cli.sampling import SamplingPlan

    plan = SamplingPlan(3, 8, 100, None, 2, 500.0, None, False)
    said = plan.command("a.py:t", Path("p.inv"), Path("d.nc"))
    assert said.startswith("involutive sample a.py:t p.inv -o d.nc --seed 3 --chains 8")
    assert said.endswith("--samples 100 --thin 2 --ess 500")

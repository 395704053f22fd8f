"""Rows 21 and 22: Ctrl-C at random times in `learn`, and budgets that bind."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import involutive as inv
from involutive.bench.budgets import EVALUATIONS, SECONDS, Kept, of_evaluations
from involutive.bench.interrupts import Ending, interrupts
from involutive.cli.interrupts import as_options, patience

deep = pytest.mark.deep


@deep
@pytest.mark.row(21)
def test_fifty_interrupts_at_random_times(tmp_path, record):
    """Exit 130 within two seconds, one line, no core; what was kept resumes to the same bits."""
    seen = list(interrupts(50, 0, tmp_path, 40.0))
    record(21, interrupts=len(seen), most_seconds=max(ending.seconds for ending in seen))
    assert [ending for ending in seen if ending.faults] == []
    assert not list(tmp_path.glob("core*"))


@pytest.mark.parametrize("module", ["involutive.cli", "involutive.cli.main"])
def test_an_interrupt_during_the_first_imports_is_one_line(module):
    """Before `main` has installed its handler; only in a process that is the command."""
    code = (
        "import os, signal, sys, time; sys.argv = [{name!r}]; import {module}; "
        "os.kill(os.getpid(), signal.SIGINT); time.sleep(5)"
    )

    def run(name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code.format(name=name, module=module)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    done = run("/usr/bin/involutive")
    assert done.returncode == 130 and done.stdout == ""
    assert done.stderr.strip() == "involutive: interrupted before it began; nothing was kept"
    other = run("somebody.py")  # a program that imports it keeps Python's own handler
    assert other.returncode == -signal.SIGINT and "KeyboardInterrupt" in other.stderr


def test_a_bad_ending_is_seen():
    early = Ending(0.05, -signal.SIGINT, 0.01, "", "")
    assert early.too_early and not early._replace(said="Traceback").too_early
    good = Ending(1.0, 130, 0.5, "involutive: interrupted; kept it", "involutive: interrupted")
    assert good.faults == []
    for bad in (
        good._replace(code=-11), good._replace(seconds=2.5), good._replace(last="Aborted"),
        good._replace(said="Traceback (most recent call last)"),
    ):  # fmt: skip
        assert len(bad.faults) == 1


def test_time_that_is_up_before_the_first_draw_is_no_fault_of_the_density():
    kernel = inv.learn(inv.targets.funnel(3), key=0, budget=1e-4, progress=False)
    assert kernel.outcome.ended == "budget" and not kernel.outcome.converged
    assert "allow at least" in kernel.outcome.advice
    draws = inv.sample(kernel, key=1, num_chains=4, num_samples=8, progress=False)
    assert np.isfinite(draws.positions).all()


@pytest.mark.parametrize(
    "count", [10, 3_000, 10_000, *(pytest.param(n, marks=deep) for n in EVALUATIONS)]
)
@pytest.mark.row(22)
def test_evaluations_are_kept(count, record):
    for found in of_evaluations(count):
        record(22, budgets=1, most_evaluations_over=max(found.spent - found.budget, 0))
        assert found.kept, found
        enough = found.ended == "finished" or not found.advice  # little may be enough
        assert enough or "allow at least" in found.advice


@deep
@pytest.mark.row(22)
@pytest.mark.parametrize("seconds", SECONDS)
def test_seconds_are_kept(seconds, record):
    """In a process of its own, as a user has it: the suite checks types while JAX traces."""
    code = (
        f"from involutive.bench.budgets import of_seconds; print(*of_seconds({seconds}), sep='|')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    what, *numbers, ended, advice = done.stdout.strip().split("|")
    found = Kept(what, *map(float, numbers), ended, advice)
    record(22, budgets=1, most_seconds_over=max(found.spent - found.budget, 0.0))
    assert found.kept, found


def test_the_command_to_go_on_repeats_what_was_given():
    given = {"seconds": 30.0, "workers": None, "seed": 7, "x64": True, "dask": None, "quiet": False}
    assert as_options(given) == " --seconds 30.0 --seed 7 --x64"


def test_an_interrupt_that_python_would_drop_is_raised_again(capfd):
    """Ctrl-C within a destructor, or in JAX's callback of the garbage collector."""

    class Dropped:
        def __del__(self):
            raise KeyboardInterrupt

    def work():
        with patience.raising():
            Dropped()
            for _ in range(1000):
                time.sleep(0.001)

    hook = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt):
        work()
    assert capfd.readouterr().err == "" and sys.unraisablehook is hook

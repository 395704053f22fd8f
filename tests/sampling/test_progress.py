"""One line of progress: what it says, where it is shown, and that it tells the truth."""

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import involutive as inv
from involutive.sampling import progress as module
from involutive.sampling import screens
from involutive.sampling.mixing import ess_share
from involutive.sampling.progress import Progress, current, hidden


class Paper(screens.Screen):
    """A screen that remembers."""

    ticks = False

    def __init__(self):
        self.lines, self.last = [], ""

    def show(self, line):
        self.lines.append(line)

    def close(self, line):
        self.last = line


@pytest.fixture
def paper(monkeypatch):
    page = Paper()
    monkeypatch.setattr(module, "screen", lambda: page)
    return page


def test_nothing_is_drawn_after_silence(paper, monkeypatch):
    monkeypatch.setattr(module, "_SILENCED", threading.Event())
    begun, may_end = threading.Event(), threading.Event()

    def slow(line):
        begun.set()
        may_end.wait(5)
        paper.lines.append(line)

    with Progress("learning") as bar:
        drawn = len(paper.lines)
        monkeypatch.setattr(paper, "show", slow)
        drawer = threading.Thread(target=bar._redraw)
        drawer.start()
        begun.wait(5)
        threading.Timer(0.05, may_end.set).start()
        module.silence()
        assert len(paper.lines) == drawn + 1  # the line that was being drawn is finished
        bar._redraw()
        assert len(paper.lines) == drawn + 1
        drawer.join()
    with Progress("sampling"):
        assert len(paper.lines) == drawn + 1


def test_stages_in_plain_words_with_the_time_left_for_the_whole(paper, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock[0])
    with Progress("learning") as bar:
        bar.stage("finding modes", 1, 4)
        clock[0] = 10.0
        bar.update(fraction=1.0, modes=3, evaluations=2_000, of=10_000)
        assert "learning: stage 1 of 4, finding modes" in paper.lines[-1] and "25%" in bar.line()
        assert "0:10 so far, about 0:30 left" in bar.line()
        assert "3 modes · 2,000 of 10,000 evaluations" in bar.line()
        bar.stage("refining", 4, 4)  # two stages were not needed
        bar.update(fraction=1.0, ess_per_draw=0.431)
        assert "stage 4 of 4, refining" in bar.line() and "0.431 ESS per draw" in bar.line()
        assert "99%" in bar.line() and "100%" not in "".join(paper.lines)
        bar.update(left=90.0, modes=None)
        assert "about 1:30 left" in bar.line() and "modes" not in bar.line()
    assert paper.last.startswith("learning: done after 0:10")
    assert bar.line(width=20).endswith("…") and len(bar.line(width=20)) == 20


def test_work_inside_work_moves_the_outer_line_alone(paper):
    with Progress("learning") as bar:
        bar.stage("training", 2, 2)
        with Progress("fitting", 10) as inner:
            inner.stage("unseen", 1, 1)
            inner.update(5, held_out=3.0)
        assert bar.overall() == 0.75
    assert not any("fitting" in line or "held" in line for line in [*paper.lines, paper.last])


def test_steady_work_names_what_runs_inside_and_keeps_its_share(paper):
    with Progress("experiments", steady=True) as bar:
        bar.stage("recipe", 2, 4)
        with Progress("learning", 10) as inner:
            inner.update(9)
            assert bar.overall() == 0.25 and bar.line().endswith("now learning")
        assert "now" not in bar.line()


def test_watched_metrics_are_asked_for_when_the_line_is_drawn(paper):
    spent = [5]
    with Progress("learning", most=300.0) as bar:
        bar.stage("finding modes", 1, 4)
        bar.watch(lambda: {"evaluations": spent[0], "of": 1_000})
        spent[0] = 70
        assert "70 of 1,000 evaluations" in bar.line() and "5:00 at most" in bar.line()
        bar.watch(lambda: {"evaluations": 2_000_000, "of": None})
        assert "2,000,000 evaluations" in bar.line()


def test_learning_says_where_it_is(paper):
    """Stage i of n, time, modes, effective draws per draw, evaluations of how many; no jargon."""
    settings = inv.LearnSettings(
        components=(2,), climbers=64, search_draws=512, particles=256, fit_draws=4096
    )
    budget = inv.Budget(evaluations=1e6)
    inv.learn(inv.targets.mog2_1d(), key=5, settings=settings, budget=budget)
    lines = [*paper.lines, paper.last]
    assert any("learning: stage 1 of 4, finding modes" in line for line in lines)
    assert any("stage 4 of 4, measuring the kernel" in line for line in lines)
    final = paper.last
    assert "2 modes" in final and "ESS per draw" in final and "of 1,000,000 evaluations" in final
    assert all("so far" in line for line in paper.lines)
    assert not any("held_out" in line or "100%" in line for line in lines)
    shares = [int(line.split("%")[0].split()[-1]) for line in lines if "%" in line]
    assert shares == sorted(shares)  # it never goes back


def test_a_benchmark_has_stages(paper, monkeypatch):
    from involutive.bench import compare

    def failed(peer, target, seed, *_):
        return {"peer": peer, "target": target, "seed": seed, "failed": "no"}

    monkeypatch.setattr(compare, "one", failed)
    compare.run(targets=["mog6"], peers=["involutive", "nuts_64"])
    assert any("stage 2 of 2, nuts_64 on mog6 ━" in line for line in paper.lines)


def test_experiments_have_stages(paper, monkeypatch, tmp_path):
    from involutive.cli import main as cli
    from involutive.experiments.framework import ExperimentRun

    def run(name, **_):
        return ExperimentRun(name, tmp_path, [], {}, [], 0.0)

    monkeypatch.setattr("involutive.experiments.run_experiment", run)
    assert cli.run(["experiment", "all", "--quick", "--out", str(tmp_path)]) == 0
    count = paper.lines[1].split("stage 1 of ")[1].split(",")[0]
    assert any(f"stage {count} of {count}, " in line for line in paper.lines)


def test_nothing_is_shown_where_it_is_hidden_or_not_asked_for(paper):
    with hidden(), Progress("a", 2) as bar:
        bar.update(1)
    with Progress("b", 2, progress=False) as bar:
        bar.update(1)
    assert paper.lines == [] and paper.last == ""


def test_an_error_does_not_end_as_done(paper):
    with pytest.raises(ValueError), Progress("a", 2):
        raise ValueError
    assert paper.last.startswith("a: stopped after")


def test_sampling_shows_effective_draws_next_to_acceptance(paper):
    kernel = inv.random_walk(inv.targets.gaussian(2), 1.5)
    inv.sample(kernel, key=0, num_chains=8, num_samples=300, num_warmup=20)
    assert any("during warm-up" in line for line in paper.lines)
    shown = [line for line in [*paper.lines, paper.last] if "acceptance" in line]
    assert shown and all("effective draws (estimate)" in line for line in shown)
    assert "warm-up" not in paper.last


def autoregressive(rho, chains=16, draws=4000):
    noise = np.random.default_rng(0).normal(size=(chains, draws, 1))
    out = noise.copy()
    for i in range(1, draws):
        out[:, i] = rho * out[:, i - 1] + np.sqrt(1 - rho**2) * noise[:, i]
    return out


def test_the_estimate_is_of_the_right_size():
    """(1 - ρ) / (1 + ρ) for x; |x|² decorrelates faster. Chains in two places count for nothing."""
    assert ess_share(autoregressive(0.0)) > 0.8
    assert 0.5 < ess_share(autoregressive(0.8)) / (0.2 / 1.8) < 2.0
    apart = autoregressive(0.0)
    apart[:8] += 10.0
    assert ess_share(apart) < 0.03
    assert ess_share(np.zeros((4, 10, 2))) == 0.0


# ── Terminals, pipes, notebooks ─────────────────────────────────────────────────────────────────

WORK = """
import time
from involutive.sampling.progress import Progress
with Progress("learning") as bar:
    bar.stage("finding modes", 1, 2)
    bar.update(fraction=0.5, modes=3)
    time.sleep({pause})
    bar.stage("refining", 2, 2)
    bar.update(fraction=0.5)
    time.sleep({pause})
"""
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(module.__file__).parents[2])}


@pytest.mark.parametrize(("every", "lines"), [(0.2, True), (10.0, False)])
def test_a_pipe_gets_a_line_now_and_then(every, lines, capfd, monkeypatch):
    monkeypatch.setattr(screens, "PIPED", every)
    monkeypatch.setattr(screens, "_in_notebook", lambda: False)
    exec(WORK.format(pause=0.6))
    said = capfd.readouterr().err.splitlines()
    assert bool(said) is lines
    if lines:
        assert "stage 1 of 2, finding modes" in said[0] and len(said) < 10
        assert said[-1].startswith("learning: done after")


def screens_of(folder, code, columns, seconds):
    """The lines on a terminal of so many columns while a script runs, ten times per second.

    Whatever is written to it, however briefly it shows, is in the file `stream` of `folder`.
    """
    script, session = folder / "work.py", f"{folder.name}-{os.getpid()}"
    script.write_text(code)
    tmux = ["tmux", "-L", session]
    size = ["-x", str(columns), "-y", "24"]
    begin = folder / "begin"  # once the pipe is laid
    wait = f"while ! test -e {begin}; do sleep 0.05; done"
    command = f"{wait}; {sys.executable} {script}; echo status $?; sleep 60"
    subprocess.run([*tmux, "new-session", "-d", *size, command], check=True, env=ENVIRONMENT)
    subprocess.run([*tmux, "pipe-pane", f"cat > {folder / 'stream'}"], check=True)
    begin.touch()
    seen = []
    try:
        for _ in range(10 * seconds):
            screen = subprocess.run([*tmux, "capture-pane", "-p"], capture_output=True, text=True)
            seen.append([line for line in screen.stdout.splitlines() if line.strip()])
            if seen[-1] and seen[-1][-1].startswith("status"):
                break
            time.sleep(0.1)
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)
    return seen


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_terminal_keeps_one_line(tmp_path):
    """In a terminal of 100 columns: redrawn in place, and the last state stays."""
    seen = screens_of(tmp_path, WORK.format(pause=1.5), columns=100, seconds=40)
    assert seen[-1] == ["learning: done after 0:03 · 3 modes", "status 0"], seen[-1]
    flat = ["\n".join(lines) for lines in seen]
    assert any("stage 1 of 2, finding modes" in text for text in flat)
    assert any("stage 2 of 2, refining" in text for text in flat)
    assert all(len(lines) <= 2 for lines in seen), seen  # never a second line beside it


LEARN = """
import involutive as inv
settings = inv.LearnSettings(
    components=(2,), climbers=64, search_draws=512, particles=256, fit_draws=4096
)
kernel = inv.learn(inv.targets.mog2_1d(), key=5, settings=settings)
"""


@pytest.mark.deep
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_learning_in_a_terminal(tmp_path):
    """One line of 160 columns that moves through the stages, and stays with what was reached."""
    seen = screens_of(tmp_path, LEARN, columns=160, seconds=120)
    stream = (tmp_path / "stream").read_text()
    assert "stage 1 of 4, finding modes" in stream and "5:00 at most" in stream
    assert "stage 4 of 4, measuring the kernel" in stream
    assert seen[-1][0].startswith("learning: done after") and "2 modes" in seen[-1][0]
    assert "evaluations" in seen[-1][0] and "ESS per draw" in seen[-1][0]
    assert seen[-1][1:] == ["status 0"] and all(len(lines) <= 2 for lines in seen)


@pytest.mark.deep
def test_learning_in_a_notebook(tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(LEARN)])
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute()
    outputs = book.cells[0].outputs
    assert len(outputs) == 1, outputs
    text = outputs[0]["data"]["text/plain"]
    assert text.startswith("learning: done after") and "2 modes" in text and "evaluations" in text


@pytest.mark.deep
def test_a_saved_notebook_keeps_the_last_state(tmp_path, monkeypatch):
    """Without ipywidgets: one text output, no warning."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    cell = nbformat.v4.new_code_cell(WORK.format(pause=0.7))
    book = nbformat.v4.new_notebook(cells=[cell])
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
    outputs = book.cells[0].outputs
    assert len(outputs) == 1, outputs
    assert outputs[0]["data"]["text/plain"].startswith("learning: done after 0:01 · 3 modes")


def test_an_interrupt_of_the_first_line_ends_the_work(monkeypatch):
    """The `with` has not begun then, and nothing else would end the line."""

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "_redraw", interrupted)
    with pytest.raises(KeyboardInterrupt), Progress("work", progress=True):
        pass
    assert current() is None

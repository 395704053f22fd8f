"""A run that was stopped and resumed has the bits of one that was not."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import involutive as inv
from involutive.sampling import checkpoint as module
from involutive.sampling.devices import Share, cut
from involutive.sampling.runner import Chains
from involutive.sampling.same_run import saved_block

CHAINS, SAMPLES = 5, 60
TARGET = inv.targets.mog2()
KERNEL = inv.Kernel(TARGET, inv.paper_network(0, 2, 2), inv.standard_normal(2))
SETTINGS: dict[str, Any] = {"key": 7, "num_chains": CHAINS, "num_warmup": 9, "thin": 2, "block": 4}
FIELDS = (
    "positions", "log_density", "accepted", "acceptance_rate", "nonfinite", "irreversible",
    "stopped", "diverging",
)  # fmt: skip


def run(num_samples: int = SAMPLES, **changes: Any) -> inv.Draws:
    return inv.sample(KERNEL, num_samples=num_samples, **(SETTINGS | changes))


@pytest.fixture(scope="module")
def whole() -> inv.Draws:
    """The run that nothing interrupts."""
    return run()


@pytest.fixture(autouse=True)
def every_chunk(monkeypatch):
    """Write after every chunk, and double every chunk, so that files do not depend on time."""
    monkeypatch.setattr(module, "INTERVAL", 0.0)
    monkeypatch.setattr("involutive.sampling.run.SHORT", float("inf"))


@pytest.fixture(autouse=True)
def python_signals():
    """Ctrl-C as Python sets it up, also where the shell started the suite with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def assert_same(found: inv.Draws, expected: inv.Draws) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)


def test_a_checkpoint_changes_nothing(whole, tmp_path):
    assert_same(run(checkpoint=tmp_path / "run"), whole)
    assert_same(inv.merge(tmp_path / "run", TARGET), whole)


def test_a_longer_run_extends_a_shorter_one(whole, tmp_path):
    short = run(33, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(short.positions, whole.positions[:, :33])
    assert_same(run(checkpoint=tmp_path / "run", resume=True), whole)
    again = run(33, checkpoint=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(again.positions, short.positions)


def test_a_finished_run_takes_no_step(tmp_path, monkeypatch, whole):
    run(checkpoint=tmp_path / "run")
    monkeypatch.setattr(Chains, "advance", None)
    assert_same(run(checkpoint=tmp_path / "run", resume=True), whole)


def test_resume_begins_a_run_where_there_is_none(whole, tmp_path):
    assert_same(run(checkpoint=tmp_path / "a" / "b", resume=True), whole)


def interrupting(monkeypatch: Any, number: int, calls: int) -> None:
    """Send a signal to this process during one call of `advance`."""
    advance, count = Chains.advance, iter(range(1000))

    def stopped(self: Chains, size: int, into: Any = None) -> Any:
        if next(count) == calls:
            signal.raise_signal(number)
        return advance(self, size, into)

    monkeypatch.setattr(Chains, "advance", stopped)


def test_ctrl_c_saves_a_prefix_and_says_how_to_go_on(whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        interrupting(patch, signal.SIGINT, 1)
        with pytest.warns(UserWarning, match=r"SIGINT: 16 draws .* saved in .*resume=True"):
            part = run(checkpoint=tmp_path / "run")
    assert part.provenance["interrupted"]
    assert part.num_samples == 16
    np.testing.assert_array_equal(part.positions, whole.positions[:, :16])
    assert_same(run(checkpoint=tmp_path / "run", resume=True), whole)


def test_sigterm_saves_and_exits(whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        interrupting(patch, signal.SIGTERM, 2)
        with (
            pytest.warns(UserWarning, match="SIGTERM: 48 draws"),
            pytest.raises(SystemExit) as end,
        ):
            run(checkpoint=tmp_path / "run")
    assert end.value.code == 143
    assert_same(run(checkpoint=tmp_path / "run", resume=True), whole)


def test_a_signal_in_the_warm_up_is_resumed_there(whole, tmp_path, monkeypatch):
    monkeypatch.setattr("involutive.sampling.run.FIRST_CHUNK", 4)
    with monkeypatch.context() as patch:
        interrupting(patch, signal.SIGTERM, 0)
        with pytest.warns(UserWarning, match="SIGTERM"), pytest.raises(SystemExit):
            run(checkpoint=tmp_path / "run")
    started = Chains.start
    with monkeypatch.context() as patch:
        patch.setattr(Chains, "start", None)  # it must not begin again
        assert_same(run(checkpoint=tmp_path / "run", resume=True), whole)
    assert Chains.start is started


def test_ctrl_c_without_a_checkpoint_returns_what_was_drawn(whole, monkeypatch):
    interrupting(monkeypatch, signal.SIGINT, 1)
    part = run()
    np.testing.assert_array_equal(part.positions, whole.positions[:, :16])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_stops_at_once(monkeypatch):
    def twice(*_: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the second signal must interrupt")

    monkeypatch.setattr(Chains, "advance", twice)
    with pytest.raises(inv.InputError, match="interrupted before the first chunk"):
        run()


def test_threads_leave_signals_alone(whole):
    found: list[inv.Draws] = []
    worker = threading.Thread(target=lambda: found.append(run()))
    worker.start()
    worker.join()
    assert_same(found[0], whole)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"key": 8}, r"has key=\[0, 7\], got key=\[0, 8\]"),
        ({"num_chains": 6}, "has num_chains=5, got num_chains=6"),
        ({"num_warmup": 8}, "has num_warmup=9, got num_warmup=8"),
        ({"thin": 1}, "has thin=2, got thin=1"),
        ({"block": 8}, "has block=4, got block=8"),
        ({"initial": np.zeros((5, 2))}, "has another initial; pass what it began with"),
        ({"resume": False}, "already holds a run; pass resume=True"),
    ],
)
def test_another_run_is_refused(changes, words, tmp_path):
    run(40, checkpoint=tmp_path / "run")
    with pytest.raises(inv.InputError, match=words):
        run(**({"checkpoint": tmp_path / "run", "resume": True} | changes))


def test_another_kernel_or_density_is_refused(tmp_path):
    run(40, checkpoint=tmp_path / "run")
    again = SETTINGS | {"checkpoint": tmp_path / "run", "resume": True}
    guarded = inv.Kernel(TARGET, KERNEL.involution, KERNEL.auxiliary, guard=1e-6)
    with pytest.raises(inv.InputError, match="has another kernel"):
        inv.sample(guarded, num_samples=50, **again)
    moved = inv.Target(lambda x: TARGET.log_density(x - 1), 2, name="moved")
    other = inv.Kernel(moved, KERNEL.involution, KERNEL.auxiliary)
    words = r"another density \(mog2\): log density .* then and .* now"
    with pytest.raises(inv.InputError, match=words):
        inv.sample(other, num_samples=50, **again)
    with pytest.raises(inv.InputError, match=words):
        inv.merge(tmp_path / "run", moved)


def test_where_a_checkpoint_cannot_be(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(inv.InputError, match="checkpoint must name a folder, got the file"):
        run(checkpoint=tmp_path / "file")
    with pytest.raises(inv.InputError, match="could not make the folder"):
        run(checkpoint=tmp_path / "file" / "below")
    with pytest.raises(inv.InputError, match="store must name a folder, got the file"):
        run(store=tmp_path / "file")
    with pytest.raises(inv.InputError, match="resume=True needs checkpoint="):
        run(resume=True)
    with pytest.raises(inv.InputError, match="there is no checkpoint"):
        inv.merge(tmp_path / "none", TARGET)


def spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(content)


def test_a_damaged_file_costs_only_its_draws(whole, tmp_path):
    run(checkpoint=tmp_path / "run")
    files = sorted((tmp_path / "run").glob("draws-*.inv"))
    assert len(files) == 3
    spoil(files[1])
    with pytest.warns(UserWarning, match="SHA-256 does not match; draws from 16 on are made again"):
        assert_same(run(checkpoint=tmp_path / "run", resume=True), whole)
    with pytest.raises(inv.InputError, match="has dim=2, got 3"):
        inv.merge(tmp_path / "run", inv.targets.gaussian(3))


def test_files_of_another_run_are_not_used(whole, tmp_path):
    run(40, checkpoint=tmp_path / "other", key=8)
    run(48, checkpoint=tmp_path / "run")
    mine = next((tmp_path / "run").glob("draws-*-0000000000-*.inv"))
    theirs = next((tmp_path / "other").glob("draws-*-0000000000-*.inv"))
    mine.write_bytes(theirs.read_bytes())
    with pytest.warns(UserWarning, match="belongs to another run; draws from 0 on"):
        assert_same(run(checkpoint=tmp_path / "run", resume=True), whole)


def test_the_file_that_names_the_run_has_a_spare(whole, tmp_path):
    run(40, checkpoint=tmp_path / "run")
    spoil(tmp_path / "run" / "run.inv")
    with pytest.warns(UserWarning, match=r"using the previous good file .*run.inv.bak"):
        assert_same(run(checkpoint=tmp_path / "run", resume=True), whole)


def test_goals_are_looked_at_where_they_would_have_been(tmp_path, monkeypatch):
    goal = inv.Until(ess=120.0, max_samples=400)
    settings = SETTINGS | {"thin": 1}
    kernel = inv.random_walk(inv.targets.gaussian(2), 1.5)
    straight = inv.sample(kernel, until=goal, **settings)
    with monkeypatch.context() as patch:
        interrupting(patch, signal.SIGINT, 3)
        with pytest.warns(UserWarning, match="SIGINT"):
            inv.sample(kernel, until=goal, checkpoint=tmp_path / "run", **settings)
    settings |= {"checkpoint": tmp_path / "run", "resume": True}
    assert_same(inv.sample(kernel, until=goal, **settings), straight)
    assert_same(inv.sample(kernel, until=goal, **settings), straight)


def share(monkeypatch: Any, ids: range, processes: int) -> None:
    """Let this process run only some chains, as one of several would."""
    found = Share(ids, None, processes, SETTINGS["block"])
    monkeypatch.setattr("involutive.sampling.sample.share_of", lambda *_: found)


def test_shares_merge_and_resume_under_another_count(whole, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    for ids, count in zip(cut(CHAINS, 4, 2), (35, 50), strict=True):
        share(monkeypatch, ids, 2)
        part = run(count, checkpoint=folder)
        np.testing.assert_array_equal(part.positions, whole.positions[list(ids), :count])
    merged = inv.merge(folder, TARGET)
    np.testing.assert_array_equal(merged.positions, whole.positions[:, :35])
    share(monkeypatch, range(CHAINS), 1)
    assert_same(run(checkpoint=folder, resume=True), whole)
    assert_same(inv.merge(folder, TARGET), whole)


def test_a_run_is_resumed_in_blocks_of_the_width_it_began_with(whole, tmp_path):
    folder = tmp_path / "run"
    run(20, checkpoint=folder)
    found = run(checkpoint=folder, resume=True, block=None)
    assert_same(found, whole)
    assert found.provenance["block"] == SETTINGS["block"]
    assert saved_block(tmp_path / "other") is None


def test_a_missing_share_cannot_be_merged(tmp_path, monkeypatch):
    share(monkeypatch, range(4), 2)
    run(40, checkpoint=tmp_path / "run")
    with pytest.raises(inv.InputError, match="draws of all 5 chains to be merged"):
        inv.merge(tmp_path / "run", TARGET)


def test_shares_are_cut_between_blocks():
    assert cut(70, 32, 2) == [range(32), range(32, 70)]
    assert cut(128, 32, 4) == [range(i, i + 32) for i in (0, 32, 64, 96)]
    with pytest.raises(inv.InputError, match="at most 2 processes, or begin the run with block=16"):
        cut(64, 32, 4)


def test_until_needs_one_process(monkeypatch):
    share(monkeypatch, range(4), 2)
    with pytest.raises(inv.InputError, match="until looks at all chains together, got 2 processes"):
        inv.sample(KERNEL, until=inv.Until(ess=10.0), **SETTINGS)


def test_a_density_that_changes_is_refused():
    rng = np.random.default_rng(0)
    noisy = inv.Target(lambda x: -jnp.sum(x**2) + rng.normal(), 2, name="noisy")
    words = "noisy must give the same value at the same position, got .* and then .*; take random"
    with pytest.raises(inv.InputError, match=words):
        inv.sample(inv.random_walk(noisy, 1.0), **SETTINGS)


def test_a_density_that_leaks_is_refused():
    kept: list[Any] = []

    def leaky(x: Any) -> Any:
        kept.append(x)
        return -jnp.sum(kept[0] ** 2)

    target = inv.Target(leaky, 2)
    with pytest.raises(inv.InputError, match=r"leaky must give .* keeps a value from an earl"):
        inv.sample(inv.random_walk(target, 1.0), **SETTINGS)


def test_a_density_that_is_nowhere_finite_has_no_start():
    nowhere = inv.Target(lambda x: jnp.where(jnp.sum(x**2) < 0, 0.0, -jnp.inf), 2)
    with pytest.raises(inv.InputError, match="every chain must start at a finite log density"):
        inv.sample(inv.random_walk(nowhere, 1.0), **SETTINGS)


def test_leftovers_of_a_killed_write_are_swept_away(tmp_path):
    run(40, checkpoint=tmp_path / "run")
    left = tmp_path / "run" / f".draws-{0:08d}-{CHAINS:08d}-0000000040-0000000050.inv.1.tmp"
    left.write_bytes(b"half")
    run(checkpoint=tmp_path / "run", resume=True)
    assert not any(name.endswith(".tmp") for name in os.listdir(tmp_path / "run"))

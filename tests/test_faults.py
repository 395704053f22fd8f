"""Kills, full disks, damaged and hostile files: rows 11 to 14 and 17 of the reliability table.

Each row has a fast slice and, marked `deep`, its full size.
"""

import json
import os
import pickle
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import involutive as inv
import longrun
from involutive.sampling import checkpoint as module
from involutive.sampling import run as run_module
from involutive.sampling import sample as sample_module
from involutive.storage.format import MAX_HEADER, read_tensors, write_tensors

deep = pytest.mark.deep
WORKER = [sys.executable, longrun.__file__]
SAMPLES = 60


def sized(fast: int, full: int) -> Any:
    """A count for the fast suite, and the one the reliability table asks for."""
    return pytest.mark.parametrize("times", [fast, pytest.param(full, marks=deep)])


@pytest.fixture(scope="module")
def kernel() -> inv.Kernel:
    return longrun.kernel()


@pytest.fixture
def small_chunks(monkeypatch):
    """A file after every four draws, as the worker writes them."""
    monkeypatch.setattr(module, "INTERVAL", 0.0)
    monkeypatch.setattr(run_module, "FIRST_CHUNK", 4)
    monkeypatch.setattr(sample_module, "CHUNK", 4)


def sample(kernel: inv.Kernel, **changes: Any) -> inv.Draws:
    return inv.sample(kernel, num_samples=SAMPLES, **(longrun.SETTINGS | changes))


@pytest.fixture(scope="module")
def expected(kernel) -> inv.Draws:
    """The run that nothing interrupts."""
    return sample(kernel)


# ── Row 11: SIGKILL ─────────────────────────────────────────────────────────────────────────────


def worker(folder: Path, cache: Path) -> subprocess.Popen:
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(cache)}
    return subprocess.Popen(
        [*WORKER, str(folder), "400", "--plain"], stdout=subprocess.PIPE, text=True, env=environment
    )


def kill_later(process: subprocess.Popen, folder: Path, delay: float) -> bool:
    """Kill a worker `delay` seconds after it writes its first new file; whether it still ran."""
    before = len(list(folder.glob("*.inv"))) if folder.exists() else 0
    while process.poll() is None:
        if folder.exists() and len(list(folder.glob("*.inv"))) > before:
            time.sleep(delay)
            break
        time.sleep(0.01)
    process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


@deep
@pytest.mark.row(11)
def test_a_killed_run_resumes_to_the_same_bits(tmp_path, record, times=100):
    chance, kills, rounds = random.Random(0), 0, 0
    undisturbed = inv.sample(longrun.kernel(plain=True), num_samples=400, **longrun.SETTINGS)
    finished = longrun.draws_hash(undisturbed)
    while kills < times:
        folder, rounds = tmp_path / f"run-{rounds}", rounds + 1
        while kills < times and kill_later(
            worker(folder, tmp_path / "cache"), folder, chance.uniform(0, 0.15)
        ):
            kills += 1
        assert worker(folder, tmp_path / "cache").communicate()[0].split()[-1] == finished
    record(11, kills=kills, runs=rounds, other_hashes=0)


# ── Row 12: truncations and bit flips ───────────────────────────────────────────────────────────


def damages(content: bytes, times: int, seed: int) -> list[bytes]:
    """`times` truncations and as many single flipped bits."""
    chance, results = random.Random(seed), []
    for _ in range(times):
        results.append(content[: chance.randrange(len(content))])
        flipped = bytearray(content)
        flipped[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        results.append(bytes(flipped))
    return results


@sized(50, 1000)
@pytest.mark.row(12)
def test_a_damaged_proposal_is_refused(times, kernel, tmp_path, record):
    path = tmp_path / "k.inv"
    inv.save(path, kernel)
    refused = 0
    for content in damages(path.read_bytes(), times, seed=1):
        path.write_bytes(content)
        with pytest.raises(inv.InputError) as caught:
            inv.load(path, kernel.target)
        assert "\n" not in str(caught.value)
        refused += 1
    record(12, damaged_files=2 * times, refused=refused)


@sized(15, 1000)
@pytest.mark.row(12)
@pytest.mark.usefixtures("small_chunks")
def test_a_damaged_checkpoint_is_never_resumed_wrongly(times, kernel, expected, tmp_path, record):
    folder = tmp_path / "run"
    sample(kernel, checkpoint=folder)
    files = sorted(folder.glob("*.inv"))
    kept = {path: path.read_bytes() for path in files}
    chance, shorter = random.Random(2), 0
    for content_seed in range(2 * times):
        path = chance.choice(files)
        path.write_bytes(damages(kept[path], 1, content_seed)[content_seed % 2])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = inv.merge(folder, kernel.target).positions
            except inv.InputError:  # the very first file, and so nothing before it
                found = expected.positions[:, :0]
        np.testing.assert_array_equal(found, expected.positions[:, : found.shape[1]])
        shorter += found.shape[1] < SAMPLES
        path.write_bytes(kept[path])
    assert shorter > times / 2
    record(12, damaged_checkpoints=2 * times, shortened=shorter, wrong_draws=0)


# ── Row 13: a full disk ─────────────────────────────────────────────────────────────────────────


class Limit:
    """Let no file of this process grow beyond some bytes."""

    def __init__(self, size: int):
        self.size = size

    def __enter__(self) -> None:
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.before[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)


@sized(3, 20)
@pytest.mark.row(13)
@pytest.mark.usefixtures("small_chunks")
def test_a_full_disk_leaves_what_was_saved(times, kernel, expected, tmp_path, record):
    chance, folder = random.Random(3), tmp_path / "run"
    half = inv.sample(kernel, num_samples=12, checkpoint=folder, **longrun.SETTINGS)
    saved = {path: path.read_bytes() for path in folder.iterdir()}
    for _ in range(times):
        with Limit(chance.randrange(3000)), pytest.raises(inv.InputError) as caught:
            sample(kernel, checkpoint=folder, resume=True)
        assert "could not write" in str(caught.value)
        assert "File too large; what was saved before is intact" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert {path: path.read_bytes() for path in folder.iterdir()} == saved
    np.testing.assert_array_equal(half.positions, expected.positions[:, :12])
    again = sample(kernel, checkpoint=folder, resume=True)
    np.testing.assert_array_equal(again.positions, expected.positions)
    record(13, full_disks=times, old_checkpoints_lost=0)


def test_a_proposal_survives_a_full_disk(kernel, tmp_path):
    path = tmp_path / "k.inv"
    inv.save(path, kernel)
    before = path.read_bytes()
    with Limit(100), pytest.raises(inv.InputError, match=r"could not write .*File too large"):
        inv.save(path, kernel)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["k.inv"]


@deep
@pytest.mark.row(13)
def test_a_real_full_disk_ends_the_process_with_one_line(tmp_path, record):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    try:
        environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
        command = [*WORKER, str(disk / "run"), "400", "--plain"]
        found = subprocess.run(command, capture_output=True, text=True, env=environment)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    record(13, exit_code=found.returncode)
    assert found.returncode == 2
    assert found.stderr.strip().splitlines()[-1].count("No space left on device") == 1
    assert "Traceback" not in found.stderr


# ── Row 14: hostile files ───────────────────────────────────────────────────────────────────────


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> tuple[Callable, tuple]:
        return Path.touch, (self.mark,)


def with_header(header: bytes, length: int | None = None, rest: bytes = b"") -> bytes:
    return (len(header) if length is None else length).to_bytes(8, "little") + header + rest


def huge(shape: list[int], end: int) -> bytes:
    metadata = {"format": "involutive", "version": "1", "header": "{}", "sha256": "0" * 64}
    entry = {"dtype": "F64", "shape": shape, "data_offsets": [0, end]}
    return with_header(json.dumps({"__metadata__": metadata, "x": entry}).encode())


def object_array(path: Path, mark: Path) -> None:
    with open(path, "wb") as file:
        np.save(file, np.array([Payload(mark)], dtype=object), allow_pickle=True)


def zip_bomb(path: Path, mark: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("x.npy", bytes(200 * 2**20))


def sparse(path: Path, mark: Path) -> None:
    content = huge([2**37], 2**40)
    with open(path, "wb") as file:
        file.write(content)
        file.truncate(len(content) + 2**40)


def traversal(path: Path, mark: Path) -> None:
    arrays = {f"../../{mark.name}": np.zeros(3), str(mark): np.zeros(3)}
    tree = {"$": "object", "name": f"../../{mark.name}", "fields": {}}
    header = {"kind": "kernel", "dim": 2, "tree": tree, "fingerprint": [], "target": str(mark)}
    write_tensors(path, arrays, header)


def named_code(path: Path, mark: Path) -> None:
    tree = {"$": "function", "name": f"__import__('pathlib').Path('{mark}').touch()"}
    write_tensors(path, {}, {"kind": "kernel", "dim": 2, "tree": tree, "fingerprint": []})


def written(content: bytes) -> Callable[[Path, Path], object]:
    return lambda path, mark: path.write_bytes(content)


HOSTILE: dict[str, Callable[[Path, Path], object]] = {
    "pickle": lambda path, mark: path.write_bytes(pickle.dumps(Payload(mark))),
    "object-array": object_array,
    "zip-bomb": zip_bomb,
    "huge-shape": written(huge([2**60], 2**63 - 1)),
    "shape-of-nothing": written(huge([2**60, 0], 0)),
    "negative-shape": written(huge([-1], 8)),
    "huge-file": sparse,
    "huge-header": written(with_header(b"{}", 2**62)),
    "deep-header": written(with_header(b"[" * MAX_HEADER)),
    "wide-header": written(with_header(b"[" + b"[]," * (MAX_HEADER // 3 - 2) + b"[]]")),
    "long-number": written(with_header(b"9" * MAX_HEADER)),
    "path-traversal": traversal,
    "code-as-name": named_code,
    "empty": written(b""),
    "text": written(b"not a proposal\n"),
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_do_nothing(make, kernel, tmp_path):
    path, mark = tmp_path / "deep" / "er" / "k.inv", tmp_path / "ran"
    path.parent.mkdir(parents=True)
    make(path, mark)
    files = sorted(tmp_path.rglob("*"))
    with pytest.raises(inv.InputError) as caught:
        inv.load(path, kernel.target)
    tracemalloc.start()
    with pytest.raises(inv.InputError):
        inv.load(path, kernel.target)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == files
    assert peak < 200e6


@deep
@pytest.mark.row(14)
def test_hostile_files_are_refused_quickly(kernel, tmp_path, record):
    """Seconds of this process, which are written down and not judged: machines differ."""
    seconds, peaks = [], []
    for name, make in HOSTILE.items():
        make(tmp_path / name, tmp_path / "ran")
        began = time.process_time()
        with pytest.raises(inv.InputError):
            inv.load(tmp_path / name, kernel.target)
        seconds.append(time.process_time() - began)
        tracemalloc.start()
        with pytest.raises(inv.InputError):
            inv.load(tmp_path / name, kernel.target)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    ran = int((tmp_path / "ran").exists())
    record(
        14, files=len(HOSTILE), code_run=ran, most_seconds=max(seconds), most_MB=max(peaks) / 1e6
    )
    assert ran == 0 and max(peaks) < 200e6


def test_a_hostile_checkpoint_folder_is_only_read(kernel, expected, tmp_path):
    folder = tmp_path / "run"
    inv.sample(kernel, num_samples=12, checkpoint=folder, **longrun.SETTINGS)
    name = "draws-00000000-00000016-0000000012-9999999999.inv"
    (folder / name).write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    (folder / "draws-00000000-00000016-..-passwd.inv").symlink_to("/etc/passwd")
    (folder / "draws-99999999-00000000-0000000000-0000000001.inv").write_bytes(b"x")
    with pytest.warns(UserWarning, match="is not a file of this library"):
        again = sample(kernel, checkpoint=folder, resume=True)
    np.testing.assert_array_equal(again.positions, expected.positions)
    assert not (tmp_path / "ran").exists()


# ── Row 17: SIGINT ──────────────────────────────────────────────────────────────────────────────


def interrupt_later(folder: Path, delay: float) -> None:
    """Send Ctrl-C to this process `delay` seconds after the first draws are saved."""
    while not list(folder.glob("draws-*.inv")):
        time.sleep(0.001)
    time.sleep(delay)
    signal.raise_signal(signal.SIGINT)


@sized(3, 50)
@pytest.mark.row(17)
@pytest.mark.usefixtures("small_chunks")
def test_interrupts_save_an_exact_prefix(times, kernel, expected, tmp_path, record):
    chance, stopped = random.Random(5), 0
    for i in range(times):
        folder = tmp_path / f"run-{i}"
        timer = threading.Thread(target=interrupt_later, args=(folder, chance.uniform(0, 0.1)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            before = signal.signal(signal.SIGINT, lambda *_: None)  # for one that comes too late
            timer.start()
            try:
                found = sample(kernel, checkpoint=folder)
            except inv.InputError as error:
                assert "interrupted before the first chunk" in str(error)
                found = None
            timer.join()
            signal.signal(signal.SIGINT, before)
        if found is not None:
            stopped += found.num_samples < SAMPLES
            np.testing.assert_array_equal(
                found.positions, expected.positions[:, : found.num_samples]
            )
            saved = inv.merge(folder, kernel.target)
            np.testing.assert_array_equal(saved.positions, found.positions)
        whole = sample(kernel, checkpoint=folder, resume=True)
        np.testing.assert_array_equal(whole.positions, expected.positions)
    assert stopped >= times / 3
    record(17, interrupts=times, mid_run=stopped, wrong_prefixes=0)


def test_wrong_types_are_one_line(tmp_path):
    """In a process without the test suite's type checks, as users run it."""
    script = f"""
import involutive as inv
target = inv.targets.mog2()
kernel = inv.random_walk(target, 1.0)
path = {str(tmp_path / "k.inv")!r}
inv.save(path, kernel)
for call in (
    lambda: inv.save(3, kernel), lambda: inv.save("", kernel), lambda: inv.save(path, target),
    lambda: inv.load(path, "mog2"), lambda: inv.load(None, target), lambda: inv.register(3),
    lambda: inv.sample(kernel, key=0, mesh="all"), lambda: inv.sample(kernel, key=0, checkpoint=3),
):
    try:
        call()
    except inv.InputError as error:
        print(error)
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    lines = found.stdout.splitlines()
    assert len(lines) == 8, found.stderr
    for line, words in zip(
        lines,
        (
            "path must be the name of a file, got 3",
            "path must be the name of a file, got ''",
            "save takes a kernel, got Target",
            "load needs the target to sample, got str",
            "path must be the name of a file, got None",
            "register takes a class or a function, got int",
            "mesh must be a jax.sharding.Mesh, got str",
            "path must be the name of a file, got 3",
        ),
        strict=True,
    ):
        assert words in line


def test_read_tensors_is_read_only_of_its_kind(tmp_path):
    write_tensors(tmp_path / "a.inv", {"x": np.arange(6.0).reshape(2, 3)}, {"n": 1})
    with pytest.raises(inv.InputError, match="more than the 20 that are read without asking"):
        read_tensors(tmp_path / "a.inv", limit=20)

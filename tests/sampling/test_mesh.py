"""Chains over several devices and several processes: the draws of one, bit for bit."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import involutive as inv
import longrun

SAMPLES = 40


@pytest.fixture(scope="module")
def expected() -> inv.Draws:
    return inv.sample(longrun.kernel(), num_samples=SAMPLES, **longrun.SETTINGS)  # type: ignore


def start(folder: Path, *more: str, devices: int = 1, samples: int = SAMPLES) -> subprocess.Popen:
    flags = os.environ.get("XLA_FLAGS", "")  # the same bits need the same compiler
    environment = os.environ | {
        "XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count={devices}".strip(),
        "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "cache"),
    }
    command = [sys.executable, longrun.__file__, str(folder), str(samples), *more]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def end(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out.split()[-1]


def cluster(folder: Path, count: int, devices: int = 1, samples: int = SAMPLES) -> list:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    return [
        start(
            folder, "--mesh", "--process", str(i), "--of", str(count), "--port", port,
            devices=devices, samples=samples,
        )
        for i in range(count)
    ]  # fmt: skip


def assert_merged(folder: Path, expected: inv.Draws) -> None:
    merged = inv.merge(folder, longrun.kernel().target)
    for name in ("positions", "log_density", "accepted", "acceptance_rate"):
        np.testing.assert_array_equal(getattr(merged, name), getattr(expected, name))


@pytest.mark.deep
def test_four_devices_draw_what_one_draws(expected, tmp_path):
    found = end(start(tmp_path / "run", "--mesh", devices=4))
    assert found == longrun.draws_hash(expected)


@pytest.mark.deep
@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.deep)])
def test_processes_draw_what_one_draws(count, expected, tmp_path):
    found = [end(process) for process in cluster(tmp_path / "run", count)]
    assert len(set(found)) == count  # each returns its own chains
    assert_merged(tmp_path / "run", expected)


@pytest.mark.deep
def test_a_lost_process_costs_nothing_but_its_chunk(expected, tmp_path):
    folder = tmp_path / "run"
    processes = cluster(folder, 2, samples=4000)
    while len(list(folder.glob("draws-00000008-*.inv"))) < 3:
        time.sleep(0.01)
    processes[1].kill()
    processes[0].send_signal(signal.SIGTERM)
    for process in processes:
        process.communicate(timeout=300)
    found = end(start(folder))  # one process goes on with what two have begun
    assert found == longrun.draws_hash(expected)

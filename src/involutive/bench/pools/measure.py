"""The time of calls on pools of workers, and the calls made again after one is killed.

Likelihoods are local functions, which travel by value (cloudpickle): a worker imports NumPy alone.
"""

import json
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np

from involutive.bench.pools import mpi
from involutive.targets.executors import Executor, Pool
from involutive_worker import Density

SECONDS = 0.05  # of one call
ROWS = 160  # of one turn
TURNS = 3  # of which the fastest counts
WORKERS = 4  # of the pools that are compared with each other
PATIENCE = 120.0  # seconds that workers have to start; a guess
Row = dict[str, Any]
LogDensity = Callable[[np.ndarray], float]


def run(
    rows: int = ROWS,
    seconds: float = SECONDS,
    turns: int = TURNS,
    dask: bool = True,
    with_mpi: bool = True,
) -> list[Row]:
    """Time `rows` calls of `seconds` each on pools of one to four workers.

    Args:
        rows: how many calls.
        seconds: how long each sleeps.
        turns: how often they are repeated; the minimum counts.
        dask: whether to measure a Dask cluster of processes too.
        with_mpi: whether to measure workers of `mpiexec` too.

    Returns:
        A row per pool: seconds, speed relative to one process, time relative to four processes, CPU
        seconds of the process that sends the calls (Dask's scheduler runs in it too), and whether
        the values are the same bits.
    """
    points = _points(rows)
    found: list[tuple[str, int, float, float, np.ndarray]] = []
    for name, workers, make in _pools(dask):
        with make() as executor:
            found.append((name, workers, *timed(executor, points, seconds, workers, turns)))
    missing = mpi.missing() if with_mpi else ""
    if missing is None:
        found.append(("MPI", WORKERS, *_by_mpi(rows, seconds, turns)))
    alone, _, values = found[0][2:]
    four = next(row[2] for row in found if row[:2] == ("processes", WORKERS))
    table: list[Row] = [
        {
            "pool": name, "workers": workers, "seconds": took,
            "speed relative to one process": alone / took,
            "time relative to four processes": took / four if workers == WORKERS else "",
            "CPU seconds of the program": cpu,
            "same bits": bool(np.array_equal(given, values)),
        }
        for name, workers, took, cpu, given in found
    ]  # fmt: skip
    return [*table, {"pool": f"MPI: not measured, {missing}"}] if missing else table


def timed(
    executor: Executor, points: np.ndarray, seconds: float, workers: int, turns: int
) -> tuple[float, float, np.ndarray]:
    """Seconds and CPU seconds of the rows once all workers run, minimum over turns; the values."""
    _start(executor, workers)
    pool = Pool(executor, Density(sleeper(seconds)))
    pool.rows(points[: 4 * workers], False)  # workers get the function, and a call is timed
    took, cpu, values = np.inf, np.inf, np.zeros(0)
    for _ in range(turns):
        began, busy = time.perf_counter(), time.process_time()
        values = pool.rows(points, False).outputs
        took = min(took, time.perf_counter() - began)
        cpu = min(cpu, time.process_time() - busy)
    return took, cpu, values


def killed(rows: int = ROWS, seconds: float = SECONDS, dask: bool = True) -> list[Row]:
    """Kill one of four workers in the middle of `rows` calls and count the calls made again.

    Args:
        rows: how many calls are asked for.
        seconds: how long each sleeps.
        dask: whether to try a Dask cluster too.

    Returns:
        A row per pool of processes: calls asked for, calls made, and whether the values are the
        same bits as without the loss.
    """
    points = _points(rows)
    expected = Density(sleeper(0.0)).batch(points, False).outputs
    table = []
    for name, workers, make in _pools(dask):
        if name == "threads" or workers != WORKERS:
            continue
        with tempfile.TemporaryDirectory() as folder, make() as executor:
            _start(executor, workers)
            pool = Pool(executor, Density(killed_once(folder, seconds, points[rows // 2])))
            values = pool.rows(points, False).outputs
            table.append(
                {
                    "pool": name, "calls asked for": rows,
                    "calls made again": Path(folder, "calls").stat().st_size - rows,
                    "same bits": bool(np.array_equal(values, expected)),
                }
            )  # fmt: skip
            if pool.executor is not executor:  # made in the place of the broken one
                cast(ProcessPoolExecutor, pool.executor).shutdown()
    return table


def sleeper(seconds: float) -> LogDensity:
    """A likelihood that takes its time and no core."""

    def log_density(x: np.ndarray) -> float:
        time.sleep(seconds)
        return -0.5 * float(x @ x)

    return log_density


def killed_once(folder: str, seconds: float, point: np.ndarray) -> LogDensity:
    """The same; it counts its calls in a file, and kills its process the first time at a point."""

    def log_density(x: np.ndarray) -> float:
        with open(f"{folder}/calls", "a") as file:
            file.write(".")
        if np.array_equal(x, point) and not os.path.exists(f"{folder}/killed"):
            open(f"{folder}/killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(seconds)
        return -0.5 * float(x @ x)

    return log_density


def who_answers() -> LogDensity:
    """A number of the worker that is called."""

    def number(x: np.ndarray) -> float:
        time.sleep(0.01)
        return float(hash((os.getpid(), threading.get_ident())) % 2**50)

    return number


def _start(executor: Executor, workers: int) -> None:
    """Call until every worker has answered."""
    pool, began, seen = Pool(executor, Density(who_answers())), time.perf_counter(), set[float]()
    while len(seen) < workers and time.perf_counter() - began < PATIENCE:
        seen |= set(pool.rows(np.zeros((4 * workers, 1)), False).outputs[:, 0].tolist())


def _points(rows: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, 3))


def _pools(dask: bool) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    context = multiprocessing.get_context("spawn")
    for workers in (1, 2, WORKERS):
        yield "processes", workers, lambda n=workers: ProcessPoolExecutor(n, mp_context=context)
    yield "threads", WORKERS, lambda: ThreadPoolExecutor(WORKERS)
    yield "multiprocessing.Pool", WORKERS, lambda: context.Pool(WORKERS)
    if dask:
        yield "Dask", WORKERS, lambda: cluster(WORKERS)


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    """A client of a Dask cluster of processes on this machine."""
    from distributed import Client, LocalCluster

    options: dict[str, Any] = {
        "threads_per_worker": 1,
        "processes": True,
        "dashboard_address": None,
    }
    with LocalCluster(n_workers=workers, **options) as made:  # noqa: SIM117
        with Client(made) as client:
            yield client


def _by_mpi(rows: int, seconds: float, turns: int) -> tuple[float, float, np.ndarray]:
    """The same timing in a job of `mpiexec`, whose first process runs `inside_mpi`."""
    sizes = [f"--rows={rows}", f"--seconds={seconds}", f"--turns={turns}"]
    said = mpi.run(["-m", "involutive.bench.pools", "--inside-mpi", *sizes], WORKERS)
    found = json.loads(said.splitlines()[-1])
    values = np.array([float.fromhex(value) for value in found["values"]])
    return found["seconds"], found["cpu"], values[:, None]


def inside_mpi(rows: int, seconds: float, turns: int) -> str:
    """Time the executor of this job of `mpiexec`; seconds and values as JSON, by their bits."""
    with mpi.executor() as pool:
        took, cpu, values = timed(pool, _points(rows), seconds, pool.num_workers, turns)
    bits = [float(value).hex() for value in values[:, 0]]
    return json.dumps({"seconds": took, "cpu": cpu, "values": bits})

"""Pools: how much faster a dear likelihood is on several workers.

Run it as `python -m involutive.bench.pools`.

The likelihood sleeps, so that the figures show what the pool costs and not how many cores there
are. Rows are evaluated as `learn` and `sample` evaluate them.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from involutive.core.text import markdown_table
from involutive.targets.executors import Pool
from involutive_worker import Density

SECONDS = 0.05
ROWS = 160


def run(rows: int = ROWS, seconds: float = SECONDS, dask: bool = True) -> list[dict[str, Any]]:
    """Time `rows` calls of `seconds` each on pools of one to four workers.

    Args:
        rows: how many calls.
        seconds: how long each sleeps.
        dask: whether to try a Dask cluster of processes too.

    Returns:
        A row per pool: seconds, speed against one process, and whether the values are the same.
    """
    points = np.random.default_rng(0).normal(size=(rows, 3))
    found, first = [], None
    for name, workers, make in _pools(dask):
        with make() as executor:
            pool = Pool(executor, Density(_Sleeper(seconds)))
            pool.rows(points[: 4 * workers], False)  # workers start, and get the function
            began = time.perf_counter()
            values = pool.rows(points, False).outputs
            took = time.perf_counter() - began
        first = first or (took, values)
        found.append(
            {
                "pool": name, "workers": workers, "seconds": took,
                "speed against one process": first[0] / took,
                "same bits": bool(np.array_equal(values, first[1])),
            }
        )  # fmt: skip
    return found


class _Sleeper:
    """A likelihood that takes its time and no core."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    def __call__(self, x: np.ndarray) -> float:
        time.sleep(self.seconds)
        return -0.5 * float(x @ x)


def _pools(dask: bool) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    context = multiprocessing.get_context("spawn")
    for workers in (1, 2, 4):
        yield "processes", workers, lambda n=workers: ProcessPoolExecutor(n, mp_context=context)
    yield "threads", 4, lambda: ThreadPoolExecutor(4)
    yield "multiprocessing.Pool", 4, lambda: context.Pool(4)
    if dask:
        yield "Dask", 4, lambda: _cluster(4)


@contextmanager
def _cluster(workers: int) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    options: dict[str, Any] = {
        "threads_per_worker": 1,
        "processes": True,
        "dashboard_address": None,
    }
    with LocalCluster(n_workers=workers, **options) as cluster:  # noqa: SIM117
        with Client(cluster) as client:
            yield client


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--no-dask", action="store_true")
    asked = parser.parse_args()
    found = run(asked.rows, asked.seconds, not asked.no_dask)
    print(markdown_table(found))  # noqa: T201


if __name__ == "__main__":
    main()

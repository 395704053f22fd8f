"""Pools: the same values whatever evaluates them, and nothing lost where a worker dies."""

import json
import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from pathlib import Path
from types import SimpleNamespace

import densities
import numpy as np
import pytest

import involutive as inv
from involutive.bench.pools import measure, mpi
from involutive.targets.executors import Pool, pickled
from involutive_worker import Density

SPAWN = multiprocessing.get_context("spawn")
POINTS = np.random.default_rng(0).normal(size=(40, 3))


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(2, mp_context=SPAWN) as pool:
        yield pool


@pytest.fixture(scope="module")
def multiprocessing_pool():
    with SPAWN.Pool(2) as pool:
        yield pool


def target_of(function, executor, dim=3, **options):
    return inv.Target(function, dim, backend="numpy", executor=executor, **options)


class OnlyMap:
    """The least that a pool can be."""

    def map(self, function, items):
        return map(function, items)


def test_values_are_the_same_bits_whatever_evaluates_them(processes, multiprocessing_pool):
    expected = target_of(densities.quadratic, None).evaluate_rows(POINTS)
    with ThreadPoolExecutor(3) as threads, ThreadPool(3) as others:
        for pool in (threads, others, processes, multiprocessing_pool, OnlyMap()):
            found = target_of(densities.quadratic, pool).evaluate_rows(POINTS)
            np.testing.assert_array_equal(found, expected)


def test_the_function_is_sent_to_a_worker_once(processes):
    """Every worker takes part, and the function goes with its first batches only."""
    target = target_of(densities.pid, processes)
    sent = []
    submit = target.black_box.pool.submit
    target.black_box.pool.submit = lambda *given: (sent.append(given[2]), submit(*given))[1]
    workers = set(target.evaluate_rows(POINTS))
    assert len(workers) == 2 and os.getpid() not in workers
    assert 1 <= sum(sent) <= 4 < len(sent)
    sent.clear()
    target.evaluate_rows(POINTS)
    assert sum(sent) <= 1


def test_workers_import_no_jax(processes):
    target_of(densities.quadratic, processes).evaluate_rows(POINTS)
    assert processes.submit(densities.imported).result() == []
    assert "jax" in sys.modules


def test_batches_are_sized_by_the_time_of_a_call():
    pool = Pool(OnlyMap(), Density(densities.quadratic))
    pool.executor._max_workers = pool.workers = 4
    assert pool.count() == 4
    assert pool.size(1000) == 1  # not measured yet
    pool.seconds = 0.05
    assert pool.size(1000) == 5
    pool.seconds = 1e-5
    assert pool.size(80) == 10 and pool.size(10**7) == 25_000
    assert Pool(OnlyMap(), Density(densities.quadratic, vectorized=True)).size(1000) == 64


def test_a_long_call_holds_up_no_other():
    """The first of 40 calls ends after all the others have: one more batch in turn would wait."""
    others, done = threading.Event(), []

    def uneven(x):
        if x[0] == 0 and not others.wait(30):
            raise TimeoutError
        done.append(x[0])
        if len(done) == 39:
            others.set()
        return -float(x[0])

    with ThreadPoolExecutor(2) as pool:
        values = target_of(uneven, pool, 1).evaluate_rows(np.arange(40.0)[:, None])
    np.testing.assert_array_equal(values, -np.arange(40.0))
    assert done[-1] == 0


def test_a_killed_worker_costs_its_calls_only(tmp_path, multiprocessing_pool):
    expected = target_of(densities.quadratic, None).evaluate_rows(POINTS)
    with ProcessPoolExecutor(2, mp_context=SPAWN) as pool:
        target = target_of(densities.KillsOnce(tmp_path / "one"), pool)
        np.testing.assert_array_equal(target.evaluate_rows(POINTS), expected)
        target.black_box.pool.executor.shutdown()
    target = target_of(densities.KillsOnce(tmp_path / "two"), multiprocessing_pool)
    np.testing.assert_array_equal(target.evaluate_rows(POINTS), expected)
    assert (tmp_path / "one").exists() and (tmp_path / "two").exists()


def test_a_process_that_retires_is_not_dead():
    """As those of a `multiprocessing.Pool` with `maxtasksperchild` do."""
    first, second, third = (SimpleNamespace(exitcode=None) for _ in range(3))
    executor = SimpleNamespace(apply_async=None, _pool=[first, second])
    pool = Pool(executor, Density(densities.quadratic))
    assert not pool.someone_died()
    first.exitcode, executor._pool = 0, [second, third]
    assert not pool.someone_died()
    second.exitcode, executor._pool = -9, [third]
    assert pool.someone_died() and not pool.someone_died()


def test_a_row_that_kills_its_worker_is_named():
    points = np.arange(12.0)[:, None] * np.ones((1, 2))
    points[5] = [99.0, 1.0]
    with ProcessPoolExecutor(2, mp_context=SPAWN) as pool:
        target = target_of(densities.deadly, pool, 2)
        with pytest.warns(
            UserWarning, match=r"no number at x\[0\] = 99, x\[1\] = 1: its worker died"
        ):
            values = target.evaluate_rows(points)
        target.black_box.pool.executor.shutdown()
    assert np.flatnonzero(np.isnan(values)).tolist() == [5]


@pytest.mark.deep
def test_draws_do_not_depend_on_the_pool(processes):
    def draws(executor):
        kernel = inv.random_walk(target_of(densities.quadratic, executor), 0.5)
        return inv.sample(kernel, key=0, num_chains=4, num_samples=10).positions

    alone = draws(None)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(4) as four:
        for pool in (one, four, processes):
            np.testing.assert_array_equal(draws(pool), alone)


def test_what_cannot_be_sent_is_named():
    class Holding:
        def __init__(self):
            self.lock = threading.Lock()

        def __call__(self, x):
            return 0.0

    with pytest.raises(inv.InputError, match=r"must be picklable to be sent .* TypeError: .*lock"):
        pickled(Density(Holding()))


@pytest.mark.deep
def test_a_learned_kernel_is_the_same_bits_for_one_two_and_four_processes():
    """Learning and sampling both go through the pool, and what they give does not depend on it."""

    def draws(executor):
        target = target_of(densities.two_modes, executor, 2)
        budget = inv.Budget(evaluations=20_000)
        kernel = inv.learn(target, key=0, budget=budget, progress=False)
        return inv.sample(kernel, key=1, num_chains=8, num_samples=20, progress=False).positions

    alone = draws(None)
    for workers in (1, 2, 4):
        with ProcessPoolExecutor(workers, mp_context=SPAWN) as pool:
            np.testing.assert_array_equal(draws(pool), alone)


@pytest.mark.deep
def test_dask_cluster_of_processes(tmp_path):
    """The same values, also when a worker is killed: the nanny starts another."""
    pytest.importorskip("distributed")
    expected = target_of(densities.quadratic, None).evaluate_rows(POINTS)
    with measure.cluster(2) as client:
        found = target_of(densities.quadratic, client).evaluate_rows(POINTS)
        np.testing.assert_array_equal(found, expected)
        target = target_of(densities.KillsOnce(tmp_path / "killed"), client)
        np.testing.assert_array_equal(target.evaluate_rows(POINTS), expected)
    assert (tmp_path / "killed").exists()


@pytest.mark.deep
def test_workers_of_mpiexec():
    """Values and draws are those of one process; both workers take part, without JAX."""
    missing = mpi.missing()
    if missing:
        pytest.skip(missing)
    said = mpi.run([str(Path(__file__).with_name("mpi_run.py"))], 2)
    found = json.loads(said.splitlines()[-1])
    assert found["workers"] == 2 and found["imported"] == []
    target = target_of(densities.quadratic, None)
    kernel = inv.random_walk(target, 0.5)
    draws = inv.sample(kernel, key=0, num_chains=4, num_samples=10, progress=False)
    assert found["values"] == [float(v).hex() for v in target.evaluate_rows(POINTS)]
    assert found["draws"] == [float(v).hex() for v in np.ravel(draws.positions)]


@pytest.mark.deep
def test_the_benchmark_compares_pools_and_counts_what_a_killed_worker_costs():
    """As its command prints it; the checks of types that tests switch on cannot be sent."""
    pytest.importorskip("cloudpickle")
    command = [
        sys.executable,
        "-m",
        "involutive.bench.pools",
        "--rows=40",
        "--turns=1",
        "--no-dask",
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    speed, killed = (table.splitlines()[2:] for table in said.strip().split("\n\n"))
    assert [line.split(" | ")[0] for line in speed[2:5]] == [
        "| processes", "| threads", "| multiprocessing.Pool",
    ]  # fmt: skip
    assert speed[2].split(" | ")[4] == "1"  # the time of four processes relative to itself
    if mpi.missing():
        assert "not measured" in speed.pop()
    assert all(line.endswith(" | yes |") for line in speed + killed) and len(killed) == 2
    # at most two batches for each of four workers, of an eighth of the 32 rows left after the first
    assert all(1 <= int(line.split(" | ")[2]) <= 2 * 4 * 4 for line in killed)

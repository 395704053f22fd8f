"""Pools: the same values whatever evaluates them, and nothing lost where a worker dies."""

import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import densities
import numpy as np
import pytest

import involutive as inv
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
    with ThreadPoolExecutor(3) as threads:
        for pool in (threads, processes, multiprocessing_pool, OnlyMap()):
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
    pool.executor._max_workers = 4
    assert pool.size(1000) == 1  # not measured yet
    pool.seconds = 0.05
    assert pool.size(1000) == 2
    pool.seconds = 1e-5
    assert pool.size(80) == 10 and pool.size(10**7) == 10_000
    assert Pool(OnlyMap(), Density(densities.quadratic, vectorized=True)).size(1000) == 64


def test_a_killed_worker_costs_its_calls_only(tmp_path, multiprocessing_pool):
    expected = target_of(densities.quadratic, None).evaluate_rows(POINTS)
    with ProcessPoolExecutor(2, mp_context=SPAWN) as pool:
        target = target_of(densities.KillsOnce(tmp_path / "one"), pool)
        np.testing.assert_array_equal(target.evaluate_rows(POINTS), expected)
        target.black_box.pool.executor.shutdown()
    target = target_of(densities.KillsOnce(tmp_path / "two"), multiprocessing_pool)
    np.testing.assert_array_equal(target.evaluate_rows(POINTS), expected)
    assert (tmp_path / "one").exists() and (tmp_path / "two").exists()


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


def test_draws_do_not_depend_on_the_pool(processes):
    def draws(executor):
        kernel = inv.random_walk(target_of(densities.quadratic, executor), 0.5)
        return inv.sample(kernel, key=0, num_chains=4, num_samples=10).positions

    alone = draws(None)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(4) as four:
        for pool in (one, four, processes):
            np.testing.assert_array_equal(draws(pool), alone)


def test_what_cannot_be_sent_is_named():
    import threading

    class Holding:
        def __init__(self):
            self.lock = threading.Lock()

        def __call__(self, x):
            return 0.0

    with pytest.raises(inv.InputError, match=r"must be picklable to be sent .* TypeError: .*lock"):
        pickled(Density(Holding()))


@pytest.mark.deep
def test_dask_cluster_of_processes():
    distributed = pytest.importorskip("distributed")
    expected = target_of(densities.quadratic, None).evaluate_rows(POINTS)
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    )
    with cluster, distributed.Client(cluster) as client:
        found = target_of(densities.quadratic, client).evaluate_rows(POINTS)
        np.testing.assert_array_equal(found, expected)

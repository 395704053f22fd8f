"""`sample_many` on the workers of a pool: the same draws, wherever a group of data sets is run."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.deep  # worker processes compile the program anew

# in a process of its own: the checks of types that tests switch on cannot be sent to workers
SCRIPT = """
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import jax.numpy as jnp
import jax.random as jr


def log_likelihood(mu, data):
    return -0.5 * jnp.sum((data - mu[None]) ** 2)


def simulate(key, mu):
    return mu[None] + jr.normal(key, (5, 2))


def main(way, folder):
    import involutive as inv

    family = inv.Family(
        log_likelihood, inv.Parameters(mu=inv.Normal(0, 2, shape=(2,))), simulate=simulate
    )
    small = inv.AmortiseSettings(
        steps=200, steps_density=0, width=16, depth=1, components=2, splines=2, coupling_width=8
    )
    many = inv.amortise(family, key=0, settings=small, progress=False)
    sets = [simulate(jr.key(i), jnp.array([0.1 * i, -1.0])) for i in range(20)]
    options = {"key": 1, "num_samples": 40, "progress": False}
    alone = inv.sample_many(many, sets, **options)

    def same(pool):
        spread = inv.sample_many(many, sets, executor=pool, folder=folder, **options)
        again = inv.sample_many(many, sets, folder=folder, resume=True, **options)
        for found in (spread, again):
            assert found.done == list(range(20))
            for i in range(20):
                assert (found.positions(i) == alone.positions(i)).all(), i
                assert found[i] == alone[i], i

    if way == "dask":
        from distributed import Client, LocalCluster

        with LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster, Client(cluster) as client:
            same(client)
            pids = client.run(lambda: "involutive" in __import__("sys").modules)
            assert len(pids) == 2 and all(pids.values())
    else:
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            same(pool)
    print("same")


if __name__ == "__main__":
    main(*sys.argv[1:])
"""


@pytest.mark.parametrize("way", ["dask", "processes"])
def test_workers_make_the_draws_of_one_process(way, tmp_path):
    pytest.importorskip("cloudpickle" if way == "processes" else "distributed")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), way, str(tmp_path / "run")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout.split()[-1] == "same"
    assert len(list((tmp_path / "run").glob("sets-*.inv"))) == 2

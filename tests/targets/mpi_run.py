"""A program for `mpiexec -n 3 python -m mpi4py.futures`: values and draws of a pool, as JSON."""

import json

import densities
import numpy as np

POINTS = np.random.default_rng(0).normal(size=(40, 3))

if __name__ == "__main__":  # workers import this file under another name
    import jax
    from mpi4py.futures import MPIPoolExecutor

    import involutive as inv

    jax.config.update("jax_enable_x64", True)
    with MPIPoolExecutor() as pool:
        who = inv.Target(densities.pid, 3, backend="numpy", executor=pool)
        pids = set(who.evaluate_rows(POINTS).tolist())
        target = inv.Target(densities.quadratic, 3, backend="numpy", executor=pool)
        values = target.evaluate_rows(POINTS)
        kernel = inv.random_walk(target, 0.5)
        draws = inv.sample(kernel, key=0, num_chains=4, num_samples=10, progress=False)
        imported = pool.submit(densities.imported).result()
    bits = {"values": values, "draws": np.ravel(draws.positions)}
    found = {name: [float(v).hex() for v in rows] for name, rows in bits.items()}
    print(json.dumps(found | {"workers": len(pids), "imported": imported}))

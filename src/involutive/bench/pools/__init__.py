"""Pools: how much faster a dear likelihood is on several workers, and what a killed worker costs.

Run it as `python -m involutive.bench.pools`.

The likelihood sleeps, so that the figures show what the pool costs and not how many cores there
are. Rows are evaluated as `learn` and `sample` evaluate them. Dask runs a cluster of processes, and
MPI the workers that `mpiexec` starts, both on this machine. Other work on the machine can only add
time, so that each pool is timed in several turns and its minimum is kept.
"""

"""`--workers` and `--dask`: the pool that the command spreads the calls of a NumPy density over.

Every worker runs the user's file itself, once, and takes the density from it, so that nothing the
density holds has to be sent.
"""

import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from involutive.cli.source import read_target
from involutive.core.errors import InputError, check, check_count
from involutive.core.text import first_line
from involutive.targets.target import Target
from involutive_worker import Density

if TYPE_CHECKING:
    from distributed import Client
else:
    Client = Any


@contextmanager
def on_workers(
    target: Target, source: str, workers: int | None, dask: str | None
) -> Iterator[Target]:
    """The target, with its calls made by processes of this machine or by a Dask cluster."""
    if workers is None and dask is None:
        yield target
        return
    check(workers is None or dask is None, "pass --workers or --dask, got both")
    box = target.black_box
    if box is None:
        raise InputError(
            f'--workers and --dask are for NumPy densities (Target(..., backend="numpy")), and '
            f"{target.name} is a JAX density, which uses every core by itself; drop them"
        )
    file, _, name = source.rpartition(":")
    load = partial(density_of, f"{Path(file).resolve()}:{name}")
    with _processes(workers) if dask is None else _client(dask) as pool:
        before = box.pool
        box.use(pool, load)
        try:
            yield target
        finally:
            box.pool = before


def density_of(source: str) -> Density:
    """The NumPy density of `FILE.py:NAME`, on a worker."""
    box = read_target(source).black_box
    check(box is not None, f"{source} must be a target with backend='numpy'")
    return box.density  # type: ignore[union-attr]


def _processes(workers: int | None) -> ProcessPoolExecutor:
    count = check_count("--workers", workers)
    # workers must not take the cores from each other; JAX in them only reads the file
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # a fork of a process in which JAX has threads can wait for ever
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))


def _client(address: str) -> Client:
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError("--dask needs Dask: pip install 'involutive[dask]'") from error
    try:
        return Client(address, timeout=10)
    except Exception as error:
        raise InputError(
            f"--dask must be the address of a Dask scheduler, got {address}: {first_line(error)}"
        ) from error

"""MPI on this machine: a Python program whose executor is `mpi4py.futures.MPIPoolExecutor`.

`mpiexec -n 5 python -m mpi4py.futures PROGRAM` starts one process that runs the program and four
that work for it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from involutive.core.errors import check

if TYPE_CHECKING:
    from mpi4py.futures import MPIPoolExecutor
else:
    MPIPoolExecutor = Any

SECONDS = 300.0  # that a job may take

# Open MPI refuses more processes than cores, and to run in a container, where the user is often
# root, unless it is told otherwise; version 5 reads the last name. Other MPIs read none of them.
SETTINGS = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def missing() -> str | None:
    """What must be installed before `run`, or None if nothing."""
    if find_spec("mpi4py") is None:
        return "mpi4py is not installed (pip install 'involutive[mpi]')"
    if shutil.which("mpiexec") is None:
        return "mpiexec is not on the PATH (Debian: apt install openmpi-bin)"
    return None


def run(program: Sequence[str], workers: int, seconds: float = SECONDS) -> str:
    """Run a Python program with workers of MPI and return what it printed.

    Args:
        program: arguments of Python: a file, or `-m` and a module, and its own arguments.
        workers: how many processes work for it.
        seconds: after which the job is ended.
    """
    start = ["mpiexec", "-n", str(workers + 1), sys.executable, "-m", "mpi4py.futures"]
    done = subprocess.run(
        [*start, *program], env=os.environ | SETTINGS, capture_output=True, text=True,
        timeout=seconds, check=False,
    )  # fmt: skip
    check(
        done.returncode == 0,
        f"a job of mpiexec must end with 0, got {done.returncode}: {done.stderr[-800:]}",
    )
    return done.stdout


def executor() -> MPIPoolExecutor:
    """The executor of the job that this process is the first of; its workers import no program."""
    from mpi4py.futures import MPIPoolExecutor

    return MPIPoolExecutor(main=False)

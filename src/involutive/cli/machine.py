"""How the command sets JAX up: its precision, a compilation cache, the processes of a cluster."""

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from involutive.core.errors import InputError, check
from involutive.core.text import first_line

if TYPE_CHECKING:
    from jax.sharding import Mesh
else:
    Mesh = Any

QUIET_WARNINGS = (
    "PyTensor could not link to a BLAS",
    "Error (reading|writing) persistent compilation cache",
)


def prepare(x64: bool = False) -> None:
    """Keep compiled programs for the next run of the command; compute in 64 bits if asked to.

    Otherwise JAX's own setting decides, as in Python: 32 bits, unless `JAX_ENABLE_X64` or the
    user's file says 64.
    """
    import jax

    if x64:
        jax.config.update("jax_enable_x64", True)
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", str(cache_folder() / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
    warnings.simplefilter("ignore", DeprecationWarning)
    warnings.simplefilter("ignore", FutureWarning)
    for message in QUIET_WARNINGS:
        warnings.filterwarnings("ignore", message)
    warnings.showwarning = _one_line


def set_up(
    distributed: bool,
    coordinator: str | None,
    processes: int | None,
    process: int | None,
    x64: bool = False,
) -> None:
    """Set JAX up, in a cluster if asked to or if the flags name one."""
    check(
        distributed or coordinator is None or "JAX_COORDINATOR_ADDRESS" in os.environ,
        "--coordinator needs --distributed; add it",
    )
    prepare(x64)
    if distributed:
        join_cluster(coordinator, processes, process)


def cache_folder() -> Path:
    """The user's cache folder for this program."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "involutive"


def join_cluster(coordinator: str | None, processes: int | None, process: int | None) -> None:
    """Join the processes of one run, by flags or by what the cluster's manager says (SLURM, MPI).

    Must come before anything else uses JAX.
    """
    import jax

    given = {"--coordinator": coordinator, "--num-processes": processes, "--process-id": process}
    missing = [flag for flag, value in given.items() if value is None]
    check(
        len(missing) in (0, 3),
        f"a cluster needs {', '.join(given)} together, but {', '.join(missing)} is missing; pass "
        "all three, or none under SLURM or MPI",
    )
    if not missing and processes is not None and process is not None:
        check(":" in str(coordinator), f"--coordinator must be HOST:PORT, got {coordinator}")
        check(processes >= 1, f"--num-processes must be at least 1, got {processes}")
        check(
            0 <= process < processes,
            f"--process-id must be from 0 to {processes - 1}, got {process}",
        )
    try:
        jax.distributed.initialize(coordinator, processes, process)
    except (ValueError, RuntimeError) as error:
        line = first_line(error)
        raise InputError(
            f"--distributed could not join the other processes: {line}; pass --coordinator "
            "HOST:PORT --num-processes N --process-id I"
        ) from error


def first_process() -> bool:
    """Whether this process writes the files."""
    import jax

    return jax.process_index() == 0


def wait_for_all(name: str) -> None:
    """Return when every process has come here."""
    import jax
    from jax.experimental import multihost_utils

    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def all_devices() -> Mesh | None:
    """A mesh over all devices, or None where there is one."""
    import jax
    import numpy as np
    from jax.sharding import Mesh

    return Mesh(np.array(jax.devices()), ("chains",)) if jax.device_count() > 1 else None


def _one_line(message: object, *_: object, **__: object) -> None:
    import sys

    print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)  # noqa: T201

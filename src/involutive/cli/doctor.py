"""`involutive doctor`: what is installed, what JAX sees, and what is missing."""

import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from involutive._version import __version__
from involutive.cli import machine
from involutive.cli.options import Json, Quiet, Seed
from involutive.cli.speech import Speech

REQUIRED = ("jax", "jaxlib", "equinox", "optax", "numpy", "flowjax", "arviz", "matplotlib")
# the package, what it is for, and what pip installs it by
OPTIONAL = (
    ("numpyro", "NumPyro models as targets", "numpyro"),
    ("funsor", "NumPyro models with discrete sites", "funsor"),
    ("pymc", "PyMC models as targets", "pymc"),
    ("blackjax", "BlackJAX algorithms as moves", "blackjax"),
    ("distributed", "pools of Dask workers", "dask[distributed]"),
    ("mpi4py", "pools of MPI processes", "mpi4py"),
    ("pyarrow", "draws as Parquet files", "pyarrow"),
)
OLDEST, NEWEST = (3, 11), (3, 13)  # versions of Python that the tests run on


@dataclass(frozen=True)
class Missing:
    """A package that is not installed.

    Attributes:
        package: its name.
        use: what it is for.
        remedy: the command that installs it.
    """

    package: str
    use: str
    remedy: str


def doctor(quiet: Quiet = False, json: Json = False, seed: Seed = 0) -> None:
    """Print versions, devices, precision, cache and cores, and say what is missing.

    Add its output to a question or a bug report. Examples:

    - `involutive doctor`

    - `involutive doctor --json`
    """
    del seed  # taken everywhere; nothing is drawn here
    machine.prepare()
    speech, found = Speech(quiet, json), examine()
    for title, rows in found.items():
        if title not in ("missing", "advice"):
            speech.say(f"{title}\n" + "\n".join(f"  {k:<18} {v}" for k, v in rows.items()))
    speech.say(
        "optional packages that are not installed" if found["missing"] else "nothing is missing"
    )
    for row in found["missing"]:
        speech.say(f"  {row['package']:<18} {row['use']}: {row['remedy']}")
    for line in found["advice"]:
        speech.say(f"note: {line}")
    speech.result(found)


def examine() -> dict[str, Any]:
    """Everything the doctor says, as plain values."""
    import jax
    import jax.numpy as jnp

    devices = jax.devices()
    folder = Path(
        str(getattr(jax.config, "jax_compilation_cache_dir", None) or machine.cache_folder())
    )
    files = [path for path in folder.glob("*") if path.is_file()] if folder.is_dir() else []
    size = sum(path.stat().st_size for path in files)
    return {
        "versions": {
            "involutive": __version__,
            "Python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        }
        | {name: _version(name) or "NOT INSTALLED" for name in REQUIRED},
        "JAX": {
            "devices": ", ".join(str(device) for device in devices),
            "cores": f"{cores()} usable of {os.cpu_count()}",
            "float width": f"{jnp.result_type(float)} (JAX_ENABLE_X64=1 or --x64 for float64)",
            "compiled programs": f"{len(files)} files, {size / 1e6:.1f} MB in {folder}",
        },
        "missing": [vars(row) for row in missing()],
        "advice": advice(folder, [device.platform for device in devices]),
    }


def missing() -> list[Missing]:
    """The optional packages that are not installed."""
    return [
        Missing(package, use, f"pip install '{requirement}'")
        for package, use, requirement in OPTIONAL
        if find_spec(package) is None
    ]


def advice(folder: Path, platforms: list[str]) -> list[str]:
    """What a user may want to change."""
    lines = []
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        span = " to ".join(".".join(map(str, v)) for v in (OLDEST, NEWEST))
        lines.append(f"tested with Python {span}; this is {platform.python_version()}")
    nearest = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    if not os.access(nearest, os.W_OK):
        lines.append(
            f"compiled programs cannot be kept in {folder}; set JAX_COMPILATION_CACHE_DIR to a "
            "folder that can be written"
        )
    if platforms == ["cpu"] and any(Path(path).exists() for path in ("/dev/nvidia0", "/dev/kfd")):
        lines.append("there is a GPU that JAX does not see; install JAX for it, see docs.jax.dev")
    return lines


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None

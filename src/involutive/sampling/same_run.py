"""The identity of a run: what two runs must share to have the same draws."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from involutive.core.errors import InputError, check
from involutive.kernel.kernel import AbstractKernel
from involutive.storage.format import PathLike, as_path, read_tensors
from involutive.storage.save_load import check_kind, describe
from involutive.targets.fingerprint import difference, fingerprint
from involutive.targets.target import Target


def same_run(kernel: AbstractKernel, initial: object, settings: dict[str, Any]) -> dict[str, Any]:
    """What two runs must share to have the same draws, apart from the density."""
    return settings | {"kernel": digest_of_moves(kernel), "initial": digest(initial)}


def saved_block(path: PathLike) -> int | None:
    """The width of blocks that the run in a folder began with, if there is one."""
    marker = as_path(path) / "run.inv"
    return _read_run(marker)["run"].get("block") if marker.exists() else None


def digest_of_moves(kernel: AbstractKernel) -> str:
    """SHA-256 of what a kernel's draws depend on.

    A kernel that is learned twice by one key is the same, though the records of how long that took
    differ.
    """
    if kernel.mover is kernel:
        return _digest(kernel)
    return _digest((kernel.mover, kernel.initial, kernel.starts))


def digest(thing: object) -> str | None:
    """SHA-256 of a kernel, a distribution or positions: of its description and its arrays."""
    if thing is None:
        return None
    if not hasattr(thing, "__dataclass_fields__"):
        thing = np.asarray(thing, dtype=float)
    return _digest(thing)


def _digest(thing: object) -> str:
    tree, arrays = describe(thing)
    found = hashlib.sha256(json.dumps(tree, sort_keys=True).encode())
    for name, array in arrays.items():
        found.update(f"{name}{array.dtype}{array.shape}".encode() + array.tobytes())
    return found.hexdigest()


def run_name(run: dict[str, Any]) -> str:
    """The hash by which files of a run name it."""
    return hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()


def check_same(folder: Path, run: dict[str, Any] | None, target: Target) -> dict[str, Any]:
    """Return the run a folder holds after comparing it with what was passed in, name by name."""
    check(folder.is_dir(), f"there is no checkpoint {folder}")
    header = _read_run(folder / "run.inv")
    found = header["run"]
    for name, value in (run or found).items():
        saved = found.get(name)
        if saved == value:
            continue
        what = f"has another {name}" if name in ("kernel", "initial") else f"has {name}={saved}"
        got = "" if name in ("kernel", "initial") else f", got {name}={value}"
        raise InputError(
            f"the run in {folder} {what}{got}; pass what it began with, or another checkpoint"
        )
    check(
        found["dim"] == target.dim, f"the run in {folder} has dim={found['dim']}, got {target.dim}"
    )
    other = difference(header["fingerprint"], fingerprint(target))
    check(
        other is None,
        f"the run in {folder} has another density ({header.get('target')}): {other}; pass the "
        "target it began with, or another checkpoint",
    )
    return found


def _read_run(marker: Path) -> dict[str, Any]:
    _, header = read_tensors(marker, fall_back=True)
    check_kind(marker, header, "run")
    return header

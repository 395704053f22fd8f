"""Files of named arrays with a JSON header: the one way anything is saved here.

A file is a safetensors file, so it holds data and never code. Its metadata carry a format version,
the header, and a SHA-256 over header and arrays. It is written to a temporary file, synced and
renamed, so that at every moment the path holds either the old content or the new; the content
before is kept beside it as `.bak`. Reading compares every size with the file's before memory is
taken.
"""

import contextlib
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from safetensors.numpy import save as to_bytes

from involutive.core.errors import InputError, check
from involutive.core.files import replacing

FORMAT = "involutive"
VERSION = 1  # raised when a reader of the version before would misunderstand a file
MAX_HEADER = 2**20  # parsed JSON takes some twenty times its text in memory
MAX_BYTES = 2**30
DTYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4",
    "U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip

Arrays = dict[str, np.ndarray]
PathLike = str | os.PathLike[str]


def as_path(path: object) -> Path:
    """Return a path, or say that it is not one."""
    if isinstance(path, str | os.PathLike) and str(path) and "\0" not in str(path):
        return Path(path)  # type: ignore[arg-type]
    raise InputError(f"path must be the name of a file, got {path!r}; pass for example 'run.inv'")


def backup(path: Path) -> Path:
    """Where the content before the last write is kept."""
    return path.with_name(path.name + ".bak")


# ── Writing ─────────────────────────────────────────────────────────────────────────────────────


def write_tensors(
    path: PathLike, arrays: Mapping[str, Any], header: Mapping[str, Any], *, keep: bool = True
) -> None:
    """Write named arrays and a JSON header, all or nothing.

    Args:
        path: the file; its folder must exist.
        arrays: real numbers or booleans, by name.
        header: anything JSON can hold.
        keep: keep the content before as `path.bak`.
    """
    target = as_path(path)
    check(target.parent.is_dir(), f"the folder {target.parent} does not exist; make it first")
    check(not target.is_dir(), f"path must name a file, got the folder {target}")
    plain = {name: _plain(name, array) for name, array in arrays.items()}
    text = json.dumps(header, sort_keys=True)
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "header": text,
        "sha256": _digest(str(VERSION), text, plain),
    }
    content = to_bytes(plain, metadata)
    size = int.from_bytes(content[:8], "little")
    check(
        size <= MAX_HEADER,
        f"the header of {target} must stay below {MAX_HEADER} bytes, got {size}; save less in it",
    )
    _replace(target, content, keep)


def _plain(name: str, value: object) -> np.ndarray:
    array = np.array(value, order="C")  # not ascontiguousarray, which adds an axis to a scalar
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    check(
        array.dtype.kind in "biuf" and array.dtype.itemsize <= 8,
        f"array {name} must hold real numbers or booleans, got dtype {array.dtype}",
    )
    return array


def _digest(version: str, text: str, arrays: Arrays) -> str:
    digest = hashlib.sha256(json.dumps([FORMAT, version, text]).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _replace(path: Path, content: bytes, keep: bool) -> None:
    """Put `content` at `path` in one step that a crash or a full disk cannot split."""
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(content)
            if keep and path.exists():
                _keep(path)
    except OSError as error:
        cause = error.strerror or type(error).__name__
        raise InputError(
            f"could not write {path}: {cause}; what was saved before is intact, "
            "free some space or choose another path"
        ) from error


def _keep(path: Path) -> None:
    """Make `path.bak` the current content, again in one step."""
    spare = path.with_name(f".{path.name}.{os.getpid()}.bak.tmp")
    with contextlib.suppress(FileNotFoundError):
        spare.unlink()
    try:
        os.link(path, spare)
    except OSError:  # a file system without hard links
        shutil.copy2(path, spare)
    os.replace(spare, backup(path))


# ── Reading ─────────────────────────────────────────────────────────────────────────────────────


def read_tensors(
    path: PathLike, *, limit: int = MAX_BYTES, fall_back: bool = False
) -> tuple[Arrays, dict[str, Any]]:
    """Read what `write_tensors` wrote, or say in one line why not.

    Args:
        path: the file.
        limit: the most bytes it may have.
        fall_back: if the file is damaged, read the previous good one (`.bak`) and warn.

    Returns:
        The arrays by name, and the header.
    """
    file = as_path(path)
    if not fall_back or not backup(file).exists():
        return _read(file, limit)
    try:
        return _read(file, limit)
    except InputError as error:
        found = _read(backup(file), limit)
        warnings.warn(f"{error}; using the previous good file {backup(file)}", stacklevel=2)
        return found


def _read(path: Path, limit: int) -> tuple[Arrays, dict[str, Any]]:
    metadata, size = _metadata(path, limit)
    try:
        with open(path, "rb") as file:
            content = file.read(size + 1)
        parts = safetensors.deserialize(content) if len(content) == size else None
        check(parts is not None, f"{path} changed while it was read; try again")
        arrays = {name: _array(part) for name, part in parts or []}
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise damaged(path, "its arrays do not fit the file") from error
    except OSError as error:
        raise _unreadable(path, error) from error
    if _digest(metadata["version"], metadata["header"], arrays) != metadata["sha256"]:
        raise damaged(path, "its SHA-256 does not match")
    try:
        header = json.loads(metadata["header"])
    except (ValueError, RecursionError) as error:
        raise damaged(path, "its header is not JSON") from error
    check(
        isinstance(header, dict),
        f"{path} must hold a header of named fields; it is not a file of this library",
    )
    return arrays, header


def _array(part: dict[str, Any]) -> np.ndarray:
    # bytearrays stay writable, and the shape was checked against the bytes by safetensors
    return np.frombuffer(bytearray(part["data"]), DTYPES[part["dtype"]]).reshape(part["shape"])


def _metadata(path: Path, limit: int) -> tuple[dict[str, str], int]:
    """Return the metadata and the size of a file after reading no more than its header."""
    try:
        check(not path.is_dir(), f"path must name a file, got the folder {path}")
        check(path.is_file(), f"there is no file {path}")
        size = path.stat().st_size
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 10 or length > min(size - 8, MAX_HEADER):
                raise _foreign(path)
            text = file.read(length)
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        head = json.loads(text)
        metadata = head.pop("__metadata__")
        ends = [entry["data_offsets"][1] for entry in head.values()]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise _foreign(path) from error
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise _foreign(path)
    fields = [metadata.get(name) for name in ("version", "header", "sha256")]
    if not all(isinstance(field, str) for field in fields):
        raise _foreign(path)
    check(
        metadata["version"] == str(VERSION),
        f"{path} has format version {metadata['version'][:20]}, and this involutive reads version "
        f"{VERSION}; load it with the release that wrote it",
    )
    whole = all(isinstance(end, int) for end in ends)
    if not whole or max(ends, default=0) != size - 8 - length:
        raise damaged(path, f"it has {size} bytes, and its header describes another number")
    check(
        size <= limit,
        f"{path} has {size} bytes, more than the {limit} that are read without asking; "
        "it is probably not the file that you meant",
    )
    return metadata, size


def _foreign(path: Path) -> InputError:
    return InputError(
        f"{path} is not a file of this library, or its head is damaged{_remedy(path)}"
    )


def damaged(path: Path, why: str) -> InputError:
    """The error for a file that is ours and not whole."""
    return InputError(f"{path} is damaged: {why}{_remedy(path)}")


def _remedy(path: Path) -> str:
    kept = backup(path)
    return f"; the version before it is kept as {kept}" if kept.exists() else ""


def _unreadable(path: Path, error: OSError) -> InputError:
    return InputError(f"could not read {path}: {error.strerror or type(error).__name__}")

"""Folders and files that a user named."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from involutive.core.errors import InputError, check

DRAWS_ENDINGS = (".nc", ".csv", ".parquet")
REPORT_ENDINGS = (".html", ".htm")


def check_ending(name: str, path: Path, endings: tuple[str, ...]) -> None:
    """Refuse a file whose ending promises a format that is not written."""
    check(
        path.suffix.lower() in endings,
        f"{name} must end in {' or '.join(endings)}, got {path.name!r}",
    )


def make_folder(folder: Path, out: Path) -> Path:
    """Make `folder` inside `out`, which the user named, or say that it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"out must be a folder that can be written, got {out} ({error.strerror}); pass another"
        ) from error
    return folder


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path; what is written there takes the place of `path` in one step.

    A crash or a full disk leaves the old content: the new one is synced before it is renamed, and
    the temporary file is removed if anything is raised.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
        if os.name == "posix":  # elsewhere a folder cannot be opened
            _sync(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

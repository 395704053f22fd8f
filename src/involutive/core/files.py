"""Folders and files that a user named."""

from pathlib import Path

from involutive.core.errors import InputError


def make_folder(folder: Path, out: Path) -> Path:
    """Make `folder` inside `out`, which the user named, or say that it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"out must be a folder that can be written, got {out} ({error.strerror}); pass another"
        ) from error
    return folder

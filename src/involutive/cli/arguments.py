"""Checks of what was typed, before anything is imported that takes seconds."""

import os
from importlib.util import find_spec
from pathlib import Path

from involutive.core.errors import check, check_count
from involutive.core.files import DRAWS_ENDINGS, REPORT_ENDINGS, check_ending

FORM = "pass FILE.py:NAME, for example posterior.py:target"
HDF5 = b"\x89HDF"
NOT_DRAWS = "must be a NetCDF file written by this library"


def check_source(source: str) -> tuple[Path, str]:
    """The file and the name of `FILE.py:NAME`."""
    file, _, name = source.rpartition(":")
    check(file and name, f"the target must be given as FILE.py:NAME, got {source!r}; {FORM}")
    path = Path(file)
    check(path.is_file(), f"FILE must exist, but there is no file {file}; {FORM}")
    check(path.suffix == ".py", f"FILE must be a Python file, got {path}")
    return path, name


def check_proposal(path: Path) -> None:
    """Refuse a proposal that is no file, or no file of this library."""
    check(path.is_file(), f"PROPOSAL must exist, but there is no file {path}")
    with path.open("rb") as file:
        start = file.read(9)
    # a safetensors file: the length of its header in eight bytes, then JSON
    check(
        start[8:] == b"{",
        f"PROPOSAL must be a file that involutive learn wrote, {path} is not",
    )


def check_start(path: Path | None) -> None:
    """Refuse a proposal to start from that is none; without `--start` there is nothing to check."""
    if path is not None:
        check_proposal(path)


def check_draws(path: Path) -> None:
    """Refuse draws that are no file, or not NetCDF."""
    check(path.is_file(), f"DRAWS {NOT_DRAWS}, but there is no file {path}")
    with path.open("rb") as file:
        start = file.read(4)
    check(start == HDF5, f"DRAWS {NOT_DRAWS}, {path} is not")


def check_draws_out(path: Path) -> None:
    """Refuse endings that are not written, and Parquet where nothing can write it."""
    check_ending("--out", path, DRAWS_ENDINGS)
    check(
        path.suffix != ".parquet" or find_spec("pyarrow") is not None,
        f"--out {path} needs the library pyarrow, which is not installed; run pip install pyarrow, "
        "or write .nc or .csv",
    )
    check_file_out(path)


def check_report_out(path: Path) -> None:
    """Refuse to write HTML under another ending."""
    check_ending("--out", path, REPORT_ENDINGS)
    check_file_out(path)


def check_sizes(**sizes: int) -> None:
    """Refuse counts below one."""
    for name, value in sizes.items():
        check_count(f"--{name}", value)


def check_limits(**limits: float | None) -> None:
    """Refuse limits that are not positive."""
    for name, limit in limits.items():
        check(limit is None or limit > 0, f"--{name} must be positive, got {limit}")


def check_file_out(path: Path) -> None:
    """Refuse to write a file in the place of a folder, or where nothing can be written."""
    check(not path.is_dir(), f"--out must name a file, got the folder {path}")
    check_folder(path.parent)


def check_folder(folder: Path) -> None:
    """Refuse a place that nothing can be written to."""
    check(
        folder.is_dir() and os.access(folder, os.W_OK),
        f"--out must be in a folder that exists and can be written, got {folder}",
    )


def check_clone(path: Path | None, suite: str) -> None:
    """Refuse a folder that is no clone of posteriordb, and another suite than `posteriors`."""
    if path is None:
        return
    check(
        (path / "posterior_database" / "posteriors").is_dir(),
        f"--posteriordb must be a clone of posteriordb, with posterior_database/posteriors in it, "
        f"got {path}",
    )
    check(suite == "posteriors", f"--posteriordb needs --suite posteriors, got {suite}")

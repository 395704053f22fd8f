"""What a benchmark writes and reads: its header, its files, and runs that are joined.

A run is resumed, and runs are joined, only where the code is the same: the header carries a
fingerprint of every Python file of the package, and the commit where there is one.
"""

import hashlib
import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from involutive.bench import posteriordb
from involutive.bench.peers import PEERS
from involutive.bench.suites import entry
from involutive.core.errors import check

PACKAGE = Path(__file__).parents[1]
SAME = ("code", "suite", "quick", "seconds", "cores", "machine", "python")  # of runs that join
Header = dict[str, Any]
Row = dict[str, Any]


def fingerprint() -> str:
    """Twelve digits of a hash of the package's Python files."""
    found = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        found.update(str(path.relative_to(PACKAGE)).encode() + path.read_bytes())
    return found.hexdigest()[:12]


def _commit() -> str:
    """The commit of the checkout, or nothing."""
    command = ["git", "-C", str(PACKAGE), "rev-parse", "--short=10", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def header_of(
    suite: str, quick: bool, seeds: Sequence[int], seconds: float | int, targets: list[str],
    peers: list[str], data: Path | None,
) -> Header:  # fmt: skip
    """Sizes, versions and the machine of a run."""
    packages = sorted({PEERS[name][2] for name in peers} | {"jax", "numpy", "arviz"})
    missing = {name: entry(name, data).missing(data) for name in targets}
    if suite == "posteriors" and data is not None and posteriordb.is_database(data):
        missing |= dict.fromkeys(posteriordb.skipped(data), "has no JAX form or no draws here")
    return {
        "suite": suite,
        "quick": quick,
        "seeds": list(seeds),
        "seconds": seconds,
        "targets": targets,
        "left_out": {name: reason for name, reason in missing.items() if reason},
        "peers": {name: PEERS[name][3] for name in peers},
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {name: version_of(name) for name in packages},
        "code": fingerprint(),
        "commit": _commit(),
        "began": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    }


def version_of(package: str) -> str:
    """The version that is installed, or that none is."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def identity(row: Row) -> tuple[str, str, int]:
    """Target, sampler and seed of a row."""
    return row["target"], row["peer"], row.get("seed", 0)


def read(path: Path) -> tuple[Header, list[Row]]:
    """The header and the rows of a `bench.json`, or of a folder that has one."""
    path = path / "bench.json" if path.is_dir() else path
    check(path.is_file(), f"a benchmark must be a bench.json or its folder, got {path}")
    found = json.loads(path.read_text(encoding="utf-8"))
    return found["header"], found["rows"]


def earlier(folder: Path, header: Header) -> list[Row]:
    """Rows of an interrupted run of the same code and sizes; those that failed are run again."""
    if not (folder / "bench.json").is_file():
        return []
    old, rows = read(folder)
    if any(old.get(key) != header[key] for key in SAME):
        return []
    return [row for row in rows if not row.get("failed")]


def merge(paths: Sequence[Path]) -> tuple[Header, list[Row]]:
    """Join runs of the same code, suite and sizes; of a row that two have, one that ended."""
    check(paths, "merge needs at least one bench.json")
    (header, rows), *others = [read(path) for path in paths]
    header = dict(header)
    joined = {identity(row): row for row in rows}
    for number, (other, more) in enumerate(others, 1):
        differ = [key for key in SAME if other.get(key) != header.get(key)]
        check(
            not differ,
            f"runs to merge must have the same {', '.join(SAME)}; {paths[number]} differs in "
            f"{', '.join(f'{key}: {other.get(key)} and {header.get(key)}' for key in differ)}; run "
            "both with one version",
        )
        header["targets"] = list(dict.fromkeys([*header["targets"], *other["targets"]]))
        header["seeds"] = sorted({*header["seeds"], *other["seeds"]})
        header["peers"] = header["peers"] | other["peers"]
        left = {**header["left_out"], **other["left_out"]}
        header["left_out"] = {k: v for k, v in left.items() if k in header["left_out"]
                              and k in other["left_out"]}  # fmt: skip
        old, new = header["versions"], other["versions"]
        header["versions"] = old | {k: v for k, v in new.items() if v != "not installed"}
        for row in more:
            if joined.get(identity(row), {"failed": "absent"}).get("failed"):
                joined[identity(row)] = row
    return header, ordered(header, list(joined.values()))


def ordered(header: Header, rows: list[Row]) -> list[Row]:
    """Rows in the order of targets, samplers and seeds."""
    targets, peers = list(header["targets"]), list(header["peers"])
    known = [row for row in rows if row["target"] in targets and row["peer"] in peers]
    return sorted(known, key=lambda row: (
        targets.index(row["target"]), peers.index(row["peer"]), row.get("seed", 0)
    ))  # fmt: skip


def write(folder: Path, header: Header, rows: list[Row], picture: bool = True) -> None:
    """Write `bench.json`, `bench.md` and, at the end, `bench.png`."""
    from involutive.bench.report import draw, markdown

    text = json.dumps({"header": header, "rows": rows}, indent=1, allow_nan=False)
    (folder / "bench.json").write_text(text + "\n", encoding="utf-8")
    (folder / "bench.md").write_text(markdown(header, rows), encoding="utf-8")
    if picture:
        draw(header, rows).savefig(folder / "bench.png", dpi=110)

"""`run`: every peer on every target, each in a process of its own, judged, and written down."""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from involutive.bench.judge import judge
from involutive.bench.peers import PEERS, check_peer, installed
from involutive.bench.targets import MAKERS, make, reference
from involutive.core.errors import check
from involutive.core.files import make_folder
from involutive.core.text import as_json
from involutive.sampling.progress import Progress

SECONDS, QUICK_SECONDS = 120.0, 20.0  # a run; no new chunk of draws is begun after it
GRACE = 180.0  # seconds more before a run is ended from outside
Report = Callable[[str], Any]


@dataclass(frozen=True)
class Bench:
    """The result of a benchmark.

    Attributes:
        header: sizes, versions and the machine.
        rows: one a target and peer, with the figures or the reason why there are none.
        folder: where the tables and the plot were written, or None.
    """

    header: dict[str, Any]
    rows: list[dict[str, Any]]
    folder: Path | None

    @property
    def markdown(self) -> str:
        """The tables in Markdown."""
        from involutive.bench.report import markdown

        return markdown(self.header, self.rows)


def run(
    quick: bool = False,
    out: str | Path | None = None,
    targets: Sequence[str] | None = None,
    peers: Sequence[str] | None = None,
    seed: int = 0,
    progress: Report | None = None,
    seconds: float | None = None,
) -> Bench:
    """Run the benchmark.

    Args:
        quick: small sizes and `QUICK_SECONDS` a run, to see that everything works.
        out: a folder for `bench.md`, `bench.json` and `bench.png`.
        targets: names of targets; by default all.
        peers: names of samplers; by default all.
        seed: fixes everything random.
        progress: called with one line after every run.
        seconds: time a run may take before no new chunk of draws is begun.
    """
    targets = list(MAKERS) if targets is None else list(targets)
    peers = list(PEERS) if peers is None else [check_peer(name) for name in peers]
    limit = (QUICK_SECONDS if quick else SECONDS) if seconds is None else seconds
    check(limit > 0, f"seconds must be positive, got {limit}")
    for name in targets:
        make(name)
    folder = None if out is None else make_folder(Path(out), Path(out))
    header = _header(quick, seed, limit, targets, peers)
    rows: list[dict[str, Any]] = []
    runs = [(target, peer) for target in targets for peer in peers]
    with Progress("benchmark", steady=True) as bar:
        for number, (target, peer) in enumerate(runs, 1):
            bar.stage(f"{peer} on {target}", number, len(runs))
            rows.append(as_json(one(peer, target, seed, limit, quick)))
            if progress is not None:
                progress(line(rows[-1]))
            if folder is not None:  # after every row, so that a long run can be looked at
                _write(folder, header, rows)
    return Bench(header, rows, folder)


def one(peer: str, target: str, seed: int, seconds: float | int, quick: bool) -> dict[str, Any]:
    """Run one peer on one target in a process of its own and judge what it made."""
    row: dict[str, Any] = {"target": target, "peer": peer}
    if not installed(peer):
        return row | {"failed": f"{PEERS[peer][1]} is not installed"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        task = {
            "peer": peer, "target": target, "seed": seed, "seconds": seconds, "quick": quick,
        }  # fmt: skip
        (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
        began, load = time.perf_counter(), os.getloadavg()[0]
        failed = _work(folder, seconds + GRACE)
        row |= {"wall_seconds": time.perf_counter() - began, "load_before": load}
        if failed:
            return row | {"failed": failed}
        figures = json.loads((folder / "outcome.json").read_text(encoding="utf-8"))
        row["cores_had"] = figures["cpu_seconds"] / row["wall_seconds"]
        row["learned_seconds"] = figures["learned_seconds"]
        draws = np.load(folder / "draws.npy", allow_pickle=False)
        return row | judge(make(target), reference(target), draws, figures).as_dict()


def _work(folder: Path, seconds: float | int) -> str:
    """Run the worker; return why it failed, or nothing."""
    command = [sys.executable, "-m", "involutive.bench.worker", str(folder / "task.json")]
    with (folder / "log").open("w", encoding="utf-8") as log:
        try:
            done = subprocess.run(command, stdout=log, stderr=log, timeout=seconds, cwd=folder)
        except subprocess.TimeoutExpired:
            return f"no result within {seconds:.0f} s"
    if done.returncode == 0:
        return ""
    lines = (folder / "log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"ended with {done.returncode}: {lines[-1][:160] if lines else 'no message'}"


def line(row: dict[str, Any]) -> str:
    """One line on a run, as soon as it has ended."""
    name = f"{row['target']:>14} {row['peer']:<12}"
    if row.get("failed"):
        return f"{name} {row['failed']}"
    if row["wrong"]:
        return f"{name} wrong: {row['wrong']}"
    if row["unclear"]:
        return f"{name} unclear: {row['unclear']}"
    return (
        f"{name} {row['ess_per_second']:>10.0f} ESS/s sampling, "
        f"{row['seconds_to']['100000']:>8.1f} s to 100,000"
    )


def _header(
    quick: bool, seed: int, seconds: float | int, targets: list, peers: list
) -> dict[str, Any]:
    packages = sorted({PEERS[name][1] for name in peers} | {"jax", "numpy", "arviz"})
    return {
        "quick": quick,
        "seed": seed,
        "seconds": seconds,
        "targets": targets,
        "peers": {name: PEERS[name][2] for name in peers},
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
        "began": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _write(folder: Path, header: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    from involutive.bench.report import draw, markdown

    text = json.dumps({"header": header, "rows": rows}, indent=1, allow_nan=False)
    (folder / "bench.json").write_text(text + "\n", encoding="utf-8")
    (folder / "bench.md").write_text(markdown(header, rows), encoding="utf-8")
    draw(header, rows).savefig(folder / "bench.png", dpi=110)

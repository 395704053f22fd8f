"""`run`: every peer on every target, each in a process of its own, judged, and written down."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from involutive.bench import record
from involutive.bench.field import figures as field
from involutive.bench.judge import judge
from involutive.bench.peers import PEERS, check_peer, installed
from involutive.bench.suites import entry, names_of, reference
from involutive.core.errors import check, check_count
from involutive.core.files import make_folder
from involutive.core.text import as_json
from involutive.sampling.progress import Progress

SECONDS, QUICK_SECONDS = 120.0, 20.0  # a run; no new chunk of draws is begun after it
GRACE, QUICK_GRACE = 180.0, 50.0  # seconds more before a run is ended from outside
INTEGRALS = ("field", "evidence")  # suites in which log Z is estimated
SUITE_PEERS = {  # the samplers of a suite that has its own; of the others, all
    "posteriors": ["involutive", "nuts_4", "nuts_64"],
    "evidence": ["involutive", "dynesty", "nautilus", "smc"],
}
QUICK_PEERS = ("involutive", "smc")  # of a quick suite that is not the default one
Report = Callable[[str], Any]


@dataclass(frozen=True)
class Bench:
    """The result of a benchmark.

    Attributes:
        header: sizes, versions and the machine.
        rows: one per target, peer and seed, with the figures or the reason why there are none.
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
    suite: str = "default",
    seeds: int = 1,
    data: str | Path | None = None,
) -> Bench:
    """Run the benchmark; a run that was interrupted goes on where it was cut off.

    Args:
        quick: small sizes and `QUICK_SECONDS` per run, to see that everything works.
        out: a folder for `bench.md`, `bench.json` and `bench.png`. Rows of the same code and sizes
            that are there are kept and not run again.
        targets: names of targets; by default all of the suite.
        peers: names of samplers; by default all, and of `posteriors` this library and NUTS, of
            `evidence` this library, dynesty, nautilus and SMC.
        seed: fixes everything random.
        progress: called with one line after every run.
        seconds: time a run may take before no new chunk of draws is begun.
        suite: "default", "field", "evidence", "posteriors" or "growth".
        seeds: how many seeds, from `seed` on.
        data: a folder of data files, or a clone of posteriordb.

    Returns:
        The rows, with where they were written.

    Raises:
        InputError: if a suite, target or peer is not known.
    """
    data = None if data is None else Path(data).absolute()
    targets = names_of(suite, quick, data) if targets is None else list(targets)
    chosen = _peers(suite, quick) if peers is None else [check_peer(name) for name in peers]
    limit = (QUICK_SECONDS if quick else SECONDS) if seconds is None else seconds
    check(limit > 0, f"seconds must be positive, got {limit}")
    check_count("seeds", seeds)
    for name in targets:
        entry(name, data)
    folder = None if out is None else make_folder(Path(out), Path(out))
    every = range(seed, seed + seeds)
    header = record.header_of(suite, quick, every, limit, targets, chosen, data)
    rows = [] if folder is None else record.earlier(folder, header)
    done = {record.identity(row) for row in rows}
    runs = [(t, p, s) for t in targets if t not in header["left_out"] for p in chosen
            for s in every if (t, p, s) not in done]  # fmt: skip
    with Progress("benchmark", steady=True) as bar:
        for number, (target, peer, number_seed) in enumerate(runs, 1):
            bar.stage(f"{peer} on {target}", number, len(runs))
            kept = None if folder is None else folder / "references"
            rows.append(as_json(one(peer, target, number_seed, limit, quick, suite, data, kept)))
            if progress is not None:
                progress(line(rows[-1]))
            if folder is not None:  # after every row, so that a long run can be looked at
                last = number == len(runs)
                record.write(folder, header, record.ordered(header, rows), picture=last)
    if folder is not None and not runs:
        record.write(folder, header, record.ordered(header, rows))
    return Bench(header, record.ordered(header, rows), folder)


def joined(paths: Sequence[str | Path], out: str | Path | None = None) -> Bench:
    """Join benchmarks of the same code and write them again.

    Args:
        paths: `bench.json` files, or their folders.
        out: a folder for the joined tables.

    Returns:
        All rows of all runs.

    Raises:
        InputError: if the runs are of different code or sizes.
    """
    header, rows = record.merge([Path(path) for path in paths])
    folder = None if out is None else make_folder(Path(out), Path(out))
    if folder is not None:
        record.write(folder, header, rows)
    return Bench(header, rows, folder)


def _peers(suite: str, quick: bool) -> list[str]:
    """The samplers that a suite runs unless others are asked for."""
    if suite in SUITE_PEERS:
        return list(SUITE_PEERS[suite])
    return list(QUICK_PEERS) if quick and suite != "default" else list(PEERS)


def one(
    peer: str, target: str, seed: int, seconds: float | int, quick: bool,
    suite: str = "default", data: Path | None = None, kept: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Run one peer on one target in a process of its own and judge what it made."""
    row: dict[str, Any] = {"target": target, "peer": peer, "seed": seed}
    if not installed(peer):
        return row | {"failed": f"{PEERS[peer][2]} is not installed"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        task = {
            "peer": peer, "target": target, "seed": seed, "seconds": seconds, "quick": quick,
            "data": None if data is None else str(data), "evidence": suite in INTEGRALS,
        }  # fmt: skip
        (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
        began, load = time.perf_counter(), os.getloadavg()[0]
        failed = _work(folder, seconds + (QUICK_GRACE if quick else GRACE))
        row |= {"wall_seconds": time.perf_counter() - began, "load_before": load}
        if failed:
            return row | {"failed": failed}
        figures = json.loads((folder / "outcome.json").read_text(encoding="utf-8"))
        row["cores_had"] = figures["cpu_seconds"] / row["wall_seconds"]
        row["learned_seconds"] = figures["learned_seconds"]
        draws = np.load(folder / "draws.npy", allow_pickle=False)
        known, truth = entry(target, data), reference(target, data, kept)
        made = known.make(data)
        row |= judge(made, truth, draws, figures).as_dict()
        if suite in INTEGRALS:
            row |= field.integral(known, figures["integral"])
        if suite == "field":
            row |= field.distances(known, truth, draws)
        shares = row.pop("mode_shares")
        seen = field.modes_seen(made, None if shares is None else np.asarray(shares))
        return row | {"dim": made.dim, "modes_seen": seen}


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

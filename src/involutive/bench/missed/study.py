"""Runs of `learn` and `sample` on densities in which something is easily missed, and their table.

Right is as the benchmark's judge has it: mode weights, quantiles and means against exact draws,
with the Monte Carlo error that so few effective draws have. What the verdict says is set beside it:
the cell that must stay empty is "wrong and trusted".
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from involutive.bench.judge import judge
from involutive.bench.missed.densities import case
from involutive.core.text import as_json
from involutive.learning.learn import learn
from involutive.sampling.sample import sample

CHAINS, DRAWS = 64, 1000
COLUMNS = ("right and trusted", "right, not trusted", "wrong and said so", "WRONG AND TRUSTED")


def once(kind: str, seed: int, budget: float | None) -> dict[str, Any]:
    """Learn the density of a kind and seed, sample it, and compare verdict and truth."""
    given = case(kind, seed)
    began = time.perf_counter()
    kernel = learn(given.target, key=seed, budget=budget, progress=False)
    learning = time.perf_counter() - began
    draws = sample(kernel, key=seed + 1000, num_chains=CHAINS, num_samples=DRAWS, progress=False)
    seconds = time.perf_counter() - began
    summary, outcome = draws.summary(), kernel.outcome
    figures = {
        "exchangeable": False, "setup_seconds": learning, "sampling_seconds": seconds - learning,
        "setup_evaluations": None, "sampling_evaluations": None,
    }  # fmt: skip
    truth = judge(given.judged, given.known, draws.positions, figures)
    return {
        "kind": kind,
        "seed": seed,
        "budget": budget,
        "dim": given.target.dim,
        "right": not truth.wrong,
        "wrong": truth.wrong,
        "unclear": truth.unclear,
        "mode_error": truth.mode_error,
        "quantile_error": truth.quantile_error,
        "trusted": summary.trustworthy and summary.verdict.startswith("Trustworthy"),
        "verdict": summary.verdict,
        "findings": [str(finding) for finding in summary.findings],
        "ess_per_draw": summary.ess_per_draw,
        "converged": outcome.converged,
        "advice": outcome.advice,
        "ended": outcome.ended,
        "modes": outcome.modes,
        "looked": vars(outcome.looked) if outcome.looked else None,
        "rounds": outcome.rounds,
        "evaluations": outcome.evaluations,
        "learning_seconds": learning,
        "seconds": time.perf_counter() - began,
    }


def study(
    kinds: list[str], seeds: range, budget: float | None, out: Path
) -> Iterator[dict[str, Any]]:
    """Yield every run: those in `out`, and those missing there, which are appended to it."""
    kept = {(row["kind"], row["seed"]): row for row in read(out)}
    for seed in seeds:
        for kind in kinds:
            if (kind, seed) not in kept:
                row = as_json(once(kind, seed, budget))
                with out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                kept[kind, seed] = row
            yield kept[kind, seed]


def read(out: Path) -> list[dict[str, Any]]:
    """The runs that a file holds; a last line that was cut off is left out."""
    rows = []
    for line in out.read_text().splitlines() if out.is_file() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def cell(row: dict[str, Any]) -> str:
    """The column of the table that a run counts in."""
    if row["right"]:
        return COLUMNS[0] if row["trusted"] else COLUMNS[1]
    return COLUMNS[3] if row["trusted"] else COLUMNS[2]


def table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per kind, and one for all."""
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    return [_counts(kind, [row for row in rows if row["kind"] == kind]) for kind in kinds] + [
        _counts("all", rows)
    ]


def _counts(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    cells = [cell(row) for row in rows]
    seconds = sorted(row["seconds"] for row in rows)
    counted = {column: cells.count(column) for column in COLUMNS}
    median = {"median seconds": seconds[len(seconds) // 2]} if seconds else {}
    return {"kind": name, "runs": len(rows)} | counted | median

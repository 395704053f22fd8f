"""Reach: `python -m involutive.bench.reach`.

For every case and seed, `learn` with default settings and 64 × 1000 draws: effective draws per draw
(the minimum over coordinates, |x|² and the case's quantities), seconds, what is known against what
was drawn in Monte Carlo errors, and what the verdict says. A row per run is appended to `--out`;
rows that are there are not run again.
"""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer

from involutive.bench.reach.cases import CASES, Case
from involutive.core.statistics import ess, mcse
from involutive.core.text import markdown_table
from involutive.diagnostics.evidence import evidence
from involutive.diagnostics.metrics import ess_per_draw
from involutive.learning.budget import Budget
from involutive.learning.learn import learn
from involutive.sampling.draws import Draws
from involutive.sampling.sample import sample

WITHIN = 4.5  # Monte Carlo errors that a mean may be off: of 120 quantities one is beyond 4.3


def errors(case: Case, draws: Draws) -> tuple[float, str, float]:
    """The largest error in Monte Carlo errors, of which quantity, and its size."""
    positions = draws.positions
    chains, count, dim = positions.shape
    columns = case.quantities(positions.reshape(-1, dim))
    worst, name, size = 0.0, "", 0.0
    for key, exact in case.truth.items():
        column = np.asarray(columns[key], float).reshape(chains, count, 1)
        off = abs(float(column.mean()) - exact)
        # binomial where a share was never seen to change
        spread = np.nan_to_num(mcse(column)[0]) or np.sqrt(exact * (1 - exact) / chains)
        if off > case.tolerance and off / spread > worst:
            worst, name, size = off / spread, key, off
    return worst, name, size


def effective(case: Case, draws: Draws) -> float:
    """Effective draws per draw: the minimum over coordinates, |x|² and the case's quantities."""
    positions = draws.positions
    chains, count, dim = positions.shape
    columns = case.quantities(positions.reshape(-1, dim))
    values = np.stack([np.asarray(c, float).reshape(chains, count) for c in columns.values()], -1)
    return float(min(ess_per_draw(draws).least, np.min(ess(values)) / (chains * count)))


def once(name: str, seed: int, seconds: float | None) -> dict[str, Any]:
    """Learn, sample and judge one case."""
    case = CASES[name]()
    began = time.perf_counter()
    kernel = learn(case.target, key=seed, budget=seconds and Budget(seconds=seconds))
    learned = time.perf_counter() - began
    began = time.perf_counter()
    draws = sample(kernel, key=1000 + seed, num_chains=64, num_samples=1000)
    sampled = time.perf_counter() - began
    worst, which, size = errors(case, draws)
    row: dict[str, Any] = {
        "case": name, "seed": seed, "ess": effective(case, draws), "bar": case.bar,
        "learning": learned, "sampling": sampled, "rounds": kernel.outcome.rounds,
        "modes": kernel.outcome.modes, "evaluations": kernel.outcome.evaluations,
        "errors": worst, "of": which, "off": size, "right": worst < WITHIN,
        "verdict": str(draws.summary().verdict),
        "history": [(h["stage"], h["ess"]) for h in kernel.outcome.history if "ess" in h],
    }  # fmt: skip
    if case.log_z is not None:
        found = evidence(kernel, key=2000 + seed)
        row |= {"log_z_off": found.log_z - case.log_z, "log_z_error": found.error}
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """One line per case: the worst seed."""
    lines = []
    for name in dict.fromkeys(row["case"] for row in rows):
        seeds = [row for row in rows if row["case"] == name]
        trusted = [row["verdict"].startswith("Trustworthy") for row in seeds]
        wrong = [row for row, trust in zip(seeds, trusted, strict=True) if not row["right"]]
        lines.append({
            "case": name, "seeds": len(seeds), "ESS per draw (worst)": min(r["ess"] for r in seeds),
            "asked": seeds[0]["bar"], "learning seconds (worst)": max(r["learning"] for r in seeds),
            "errors (worst)": max(r["errors"] for r in seeds),
            "log Z off (worst)": max((abs(r.get("log_z_off", 0.0)) for r in seeds), default=0.0),
            "right": sum(r["right"] for r in seeds), "trusted": sum(trusted),
            "wrong and trusted": sum(r["verdict"].startswith("Trustworthy") for r in wrong),
        })  # fmt: skip
    return markdown_table(lines)


def main(
    cases: Annotated[str, typer.Option(help="Names, by commas; all by default.")] = "",
    seeds: Annotated[int, typer.Option(help="Seeds per case.")] = 5,
    budget: Annotated[float | None, typer.Option(help="Seconds per learning.")] = None,
    out: Annotated[Path, typer.Option(help="File of rows, one JSON object per line.")] = Path(
        "reach.jsonl"
    ),
) -> None:
    """Run what is not in the file yet, and print the table of all that is."""
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {(row["case"], row["seed"]) for row in rows}
    for name in cases.split(",") if cases else CASES:
        for seed in range(seeds):
            if (name, seed) in done:
                continue
            rows.append(once(name, seed, budget))
            with out.open("a") as file:
                file.write(json.dumps(rows[-1], default=float) + "\n")
            jax.clear_caches()
    typer.echo(table(rows))


if __name__ == "__main__":
    typer.run(main)

"""`python -m involutive.bench.missed`: is anything wrong and trusted?"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from involutive.bench.missed.densities import HIDDEN, KINDS
from involutive.bench.missed.study import cell, study, table
from involutive.bench.targets import DEFAULT
from involutive.core.errors import check
from involutive.core.text import markdown_table


def main(
    kinds: Annotated[
        str, typer.Option(help=f"With commas: {', '.join(KINDS)}, recipe, or names of targets.")
    ] = ",".join(KINDS),
    seeds: Annotated[int, typer.Option(help="Densities of each kind.")] = 20,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    budget: Annotated[float | None, typer.Option(help="Seconds of learning.")] = None,
    out: Annotated[Path, typer.Option(help="A JSON line per run; resumed.")] = Path("missed.jsonl"),
) -> None:
    """Learn and sample densities in which something is easily missed; verdict against truth."""
    names = [name.strip() for name in kinds.split(",")]
    names = [each for name in names for each in (DEFAULT if name == "recipe" else [name])]
    known = (*KINDS, *HIDDEN, *DEFAULT)
    for name in names:
        check(name in known, f"--kinds must be of {', '.join(known)}, got {name!r}")
    rows = []
    for row in study(names, range(first, first + seeds), budget, out):
        rows.append(row)
        why = row["wrong"] or row["unclear"]
        line = f"{row['kind']} {row['seed']}: {cell(row)} ({row['seconds']:.0f} s) {why}"
        sys.stdout.write(f"{line} | {row['verdict'][:100]}\n")
        sys.stdout.flush()
    sys.stdout.write("\n" + markdown_table(table(rows)))


if __name__ == "__main__":
    typer.run(main)

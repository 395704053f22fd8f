"""Some families of the experiment on amortised proposals, by a command.

    python -m involutive.experiments.amortised_command --family hierarchy --sets 1000 --out results

prints one row of numbers per family and what was to be shown; networks are kept in the folder.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from involutive.core.files import make_folder
from involutive.core.text import markdown_table
from involutive.experiments.amortised import FAMILIES, Config, claims, run, table


def main(arguments: list[str] | None = None) -> None:
    """Run the families named on the command line, and print their tables."""
    known = argparse.ArgumentParser(prog="python -m involutive.experiments.amortised_command")
    known.add_argument("--family", choices=list(FAMILIES), action="append", help="default: all")
    known.add_argument("--quick", action="store_true", help="seconds of training, 32 data sets")
    known.add_argument("--out", type=Path, default=None, help="folder for networks")
    for name in ("sets", "steps", "steps-density", "learned", "heads", "splines", "seed"):
        known.add_argument(f"--{name}", type=int, default=None)
    given = vars(known.parse_args(arguments))
    families, quick, out = (given.pop(name) for name in ("family", "quick", "out"))
    chosen = {name: value for name, value in given.items() if value is not None}
    config = replace(Config.quick() if quick else Config(), **chosen)
    config = replace(config, families=tuple(families or FAMILIES))
    folder = None if out is None else make_folder(out, out)
    *_, data = run(config, folder)
    for row in table(data):
        lines = [{"metric": name, "value": value} for name, value in row.items()]
        sys.stdout.write(markdown_table(lines) + "\n\n")
    for sentence, holds in claims(data).items():
        sys.stdout.write(f"{'yes' if holds else 'NO '}  {sentence}\n")


if __name__ == "__main__":
    main()

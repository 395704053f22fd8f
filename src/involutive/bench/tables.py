"""Tables that the benchmark's commands print: each row once it is known, then all of them."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from involutive.core.text import markdown_table

Row = dict[str, Any]


def print_each(rows: Iterable[Row]) -> Iterator[Row]:
    """Print every row as it comes, and hand it on."""
    for row in rows:
        typer.echo(markdown_table([row]))
        yield row


def print_table(rows: Iterable[Row], out: Path | None) -> None:
    """Print the table of all rows, and write it to `out`, if that is given."""
    table = markdown_table(list(rows))
    typer.echo(table)
    if out is not None:
        out.write_text(table, encoding="utf-8")

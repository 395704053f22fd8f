"""What the command prints: text for people, one JSON object for machines, nothing if quiet."""

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from involutive.core.text import as_json

if TYPE_CHECKING:
    from involutive.diagnostics.summary import Summary
else:
    Summary = Any


@dataclass(frozen=True)
class Speech:
    """How a command speaks.

    Attributes:
        quiet: print nothing but errors.
        json: print one JSON object on standard output at the end, and nothing else there.
    """

    quiet: bool = False
    json: bool = False

    @property
    def progress(self) -> bool | None:
        """What to pass as `progress`: never when quiet, else on a terminal."""
        return False if self.quiet else None

    def say(self, text: object) -> None:
        """Print a line for people."""
        if not self.quiet and not self.json:
            print(text, flush=True)  # noqa: T201

    def result(self, found: dict[str, Any]) -> None:
        """Print the result for machines."""
        if self.json:
            print(json.dumps(as_json(found), ensure_ascii=False))  # noqa: T201


def complain(message: object, out: TextIO | None = None) -> None:
    """Print one line on standard error, or on the stream that stands for it."""
    print(f"involutive: {' '.join(str(message).split())}", file=out or sys.stderr)


def summary_record(summary: Summary) -> dict[str, Any]:
    """A summary as plain numbers and text."""
    metrics = summary.metrics
    rows = {name: row.to_dict() for name, row in summary.table.iterrows()}
    return {
        "trustworthy": summary.trustworthy,
        "verdict": summary.verdict,
        "findings": [
            {"kind": f.kind, "problem": f.problem, "remedy": f.remedy, "serious": f.serious}
            for f in summary.findings
        ],
        "acceptance": metrics.acceptance,
        "ess_per_draw": metrics.ess_per_draw,
        "slowest": metrics.slowest,
        "modes": summary.modes,
        "quantities": rows,
    }

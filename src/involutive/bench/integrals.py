"""The table of `involutive bench --suite evidence`: error of log Z times its cost, per sampler.

Seconds and evaluations are all that a sampler needs for its estimate from the start, compilation
included; a gradient counts as three evaluations. A Monte Carlo error falls with the square root of
the work, so that the product of the two favours short runs: `error² × seconds` does not.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Row = dict[str, Any]
COLUMNS = (
    "target", "sampler", "estimates", "mean absolute error", "error stated", "seconds",
    "error × seconds", "error² × seconds", "evaluations", "error × evaluations",
)  # fmt: skip


class IntegralCost(NamedTuple):
    """What one estimate took."""

    seconds: float
    evaluations: float | None


def cost(row: Row) -> IntegralCost:
    """Seconds and evaluations of log Z alone, or of the run where it comes with the draws."""
    if row.get("alone_seconds") is not None:
        return IntegralCost(row["alone_seconds"], row["alone_evaluations"])
    return IntegralCost(row["setup_seconds"] + row["sampling_seconds"], row["evaluations"])


def table(header: Row, rows: Sequence[Row]) -> list[str]:
    """Lines of Markdown: one row per target and sampler, means over seeds."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    for target in header["targets"]:
        for peer in header["peers"]:
            found = [row for row in rows if (row["target"], row["peer"]) == (target, peer)]
            if found:
                lines.append("| " + " | ".join([target, peer, *_cells(found)]) + " |")
    return lines


def _cells(seeds: list[Row]) -> list[str]:
    """The cells of one sampler on one target; without an estimate, why there is none."""
    known = [row for row in seeds if row.get("log_z_off") is not None]
    count = f"{len(known)} of {len(seeds)}"
    if not known:
        return [f"{count}: {_why(seeds[0])}".replace("|", "/")] + [""] * (len(COLUMNS) - 3)
    error = float(np.mean([abs(row["log_z_off"]) for row in known]))
    stated = [row["log_z_stated"] for row in known if row["log_z_stated"] is not None]
    spent = [cost(row) for row in known]
    seconds = float(np.mean([each.seconds for each in spent]))
    counted = [each.evaluations for each in spent if each.evaluations is not None]
    evaluations = float(np.mean(counted)) if counted else None
    return [
        count, f"{error:.2g}", f"{np.mean(stated):.2g}" if stated else "", f"{seconds:.1f}",
        f"{error * seconds:.3g}", f"{error**2 * seconds:.2g}",
        "" if evaluations is None else f"{evaluations:,.0f}",
        "" if evaluations is None else _number(error * evaluations),
    ]  # fmt: skip


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _why(row: Row) -> str:
    """Why a run has no estimate: it did not end, or the estimate was withheld."""
    return row.get("failed") or row.get("log_z_note") or "no estimate"

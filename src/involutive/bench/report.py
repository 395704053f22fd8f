"""The benchmark's tables and plot."""

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from involutive.bench.judge import GOALS
from involutive.core.types import Figure

Row = dict[str, Any]
COLUMNS = (
    "sampler", "verdict", "ESS/draw", "ESS/s sampling", "ESS/s in all", "setup s",
    "s to 10³", "s to 10⁴", "s to 10⁵", "evaluations/ESS", "cores had",
)  # fmt: skip


def markdown(header: Row, rows: Sequence[Row]) -> str:
    """One table per target; the fastest correct entry of a column in bold."""
    lines = [
        f"Begun {header['began']} UTC; {header['cores']} cores, {header['machine']}, Python "
        f"{header['python']}; {header['seconds']:.0f} s a run; suite {header['suite']}; seeds "
        f"{', '.join(map(str, header['seeds']))}; code {header['code']}"
        + ("; QUICK sizes, not for comparison" if header["quick"] else ""),
        "",
        ", ".join(f"{name} {number}" for name, number in header["versions"].items()),
        "",
        "ESS: ArviZ's rank-normalised bulk ESS, minimum over coordinates, |x|² and mode "
        "indicators. Seconds to a number of effective draws include compilation, warm-up and "
        "learning; `*` marks those extrapolated at the measured rate. A wrong or unclear run has "
        "no ESS. Cores had: CPU time over wall time of the whole run; a busy machine gives less "
        "than a run could use.",
        "",
    ]
    if header["left_out"]:
        words = [f"{name} ({reason})" for name, reason in header["left_out"].items()]
        lines += [f"Left out: {'; '.join(words)}.", ""]
    if header["suite"] == "field":
        from involutive.bench.field.table import table

        lines += ["## Beside published results", "", *table(header, rows), ""]
    if header["suite"] == "evidence":
        from involutive.bench.integrals import table as integrals

        lines += ["## log Z", "", *integrals(header, rows), ""]
    for target in header["targets"]:
        found = [row for row in rows if row["target"] == target]
        if found:
            lines += [f"## {target}", "", *_table(found), "", *_learning(found)]
    return "\n".join(lines)


def _table(rows: list[Row]) -> list[str]:
    bold, seeds = _best(rows), {row.get("seed", 0) for row in rows}
    out = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    for i, row in enumerate(rows):
        name = f"{row['peer']} ({row['seed']})" if len(seeds) > 1 else row["peer"]
        cells = [name, verdict(row), *_figures(row)]
        marked = [f"**{cell}**" if (i, c) in bold else cell for c, cell in enumerate(cells)]
        out.append("| " + " | ".join(marked) + " |")
    return out


def _learning(rows: list[Row]) -> list[str]:
    """When learning had nearly reached what it ended with."""
    return [
        f"{row['peer']} had 0.9 of its final effective draws per draw after "
        f"{row['learned_seconds']:.1f} s of learning.\n"
        for row in rows
        if row.get("learned_seconds") is not None
    ]


def verdict(row: Row) -> str:
    """In a few words whether the draws are right, with the errors measured."""
    if row.get("failed"):
        return row["failed"].replace("|", "/")
    errors = []
    if row["quantile_error"] is not None:
        errors.append(f"quantiles {row['quantile_error']:.3f}")
    if row["mode_error"] is not None:
        errors.insert(0, f"modes {row['mode_error']:.3f}")
    unclear = f"unclear: {row['unclear']}" if row.get("unclear") else "correct"
    state = f"WRONG: {row['wrong']}" if row["wrong"] else unclear
    return f"{state} ({', '.join(errors)})" if errors else state


def _figures(row: Row) -> list[str]:
    if not right(row):
        return [""] * (len(COLUMNS) - 2)
    cost = row["evaluations_per_ess"]
    return [
        f"{row['ess_per_draw']:.3f}",
        _number(row["ess_per_second"]),
        _number(row["ess_per_second_in_all"]),
        f"{row['setup_seconds']:.1f}",
        *[_time(row, str(goal)) for goal in GOALS],
        "" if cost is None else _number(cost),
        f"{row['cores_had']:.2f}" if "cores_had" in row else "",
    ]


def _time(row: Row, goal: str) -> str:
    return f"{row['seconds_to'][goal]:.1f}" + ("*" if row["extrapolated"][goal] else "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _best(rows: list[Row]) -> set[tuple[int, int]]:
    """The row and column of the best correct entry: rates the largest, seconds the least."""
    correct = [(i, row) for i, row in enumerate(rows) if right(row)]
    if not correct:
        return set()
    best = {(max(correct, key=lambda pair: pair[1]["ess_per_second"])[0], 3)}
    best.add((max(correct, key=lambda pair: pair[1]["ess_per_second_in_all"])[0], 4))
    for column, goal in enumerate(map(str, GOALS), start=6):
        best.add((min(correct, key=lambda pair: pair[1]["seconds_to"][goal])[0], column))
    return best


def right(row: Row) -> bool:
    """Whether a row has figures: it ended, and what it drew is right."""
    return not row.get("failed") and not row["wrong"] and not row.get("unclear")


def ran(row: Row) -> bool:
    """Whether a sampler was there to run."""
    return not str(row.get("failed", "")).endswith("is not installed")


def draw(header: Row, rows: Sequence[Row]) -> Figure:
    """Wall time against effective draws, one panel per target, correct samplers only."""
    if header["suite"] == "growth":
        from involutive.bench.growth import draw as draw_growth

        return draw_growth(header, list(rows))
    from involutive.plotting.panels import panels, style

    names, peers = header["targets"], list(header["peers"])
    columns = min(len(names), 4)
    height = -(-len(names) // columns)
    figure, axes = panels(height, columns, (3.0 * columns, 2.7 * height), sharey=True)
    shown: dict[str, Any] = {}
    for place, name in zip(axes.flat, names, strict=False):
        found = [row for row in rows if row["target"] == name]
        for row in filter(right, found):
            peer, times = row["peer"], [row["seconds_to"][str(goal)] for goal in GOALS]
            look = style(peers.index(peer), linewidth=2.6 if peer == "involutive" else 1.2)
            (shown[peer],) = place.plot(np.asarray(GOALS, float), times, **look)
        others = [row["peer"] for row in found if not right(row) and ran(row)]
        if others:
            words = textwrap.fill("no correct result: " + ", ".join(others), 40)
            place.text(0.03, 0.97, words, transform=place.transAxes, va="top", fontsize=7)
        place.set(xscale="log", yscale="log", title=name, xlabel="effective draws")
    for place in axes[:, 0]:
        place.set_ylabel("seconds in all")
    for place in list(axes.flat)[len(names) :]:
        place.set_visible(False)
    if shown:
        ordered = [peer for peer in peers if peer in shown]
        handles = [shown[peer] for peer in ordered]
        across = min(len(ordered), 2 * columns)  # names that are as wide as the panels
        figure.legend(handles, ordered, loc="outside upper center", ncols=across)
    return figure

"""The table of the suite `field`: the results of each sampler beside published ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from involutive.bench.field.published import PUBLISHED
from involutive.bench.field.suite import FIELD

Row = dict[str, Any]
COLUMNS = (
    "target", "dim", "sampler", "verdict", "log Z", "log Z error", "importance ESS",
    "ESS/draw", "modes found", "modes off by", "W2² (floor)", "evaluations", "seconds",
    "published", "against it",
)  # fmt: skip


def table(header: Row, rows: Sequence[Row], every: bool = True) -> list[str]:
    """Lines of Markdown: one row per target and sampler, then what differs in protocol.

    With `every`, targets of the suite that this run did not reach have a row that says so.
    """
    names = dict.fromkeys([*(FIELD if every else ()), *header["targets"]])
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    for target in names:
        if target in header["left_out"]:
            lines.append(_line([target, "", "", f"left out: {header['left_out'][target]}"]))
            continue
        found = [row for row in rows if row["target"] == target]
        for peer in dict.fromkeys(row["peer"] for row in found):
            seeds = [row for row in found if row["peer"] == peer]
            lines.append(_line(_cells(target, peer, seeds)))
        if not found:
            lines.append(_line([target, "", "", "not run"]))
    return [*lines, "", *_notes(header)]


def _line(cells: Sequence[str]) -> str:
    padded = [*cells, *[""] * (len(COLUMNS) - len(cells))]
    return "| " + " | ".join(cell.replace("|", "/") for cell in padded) + " |"


def _cells(target: str, peer: str, seeds: list[Row]) -> list[str]:
    """The cells of one sampler on one target, means over seeds."""
    ended = [row for row in seeds if not row.get("failed")]
    if not ended:
        return [target, "", peer, seeds[0]["failed"]]
    published = "; ".join(
        f"{each.value:g} ({each.words}; {each.source})" for each in PUBLISHED.get(target, ())
    )
    off, low, high = (mean(ended, key) for key in ("w2", "w2_floor", "w2_floor_most"))
    evaluations = mean(ended, "evaluations")
    return [
        target, str(ended[0]["dim"]), peer, verdict(ended), _log_z(ended), _error(ended),
        _number(mean(ended, "importance_share")), _number(mean(ended, "ess_per_draw")),
        ended[0]["modes_seen"], _number(mean(ended, "mode_error")),
        "" if off is None else f"{off:.3g} ({low:.3g} to {high:.3g})",
        "" if evaluations is None else f"{evaluations:,.0f}",
        f"{np.mean([row['setup_seconds'] + row['sampling_seconds'] for row in ended]):.1f}",
        published or "none with a named source",
        against(target, ended) if peer == "involutive" else "",
    ]  # fmt: skip


def verdict(ended: list[Row]) -> str:
    """Correct, unclear or wrong, counted over seeds."""
    states = ["WRONG" if row["wrong"] else "unclear" if row["unclear"] else "correct"
              for row in ended]  # fmt: skip
    if len(states) == 1:
        return states[0]
    return ", ".join(
        f"{state} {states.count(state)}/{len(states)}" for state in sorted(set(states))
    )


def mean(rows: list[Row], key: str) -> float | None:
    """The mean of a metric over the rows that have it."""
    found = [row[key] for row in rows if row.get(key) is not None]
    return float(np.mean(found)) if found else None


def _log_z(rows: list[Row]) -> str:
    if not any("log_z" in row for row in rows):
        return ""
    value, error = mean(rows, "log_z"), mean(rows, "log_z_stated")
    if value is None:
        return "withheld"
    return f"{value:.4f}" + ("" if error is None else f" ± {error:.2g}")


def _error(rows: list[Row]) -> str:
    """Of the published protocol where there is one, and of the sampler's own estimate."""
    repeats = mean(rows, "log_z_error")
    own = [abs(row["log_z_off"]) for row in rows if row.get("log_z_off") is not None]
    parts = [] if repeats is None else [f"{repeats:.3g} (10 × 2000)"]
    return ", ".join(parts + ([f"{np.mean(own):.3g} (own)"] if own else []))


def against(target: str, rows: list[Row]) -> str:
    """Whether ours is ahead of each published value of the same quantity."""
    words = []
    for each in PUBLISHED.get(target, ()):
        ours = mean(rows, each.metric) if each.metric else None
        if ours is None:
            continue
        floor = mean(rows, f"{each.metric}_floor")
        better = ours >= each.value if each.metric == "importance_share" else ours <= each.value
        state = "ahead" if better else "behind"
        if floor is not None and each.value < 0.9 * floor:
            state = "below the floor of exact draws"
        words.append(f"{state}: {ours:.3g} against {each.value:g}")
    return "; ".join(words)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _notes(header: Row) -> list[str]:
    """What the columns mean, and where protocols differ."""
    lines = [
        "log Z error: mean absolute error of ten importance estimates of 2000 draws each (the "
        "protocol of fab-jax; theirs is over 5 trained seeds, ours over the seeds of this run), "
        "and of the sampler's own estimate. Importance ESS: effective share of the importance "
        "weights. W2²: unregularised, 2000 draws against 2000 reference draws, mean squared "
        "distance; the floor, in brackets, is the same distance between sets of reference draws, "
        "the minimum and maximum of three. Published Sinkhorn distances are entropic and were "
        "computed from other draws. Evaluations and seconds include learning and warm-up; a "
        "gradient counts as three. Samplers start from N(0, spread² I) in the coordinates of the "
        "density.",
        "",
    ]
    for name in FIELD:
        if name not in header["targets"] or name in header["left_out"]:
            continue
        known = FIELD[name]
        words = [f"spread {known.spread:g}"] if known.spread != 3.0 else []
        words += [known.protocol] if known.protocol else []
        if words:
            lines.append(f"- {name}: {'; '.join(words)}.")
    return lines

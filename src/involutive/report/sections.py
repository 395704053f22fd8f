"""Sections on what a run found: its modes and its evidence."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from involutive.diagnostics.measured import Estimate, Evidence
from involutive.diagnostics.modes import Modes
from involutive.report.svg import INK, inline, panels

COLOURS = ("#2a78c8", "#c8502a", "#3a9a5a", "#8a4fb0", "#b8860b", "#2a9aa8", "#c03a78", "#6a6a6a")
POINTS = 1500  # draws of a picture; more hide one another
WIDTH = 7.2  # inches


@dataclass
class Section:
    """A heading with what stands under it."""

    anchor: str
    title: str
    body: str


def drawing(figure: Any, name: str, alternative: str, caption: str) -> str:
    """A figure with its caption, and what it shows in words."""
    image = inline(figure, f"figure-{name}", alternative)
    return (
        f'<figure><div class="wide drawing" tabindex="0" role="group" '
        f'aria-label="{escape(alternative, quote=True)}">{image}</div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def table(rows: list[dict[str, str]], label: str) -> str:
    """Rows as a table that scrolls inside the page."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row.values()) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(label, quote=True)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def modes_section(found: Modes, shown: Mapping[str, np.ndarray]) -> Section:
    """One line, and where there are several modes a table and the pairs `shown` by mode."""
    body = f"<p>{escape(found.line[0].upper() + found.line[1:])}.</p>"
    if len(found) > 1:
        body += table(found.table(), "Table of modes")
        body += "<p class='note'>Parameters: mean ± sd of the draws inside a mode.</p>"
    if len(found) > 1 and len(shown) > 1:
        caption = "Draws coloured by mode; each number stands at the middle of its mode."
        alternative = "Pairs of parameters coloured by mode"
        body += drawing(mode_pairs(shown, found.labels), "modes", alternative, caption)
    return Section("modes", "Modes", body)


def mode_pairs(rows: Mapping[str, np.ndarray], labels: np.ndarray) -> Any:
    """Every two quantities against each other, a colour per mode."""
    names = list(rows)
    count = len(names) - 1
    figure, axes = panels(count, count, (min(WIDTH, 2.4 * count + 1.2), 2.3 * count + 0.4))
    some = np.unique(np.linspace(0, labels.size - 1, min(POINTS, labels.size)).astype(int))
    colour = [COLOURS[k % len(COLOURS)] for k in labels.ravel()[some]]
    for i in range(count):
        for j in range(count):
            axis = axes[i, j]
            if j > i:
                axis.set_axis_off()
                continue
            x, y = rows[names[j]].ravel()[some], rows[names[i + 1]].ravel()[some]
            axis.scatter(x, y, c=colour, s=3, linewidths=0, rasterized=True)
            for k in np.unique(labels)[:24]:
                inside = labels == k
                at = [np.median(rows[name][inside]) for name in (names[j], names[i + 1])]
                axis.annotate(str(k), at, color=INK, fontsize=8, ha="center", va="center")
            axis.set_xlabel(names[j] if i == count - 1 else "")
            axis.set_ylabel(names[i + 1] if j == 0 else "")
    return figure


def evidence_section(found: Evidence) -> Section:
    """The evidence as a verdict, a table, and the reasons against it."""
    verdict = "It can be trusted." if found.trustworthy else "It is not to be trusted yet:"
    items = "".join(f"<li>{escape(reason)}</li>" for reason in found.reasons)
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
        for name, value in found.rows().items()
    )
    body = (
        f"<p>{verdict}</p><ul>{items}</ul>"
        f'<div class="wide"><table class="facts"><tbody>{rows}</tbody></table></div>'
    )
    return Section("evidence", "Evidence", body)


def evidence_from(record: Mapping[str, Any]) -> Evidence:
    """An `Evidence` from its record, as `involutive evidence --json` prints it."""
    sides = {
        side: Estimate(
            *(np.nan if record[side][n] is None else record[side][n] for n in ("log_z", "error"))
        )
        for side in ("importance", "bridge")
    }
    return Evidence(
        log_z=_number(record["log_z"]),
        error=_number(record["error"]),
        pareto_k=_number(record["pareto_k"], -np.inf),
        effective_share=float(record["effective_share"]),
        reasons=tuple(record["reasons"]),
        marginal=record["meaning"] == "log marginal likelihood",
        target=str(record["target"]),
        num_samples=int(record["num_samples"]),
        evaluations=int(record["evaluations"]),
        seconds=float(record["seconds"]),
        **sides,
    )


def _number(value: float | None, missing: float = np.nan) -> float:
    """A number from JSON, which has no NaN and no infinity."""
    return missing if value is None else float(value)

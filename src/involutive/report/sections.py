"""Sections on what a run found: its modes and its evidence."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from involutive.core.types import Figure
from involutive.diagnostics.measured import Estimate, Evidence
from involutive.diagnostics.modes import Modes
from involutive.report.svg import inline


@dataclass
class Section:
    """A heading with what stands under it."""

    anchor: str
    title: str
    body: str


def drawing(figure: Figure, name: str, alternative: str, caption: str) -> str:
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


def modes_section(found: Modes) -> Section:
    """One line, and where there are several modes a table of them."""
    body = f"<p>{escape(found.line[0].upper() + found.line[1:])}.</p>"
    if len(found) > 1:
        body += table(found.table(), "Table of modes")
        body += "<p class='note'>Parameters: mean ± sd of the draws inside a mode.</p>"
    return Section("modes", "Modes", body)


def evidence_section(found: Evidence) -> Section:
    """The evidence as a verdict, a table, and the reasons against it."""
    good = "This estimate can be trusted."
    verdict = good if found.trustworthy else "Do not trust this estimate yet:"
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

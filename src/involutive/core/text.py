"""Small helpers for words and JSON: the one place for each."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, overload

Json = None | bool | int | float | str | list[Any] | dict[str, Any]


def first_line(error: BaseException | str, most: int = 300, named: bool = False) -> str:
    """The first line of an error's message, after its class if `named`, or its class alone."""
    lines, kind = str(error).strip().splitlines(), type(error).__name__
    if not lines:
        return kind
    return f"{kind}: {lines[0]}"[:most] if named else lines[0][:most]


@overload
def as_json(value: Mapping[str, Any]) -> dict[str, Any]: ...


@overload
def as_json(value: object) -> Json: ...


def as_json(value: object) -> Json:
    """Anything as JSON allows it: arrays as lists, infinity and NaN as null, the rest as text."""
    if isinstance(value, Mapping):
        return {str(key): as_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(part) for part in value]
    as_list = getattr(value, "tolist", None)
    if as_list is not None:
        return as_json(as_list())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def decimal(value: float, error: float) -> str:
    """A number with the digits that its error leaves: two digits of the error are shown.

    A value of 5 with an error of 0.001 is `5.0000`, one of 10000 with an error of 100 is `10000`.
    Without a usable error, four digits.
    """
    if not math.isfinite(value):
        return "-" if math.isnan(value) else str(value)
    if not (math.isfinite(error) and error > 0):
        return f"{value:.4g}"
    places = 1 - math.floor(math.log10(error))
    size = max(abs(value), error)
    if size >= 1e7 or size < 1e-4:
        return f"{value:.{max(0, min(places + math.floor(math.log10(size)), 15))}e}"
    return f"{round(value, places):.{max(0, places)}f}"


def in_words(parameters: Mapping[str, Any], most: int = 12) -> str:
    """Values by name as a message shows them: `A = 1.2, phi = [0.5, 3.1]`."""

    def number(value: Any) -> str:
        if isinstance(value, list):
            shown = [number(part) for part in value[:most]]
            return f"[{', '.join(shown)}{', …' if len(value) > most else ''}]"
        return f"{value:.6g}" if isinstance(value, float) else str(value)

    shown = [f"{name} = {number(value)}" for name, value in parameters.items()]
    return ", ".join(shown[:most]) + (", …" if len(shown) > most else "")


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Render rows as a Markdown table, numbers with four significant digits."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(map(_cell, columns)) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(_cell(row.get(c, "")) for c in columns) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def text_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows as aligned text under the names of the first row's columns."""
    lines = [{name: name for name in rows[0]}, *rows]
    width = {name: max(len(line[name]) for line in lines) for name in rows[0]}
    return "\n".join("  ".join(f"{line[n]:>{w}}" for n, w in width.items()) for line in lines)


def html_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows as an HTML table under the names of the first row's columns."""
    head = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row.values()) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|")

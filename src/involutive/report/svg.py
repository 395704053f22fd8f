"""Matplotlib figures as SVG inside the page: no file, no font, no request; black follows the page.

Text stays text (it can be searched and read aloud), many-point layers are embedded pictures.
"""

import io
import re
from html import escape
from typing import Any

import numpy as np

from involutive.core.types import Figure
from involutive.plotting.canvas import INK, tidy

_HEAD = re.compile(r"^.*?(?=<svg )", re.DOTALL)
_DATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_SIZE = re.compile(r'(<svg [^>]*?)width="([\d.]+)pt" height="([\d.]+)pt"([^>]*>)')


def panels(
    rows: int, columns: int, size: tuple[float, float], **options: Any
) -> tuple[Figure, np.ndarray]:
    """Return a figure without background and its axes `(rows, columns)`."""
    from matplotlib import figure as matplotlib_figure

    figure = matplotlib_figure.Figure(figsize=size, layout="constrained", facecolor="none")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for axis in axes.flat:
        axis.set_facecolor("none")
    return figure, tidy(axes)


def inline(figure: Figure, name: str, alternative: str) -> str:
    """Return a figure as an `<svg>` element that says what it shows."""
    import matplotlib

    page = io.StringIO()
    options = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,  # the same ids in every report, different ones in every figure
        "font.family": "sans-serif",
        "font.size": 9,
    }
    with matplotlib.rc_context(options):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(page, format="svg", transparent=True, metadata=nothing, dpi=110)
    text = _DATA.sub("", _HEAD.sub("", page.getvalue()))
    label = f'role="img" aria-label="{escape(alternative, quote=True)}" class="figure" '
    text = _SIZE.sub(
        r"\1" + label + r'style="max-width:calc(1.25*\2pt)"\4',
        text,
        count=1,
    )
    text = text.replace('id="', f'id="{name}-').replace('"#', f'"#{name}-')
    text = text.replace("url(#", f"url(#{name}-")
    return text.replace(INK, "currentColor")

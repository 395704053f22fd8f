"""How figures look: labelled, readable in greyscale, drawn without a display."""

from typing import Any

import numpy as np

from involutive.core.types import Axes, Figure

# told apart by dash and marker as well as by colour, and from dark to light
STYLES = (
    {"color": "#000000", "linestyle": "-", "marker": "o"},
    {"color": "#b2182b", "linestyle": "--", "marker": "s"},
    {"color": "#2166ac", "linestyle": "-.", "marker": "^"},
    {"color": "#999999", "linestyle": ":", "marker": "D"},
    {"color": "#5aae61", "linestyle": (0, (5, 1)), "marker": "v"},
    {"color": "#8a5a00", "linestyle": (0, (6, 2)), "marker": "x"},
    {"color": "#7b3294", "linestyle": (0, (1, 1)), "marker": "P"},
    {"color": "#e08214", "linestyle": (0, (4, 1, 1, 1, 1, 1)), "marker": "*"},
    {"color": "#35978f", "linestyle": (0, (3, 3)), "marker": "<"},
    {"color": "#c51b7d", "linestyle": (0, (8, 2, 2, 2)), "marker": ">"},
    {"color": "#4d4d4d", "linestyle": (0, (1, 3)), "marker": "h"},
)
SHADES = "Greys"


def panels(
    rows: int, columns: int, size: tuple[float, float], **options: Any
) -> tuple[Figure, np.ndarray]:
    """Return a figure and its axes `(rows, columns)`; `size` is that of the whole, in inches."""
    from matplotlib import figure as matplotlib_figure

    figure = matplotlib_figure.Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def style(number: int, **changes: Any) -> dict[str, Any]:
    """Line style of the number-th curve."""
    return STYLES[number % len(STYLES)] | {"markersize": 4.0, "linewidth": 1.4} | changes


def density_image(axes: Axes, points: np.ndarray, extent: float, bins: int = 60) -> None:
    """Draw the density of points in the plane on the square of half-width `extent`."""
    edges = np.linspace(-extent, extent, bins + 1)
    counts, _, _ = np.histogram2d(points[:, 0], points[:, 1], bins=[edges, edges])
    box = (-extent, extent, -extent, extent)
    # the square root keeps single draws visible beside full modes
    axes.imshow(np.sqrt(counts.T), origin="lower", extent=box, cmap=SHADES, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])


def log_axis(axes: Axes, values: np.ndarray) -> None:
    """A logarithmic horizontal axis with a tick at every value."""
    axes.set_xscale("log")
    axes.set_xticks(values, labels=[f"{value:g}" for value in values])
    axes.minorticks_off()

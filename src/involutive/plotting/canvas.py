"""Axes for plots that a person composes: given ones, or those of a new pyplot figure."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from involutive.core.errors import check
from involutive.core.types import AxesLike
from involutive.sampling.draws import Draws
from involutive.sampling.quantities import quantities

Rows = Mapping[str, np.ndarray]
ACCENT, SECOND, INK, SOFT = "#2a78c8", "#c8502a", "#000000", "#888888"
# one colour per mode, repeated after the last
COLOURS = ("#2a78c8", "#c8502a", "#3a9a5a", "#8a4fb0", "#b8860b", "#2a9aa8", "#c03a78", "#6a6a6a")
FEW = 500  # draws below which a tenth of them is too few to show the width of a hill: a guess
SHOWN = 6  # quantities in a plot unless they are named


def canvas(
    rows: int, columns: int, size: tuple[float, float], axes: AxesLike | None = None, **options: Any
) -> np.ndarray:
    """Axes `(rows, columns)`: those given, or of a new figure that notebooks show by themselves.

    Args:
        rows, columns: the shape of the grid.
        size: of a new figure, in inches.
        axes: axes to draw on, as many as the grid has.
        options: for `subplots` of a new figure.
    """
    if axes is not None:
        given = np.asarray(axes, dtype=object)
        check(
            given.size == rows * columns,
            f"axes must hold {rows} × {columns} axes, got {given.size}; leave axes= out",
        )
        return given.reshape(rows, columns)
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=size, layout="constrained")
    return tidy(figure.subplots(rows, columns, squeeze=False, **options))


def tidy(axes: np.ndarray) -> np.ndarray:
    """The same axes with small labels and without the upper and the right edge."""
    for axis in axes.flat:
        axis.tick_params(labelsize=8)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    return axes


def chosen(draws: Draws, names: Iterable[str] | str | None, most: int = SHOWN) -> dict[str, Any]:
    """The named quantities `(chains, draws)`, angles unwrapped; by default the first few.

    A name is that of a scalar (`theta[2]`) or of a variable, which stands for all its elements.
    """
    found = draws.derived or quantities(draws.target, draws.positions)
    rows = found.unwrapped()
    if names is None:
        return dict(list(rows.items())[:most])
    wanted = [names] if isinstance(names, str) else list(names)
    picked: dict[str, Any] = {}
    for name in wanted:
        parts = {key: row for key, row in rows.items() if name in (key, key.split("[")[0])}
        known = ", ".join(rows)
        check(bool(parts), f"names must be among {known}, got {name!r}")
        picked |= parts
    return picked


def bin_edges(values: np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
    """Edges of a histogram by the data: Freedman and Diaconis' width of the narrowest hill.

    Their width, 2 IQR n^(-1/3), takes the quartiles of one hill. Of draws in several modes the
    smallest quartile range of a mode with a twentieth of them is used; where modes are not known,
    5.37 times the shortest interval that holds a tenth of the draws, which is the quartile range
    of a normal.
    """
    values = np.asarray(values, float).ravel()
    low, high = np.quantile(values, [0.0005, 0.9995])
    if not high > low:
        return np.linspace(low - 0.5, low + 0.5, 13)
    parts = [values]
    if labels is not None:
        flat = labels.ravel()
        parts += [values[flat == k] for k in np.unique(flat) if np.mean(flat == k) >= 0.05]
    ranges = [np.subtract(*np.quantile(part, [0.75, 0.25])) for part in parts]
    if labels is None and len(values) >= FEW:
        rising, tenth = np.sort(values), len(values) // 10
        ranges.append(5.37 * float((rising[tenth:] - rising[:-tenth]).min()))
    spread = min((r for r in ranges if r > 0), default=high - low)
    width = 2 * spread * len(values) ** (-1 / 3)
    count = int(np.clip((high - low) / width, 12, 160))
    pad = 0.02 * (high - low)
    return np.linspace(low - pad, high + pad, count + 1)

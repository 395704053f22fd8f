"""Pair plots: every two quantities against each other, each alone on the diagonal."""

from collections.abc import Iterable, Mapping

import numpy as np

from involutive.core.types import Axes, AxesLike, Number
from involutive.diagnostics.modes import line_of
from involutive.plotting.canvas import ACCENT, COLOURS, INK, Rows, bin_edges, canvas, chosen
from involutive.sampling.draws import Draws

POINTS = 1500  # draws of a panel; more hide one another
MASSES = (0.9, 0.5)  # of all draws, inside the outer and the inner contour
BINS = 64  # of a panel's histogram, per axis, before it is smoothed
NAMED = 8  # modes in the legend


def plot_pair(
    draws: Draws,
    names: Iterable[str] | str | None = None,
    modes: bool = True,
    truths: Mapping[str, Number] | None = None,
    axes: AxesLike | None = None,
) -> np.ndarray:
    """See `Draws.plot_pair`."""
    rows = chosen(draws, names)
    labels, weights = None, None
    if modes and line_of(draws) is not None:
        found = draws.modes()
        labels, weights = found.labels, [mode.weight for mode in found]
    return pair_grid(rows, labels, weights, truths, axes)


def pair_grid(
    rows: Rows,
    labels: np.ndarray | None = None,
    weights: list[float] | None = None,
    truths: Mapping[str, Number] | None = None,
    axes: AxesLike | None = None,
) -> np.ndarray:
    """Draw quantities `(chains, draws)`, coloured by the modes `labels` of their draws."""
    names, count = list(rows), len(rows)
    side = min(9.0, 1.9 * count + 1.2)
    grid = canvas(count, count, (side, side), axes)
    several = labels is not None and len(np.unique(labels)) > 1
    for (i, j), axis in np.ndenumerate(grid):
        if j > i:
            axis.set_axis_off()
        elif i == j:
            _alone(axis, rows[names[i]], labels if several else None)
        else:
            _together(axis, rows[names[j]], rows[names[i]], labels if several else None)
        _label(axis, names, i, j, truths or {})
    if several and labels is not None and count > 1:
        _legend(grid[0, -1], labels, weights)
    return grid


def _alone(axis: Axes, values: np.ndarray, labels: np.ndarray | None) -> None:
    edges = bin_edges(values, labels).tolist()
    if labels is None:
        axis.hist(values.ravel(), bins=edges, color=ACCENT, alpha=0.75)
    else:
        known = np.unique(labels)
        parts = [values[labels == k] for k in known]
        axis.hist(parts, bins=edges, stacked=True, color=[_colour(k) for k in known], alpha=0.8)
    axis.set_yticks([])
    axis.set_xlim(edges[0], edges[-1])


def _together(axis: Axes, x: np.ndarray, y: np.ndarray, labels: np.ndarray | None) -> None:
    some = np.unique(np.linspace(0, x.size - 1, min(POINTS, x.size)).astype(int))
    colour = ACCENT if labels is None else [_colour(k) for k in labels.ravel()[some]]
    at = x.ravel()[some], y.ravel()[some]
    axis.scatter(*at, c=colour, s=4, linewidths=0, alpha=0.6, rasterized=True)
    _contours(axis, x.ravel(), y.ravel(), labels)


def _contours(axis: Axes, x: np.ndarray, y: np.ndarray, labels: np.ndarray | None) -> None:
    """Lines around the densest places that hold the masses named above."""
    from scipy.ndimage import gaussian_filter

    edges = [
        np.linspace(e[0], e[-1], BINS + 1) for e in (bin_edges(x, labels), bin_edges(y, labels))
    ]
    counts, _, _ = np.histogram2d(x, y, bins=edges)
    if x.size < 200 or np.ptp(x) == 0 or np.ptp(y) == 0:  # too few to tell where they are dense
        return
    smooth = gaussian_filter(np.pad(counts, 2), 1.3 if x.size > 5000 else 2.2)
    falling = np.sort(smooth.ravel())[::-1]
    share = np.cumsum(falling) / falling.sum()
    levels = [falling[np.searchsorted(share, mass)] for mass in MASSES]
    middles = []
    for edge in edges:
        step = edge[1] - edge[0]
        middles.append(np.linspace(edge[0] - 1.5 * step, edge[-1] + 1.5 * step, BINS + 4))
    if levels[0] < levels[1]:
        axis.contour(*middles, smooth.T, levels=levels, colors=INK, linewidths=(0.7, 1.1))


def _label(axis: Axes, names: list[str], i: int, j: int, truths: Mapping[str, Number]) -> None:
    last = i == len(names) - 1
    if j <= i:
        axis.set_xlabel(names[j] if last else "")
        axis.set_ylabel(names[i] if j == 0 and i > 0 else "")
        axis.tick_params(labelbottom=last, labelleft=j == 0 and i > 0)
        if names[j] in truths:
            axis.axvline(float(truths[names[j]]), color=INK, lw=1.0, ls="--")
        if i != j and names[i] in truths:
            axis.axhline(float(truths[names[i]]), color=INK, lw=1.0, ls="--")
    if i == j and len(names) > 1 and not last:
        axis.set_title(names[i], fontsize=9)


def _legend(axis: Axes, labels: np.ndarray, weights: list[float] | None) -> None:
    known = np.unique(labels)
    shares = weights or [float(np.mean(labels == k)) for k in known]
    for k, share in list(zip(known, shares, strict=False))[:NAMED]:
        axis.scatter([], [], c=_colour(k), s=18, label=f"mode {k}: {share:.1%}")
    title = f"{len(known)} modes" if len(known) > NAMED else None
    axis.legend(loc="upper left", fontsize=8, frameon=False, title=title, labelcolor=INK)


def _colour(mode: int) -> str:
    return COLOURS[int(mode) % len(COLOURS)]

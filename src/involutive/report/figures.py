"""The figures of a report. Each takes named quantities `(chains, draws)` and returns a figure."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from involutive.core.statistics import autocorrelation
from involutive.core.types import Axes, Figure
from involutive.plotting.canvas import ACCENT, INK, SECOND, Rows, bin_edges
from involutive.plotting.moves import arrows as draw_arrows
from involutive.plotting.outcome import by_stage, loss_curve
from involutive.plotting.pairs import pair_grid
from involutive.plotting.traces import trace_grid
from involutive.report.svg import panels

WIDTH = 7.2  # inches


def densities(rows: Rows, labels: np.ndarray | None = None) -> Figure:
    """One histogram per quantity: all draws, and four groups of chains over it."""
    figure, axes = _grid(len(rows), 3, 1.7)
    for axis, (name, values) in zip(axes, rows.items(), strict=False):
        edges = bin_edges(values, labels)
        axis.hist(values.ravel(), bins=edges, density=True, color=ACCENT, alpha=0.35)
        for part in np.array_split(values, min(4, len(values))):
            axis.hist(part.ravel(), bins=edges, density=True, histtype="step", color=INK, lw=0.6)
        axis.set_title(name, fontsize=9)
        axis.set_yticks([])
    return figure


def pairs(
    rows: Rows, labels: np.ndarray | None = None, truths: Mapping[str, float] | None = None
) -> Figure:
    """Every two quantities against each other, coloured by mode, each alone on the diagonal."""
    count = len(rows)
    side = min(WIDTH, 2.0 * count + 1.2)
    figure, axes = panels(count, count, (side, side))
    pair_grid(rows, labels, truths=truths, axes=axes)
    return figure


def ranks(rows: Rows) -> Figure:
    """Of each chain, the share of its draws below rank r, less r: flat lines agree.

    The band holds 95% of what independent draws of that number would show at one place.
    """
    figure, axes = _grid(len(rows), 2, 1.9)
    for axis, (name, values) in zip(axes, rows.items(), strict=False):
        order = values.ravel().argsort(kind="stable").argsort().reshape(values.shape)
        places = (np.sort(order, axis=1) + 0.5) / order.size
        share = (np.arange(values.shape[1]) + 0.5) / values.shape[1]
        keep = np.unique(np.linspace(0, values.shape[1] - 1, 60).astype(int))
        for chain in places:
            axis.plot(chain[keep], (share - chain)[keep], color=ACCENT, lw=0.5, alpha=0.6)
        grid = np.linspace(0, 1, 60)
        band = 1.96 * np.sqrt(grid * (1 - grid) / values.shape[1])
        for side in (band, -band):
            axis.plot(grid, side, color=INK, lw=0.8, ls="--")
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("rank among all draws, as a share", fontsize=8)
        axis.set_ylabel("excess", fontsize=8)
    return figure


def traces(rows: Rows, chains: int = 4) -> Figure:
    """The path of a few chains, one per panel."""
    shown = min(chains, len(next(iter(rows.values()))))
    size = (WIDTH, 1.25 * len(rows) + 0.4)
    figure, axes = panels(len(rows), shown, size, sharex=True, sharey="row")
    trace_grid(rows, chains, axes)
    return figure


def autocorrelations(rows: Rows, most: int = 40) -> Figure:
    """Autocorrelation around the mean of all chains; a chain's own would hide that it stays."""
    figure, axes = panels(1, 1, (WIDTH, 2.4))
    axis = axes[0, 0]
    styles = [(c, s) for s in ("-", "--", ":") for c in (ACCENT, SECOND, INK, "#888888")]
    for (name, values), (colour, style) in zip(rows.items(), styles, strict=False):
        lags = min(most, values.shape[1] - 1)
        if np.ptp(values) > 0:
            curve = autocorrelation(np.asarray(values, float), lags)
            axis.plot(curve, color=colour, ls=style, lw=1.2, label=name)
    axis.axhline(0.0, color="#888888", lw=0.6)
    axis.set(xlabel="lag (draws)", ylabel="autocorrelation", ylim=(-0.2, 1.05))
    if axis.get_legend_handles_labels()[0]:  # none where every quantity is constant
        axis.legend(fontsize=7, ncols=3, frameon=False, labelcolor=INK, loc="upper center")
    return figure


def acceptance(rates: np.ndarray, sizes: np.ndarray, slowest: str) -> Figure:
    """Two bars per chain: how often it moved, and how many effective draws that bought."""
    figure, axes = panels(1, 2, (WIDTH, 2.2))
    chains = np.arange(len(rates))
    axes[0, 0].vlines(chains, 0, rates, color=ACCENT, lw=2)
    axes[0, 0].set(xlabel="chain", ylabel="acceptance", ylim=(0, 1.05))
    axes[0, 1].vlines(chains, 0, sizes, color=SECOND, lw=2)
    top = max(1.05, 1.1 * float(np.nanmax(sizes, initial=0.0)))
    axes[0, 1].set(xlabel="chain", ylabel=f"ESS per draw ({slowest})", ylim=(0, top))
    return figure


def mode_bars(share: np.ndarray, exact: np.ndarray) -> Figure:
    """Visited and exact weights of the modes."""
    figure, axes = panels(1, 1, (WIDTH, 2.0))
    at = np.arange(len(exact))
    axes[0, 0].bar(at - 0.2, share, 0.4, color=ACCENT, label="visited")
    axes[0, 0].bar(at + 0.2, exact, 0.4, color="none", edgecolor=INK, hatch="//", label="exact")
    axes[0, 0].set(xlabel="mode", ylabel="weight", xticks=at)
    above = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.1}
    axes[0, 0].legend(fontsize=8, frameon=False, labelcolor=INK, ncols=2, **above)
    return figure


def arrows(found: dict[str, Any]) -> Figure:
    """φ → φ' for some draws, over the cloud of all; faint where rejection is likely."""
    line = np.atleast_2d(found["start"]).shape[1] == 1
    figure, axes = panels(1, 1, (WIDTH, 2.4) if line else (5.0, 4.4))
    draw_arrows(found, axes)
    return figure


def learning_curves(history: list[dict[str, Any]]) -> Any | None:
    """What each stage of training measured on held-out draws, chunk by chunk."""
    stages = by_stage(history)
    if not stages:
        return None
    figure, axes = panels(1, len(stages), (WIDTH, 2.3))
    for axis, (stage, rows) in zip(axes[0], stages.items(), strict=True):
        loss_curve(axis, stage, rows)
    return figure


def bound_curve(curve: list[dict[str, Any]]) -> Figure:
    """The bound on the symmetric KL divergence against steps, with its 95% interval."""
    figure, axes = panels(1, 1, (WIDTH, 2.4))
    steps, bound = [r["steps"] for r in curve], np.array([r["bound"] for r in curve])
    low, high = np.array([r["low"] for r in curve]), np.array([r["high"] for r in curve])
    axes[0, 0].errorbar(
        steps, bound, [bound - low, high - bound], fmt="o-", color=ACCENT, capsize=3, ms=4
    )
    axes[0, 0].axhline(0.0, color="#888888", lw=0.6)
    axes[0, 0].set(xlabel="steps from X", ylabel="bound, nats")
    _whole(axes[0, 0])
    return figure


def _whole(axis: Axes) -> None:
    """Ticks at whole numbers only, a few of them."""
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def _grid(count: int, columns: int, height: float) -> tuple[Any, list[Any]]:
    """Axes for `count` panels in rows of `columns`, the rest hidden."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure, axes = panels(rows, columns, (WIDTH, height * rows + 0.3))
    for axis in axes.flat[count:]:
        axis.set_axis_off()
    return figure, list(axes.flat[:count])

"""The figures of a report. Each takes named quantities `(chains, draws)` and returns a figure."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from involutive.core.statistics import autocorrelation
from involutive.report.svg import ACCENT, INK, SECOND, panels, shades

Rows = Mapping[str, np.ndarray]
WIDTH = 7.2  # inches
LINES = 400  # points of a line; more are not seen


def densities(rows: Rows) -> Any:
    """One histogram a quantity: all draws, and four groups of chains over it."""
    figure, axes = _grid(len(rows), 3, 1.7)
    for axis, (name, values) in zip(axes, rows.items(), strict=False):
        edges = _edges(values)
        axis.hist(values.ravel(), bins=edges, density=True, color=ACCENT, alpha=0.35)
        for part in np.array_split(values, min(4, len(values))):
            axis.hist(part.ravel(), bins=edges, density=True, histtype="step", color=INK, lw=0.6)
        axis.set_title(name, fontsize=9)
        axis.set_yticks([])
    return figure


def pairs(rows: Rows) -> Any:
    """Every two quantities against each other, as shades."""
    names = list(rows)
    count = len(names)
    figure, axes = panels(
        count - 1, count - 1, (min(WIDTH, 2.4 * (count - 1) + 1.2), 2.3 * (count - 1) + 0.4)
    )
    for i in range(count - 1):
        for j in range(count - 1):
            axis, x, y = axes[i, j], rows[names[j]], rows[names[i + 1]]
            if j > i:
                axis.set_axis_off()
                continue
            bins = [_edges(x, 60), _edges(y, 60)]
            counts, _, _ = np.histogram2d(x.ravel(), y.ravel(), bins=bins)
            # the square root keeps single draws visible beside full modes
            axis.pcolormesh(*bins, np.sqrt(counts.T), cmap=shades(), rasterized=True)
            axis.set_xlabel(names[j] if i == count - 2 else "")
            axis.set_ylabel(names[i + 1] if j == 0 else "")
    return figure


def ranks(rows: Rows) -> Any:
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


def traces(rows: Rows, chains: int = 4) -> Any:
    """The path of a few chains."""
    figure, axes = panels(len(rows), 1, (WIDTH, 1.25 * len(rows) + 0.3), sharex=True)
    for axis, (name, values) in zip(axes[:, 0], rows.items(), strict=True):
        step = max(1, values.shape[1] // LINES)
        at = np.arange(0, values.shape[1], step)
        for k, style in zip(range(min(chains, len(values))), ("-", "--", "-.", ":"), strict=False):
            colour = (ACCENT, SECOND, INK, "#888888")[k]
            axis.plot(at, values[k, at], lw=0.6, ls=style, color=colour, label=f"chain {k}")
        axis.set_ylabel(name, fontsize=8)
    axes[-1, 0].set_xlabel("draw")
    outside = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "borderaxespad": 0.1}
    axes[0, 0].legend(fontsize=7, ncols=4, frameon=False, labelcolor=INK, **outside)
    return figure


def autocorrelations(rows: Rows, most: int = 40) -> Any:
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
        axis.legend(fontsize=7, ncols=3, frameon=False, labelcolor=INK)
    return figure


def acceptance(rates: np.ndarray, sizes: np.ndarray, slowest: str) -> Any:
    """Two bars a chain: how often it moved, and how many effective draws that bought."""
    figure, axes = panels(1, 2, (WIDTH, 2.2))
    chains = np.arange(len(rates))
    axes[0, 0].vlines(chains, 0, rates, color=ACCENT, lw=2)
    axes[0, 0].set(xlabel="chain", ylabel="acceptance", ylim=(0, 1.05))
    axes[0, 1].vlines(chains, 0, sizes, color=SECOND, lw=2)
    top = max(1.05, 1.1 * float(np.nanmax(sizes, initial=0.0)))
    axes[0, 1].set(xlabel="chain", ylabel=f"ESS per draw ({slowest})", ylim=(0, top))
    return figure


def mode_bars(share: np.ndarray, exact: np.ndarray) -> Any:
    """Visited and exact weights of the modes."""
    figure, axes = panels(1, 1, (WIDTH, 2.0))
    at = np.arange(len(exact))
    axes[0, 0].bar(at - 0.2, share, 0.4, color=ACCENT, label="visited")
    axes[0, 0].bar(at + 0.2, exact, 0.4, color="none", edgecolor=INK, hatch="//", label="exact")
    axes[0, 0].set(xlabel="mode", ylabel="weight", xticks=at)
    axes[0, 0].legend(fontsize=8, frameon=False, labelcolor=INK, ncols=2)
    return figure


def arrows(found: Mapping[str, Any]) -> Any:
    """φ → φ' for some draws, over the cloud of all; faint where rejection is likely."""
    start, end = np.atleast_2d(found["start"]), np.atleast_2d(found["end"])
    cloud, rate = np.atleast_2d(found["cloud"]), np.asarray(found["acceptance"])
    line = start.shape[1] == 1
    figure, axes = panels(1, 1, (WIDTH if line else 5.0, 2.4 if line else 4.4))
    axis = axes[0, 0]
    if line:  # on the line: from the lower row to the upper
        start, end = (np.c_[x[:, 0], np.full(len(x), h)] for x, h in ((start, 0.0), (end, 1.0)))
        axis.set(xlabel=found["axes"][0], yticks=[0, 1], yticklabels=["φ", "φ'"])
        axis.plot(cloud[:, 0], np.zeros(len(cloud)), "|", color=ACCENT, alpha=0.4)
    else:
        axis.plot(*cloud[:, :2].T, ".", ms=2, color=ACCENT, alpha=0.5, rasterized=True)
        axis.set(xlabel=found["axes"][0], ylabel=found["axes"][1])
    for (x, y), (u, v), chance in zip(start, end, rate, strict=True):
        style = {"arrowstyle": "->", "lw": 0.8, "color": INK, "alpha": 0.15 + 0.65 * chance}
        axis.annotate("", xy=(u, v), xytext=(x, y), arrowprops=style)
    both = np.concatenate([start, end])
    axis.update_datalim(both)
    axis.autoscale_view()
    return figure


def learning_curves(history: list[dict[str, Any]]) -> Any | None:
    """What each stage of training measured on held-out draws, chunk by chunk."""
    stages: dict[str, list[dict[str, Any]]] = {}
    for row in history:
        if row.get("held_out") is not None and row.get("step") is not None:
            stages.setdefault(str(row["stage"]), []).append(row)
    if not stages:
        return None
    figure, axes = panels(1, len(stages), (WIDTH, 2.3))
    for axis, (stage, rows) in zip(axes[0], stages.items(), strict=True):
        steps, values = [r["step"] for r in rows], [r["held_out"] for r in rows]
        axis.plot(steps, values, "o-", color=ACCENT, ms=3)
        axis.set(xlabel="training step", ylabel="loss on held-out draws")
        axis.set_title(stage, fontsize=9)
        _whole(axis)
    return figure


def bound_curve(curve: list[dict[str, Any]]) -> Any:
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


def _whole(axis: Any) -> None:
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


def _edges(values: np.ndarray, bins: int = 50) -> np.ndarray:
    low, high = np.quantile(values, [0.001, 0.999])
    pad = 0.02 * (high - low) or 0.5
    return np.linspace(low - pad, high + pad, bins + 1)

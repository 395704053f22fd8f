"""Traces: the path of a few chains, one chain per panel, so that none hides another."""

from collections.abc import Iterable

import numpy as np

from involutive.core.types import AxesLike
from involutive.plotting.canvas import ACCENT, Rows, canvas, chosen
from involutive.sampling.draws import Draws

LINES = 400  # points of a line; more are not seen


def plot_trace(
    draws: Draws,
    names: Iterable[str] | str | None = None,
    chains: int = 4,
    axes: AxesLike | None = None,
) -> np.ndarray:
    """See `Draws.plot_trace`."""
    return trace_grid(chosen(draws, names), chains, axes)


def trace_grid(rows: Rows, chains: int = 4, axes: AxesLike | None = None) -> np.ndarray:
    """One row per quantity, one column per chain; a row shares its vertical axis."""
    available = len(next(iter(rows.values())))
    picked = np.unique(np.linspace(0, available - 1, min(chains, available)).astype(int))
    size = (min(10.0, 2.4 * len(picked) + 0.8), 1.3 * len(rows) + 0.5)
    axes = canvas(len(rows), len(picked), size, axes, sharex=True, sharey="row")
    for i, (name, values) in enumerate(rows.items()):
        step = max(1, values.shape[1] // LINES)
        at = np.arange(0, values.shape[1], step)
        for axis, chain in zip(axes[i], picked, strict=True):
            axis.plot(at, values[chain, at], ".", ms=1.6, color=ACCENT, rasterized=True)
            axis.plot(at, values[chain, at], lw=0.3, color=ACCENT, alpha=0.6)
            if i == 0:
                axis.set_title(f"chain {chain}", fontsize=9)
            if i == len(rows) - 1:
                axis.set_xlabel("draw", fontsize=8)
        axes[i, 0].set_ylabel(name, fontsize=9)
    return axes

"""What learning reached: every proposal that was tried, and the losses of training."""

from typing import TYPE_CHECKING, Any

import numpy as np

from involutive.core.types import Axes, AxesLike
from involutive.plotting.canvas import ACCENT, SECOND, SOFT, canvas

if TYPE_CHECKING:
    from involutive.learning.outcome import Outcome

TRIED = 12  # proposals shown; of more, the last ones
Row = dict[str, Any]


def plot_outcome(outcome: "Outcome", axes: AxesLike | None = None) -> np.ndarray:
    """See `Outcome.plot`."""
    tried = [row for row in outcome.history if row.get("ess") is not None][-TRIED:]
    losses = by_stage(outcome.history)
    count = 1 + len(losses)
    panels = canvas(1, count, (4.4 + 3.2 * len(losses), 1.4 + 0.3 * len(tried)), axes)
    _tried(panels[0, 0], tried, outcome)
    for axis, (stage, rows) in zip(panels[0, 1:], losses.items(), strict=True):
        loss_curve(axis, stage, rows)
    return panels[0]


def by_stage(history: list[Row]) -> dict[str, list[Row]]:
    """The rows of trainings that were judged on held-out draws, by the name of their stage."""
    stages: dict[str, list[Row]] = {}
    for row in history:
        if row.get("held_out") is not None and row.get("step") is not None:
            stages.setdefault(str(row["stage"]), []).append(row)
    return stages


def loss_curve(axis: Axes, stage: str, rows: list[Row]) -> None:
    """The loss of one training on draws that it was not trained on."""
    from matplotlib.ticker import MaxNLocator

    axis.plot([r["step"] for r in rows], [r["held_out"] for r in rows], "o-", color=ACCENT, ms=3)
    axis.set(xlabel="training step", ylabel="loss on held-out draws")
    axis.set_title(stage, fontsize=9)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def _tried(axis: Axes, tried: list[Row], outcome: "Outcome") -> None:
    place = np.arange(len(tried))[::-1] + 1
    axis.barh(place, [row["ess"] for row in tried], color=ACCENT, height=0.6)
    axis.barh(0, np.nan_to_num(outcome.ess_per_draw), color=SECOND, height=0.6)
    names = [str(row["stage"]) for row in tried]
    axis.set_yticks([*place, 0], [*names, "the kernel, measured"], fontsize=8)
    axis.axvline(1.0, color=SOFT, lw=0.8, ls="--")
    axis.set(xlabel="effective draws per draw")
    axis.set_xlim(0, max(1.05, 1.05 * float(np.nan_to_num(outcome.ess_per_draw))))

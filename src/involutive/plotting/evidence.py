"""Bars for models that are compared by their evidence."""

from typing import TYPE_CHECKING

import numpy as np

from involutive.core.types import Figure
from involutive.plotting.canvas import ACCENT, canvas

if TYPE_CHECKING:
    from involutive.diagnostics.compare import Comparison


def comparison_bars(found: "Comparison") -> Figure:
    """Posterior probabilities, and log Bayes factors against the best model, with errors."""
    count = len(found.names)
    axes = canvas(1, 2, (8.0, 1.0 + 0.45 * count))
    place = np.arange(count)[::-1]
    columns = (
        ("posterior probability", found.probability, found.probability_error),
        (
            "log Bayes factor against the best",
            [factor.log_z for factor in found.log_bayes_factor],
            [factor.error for factor in found.log_bayes_factor],
        ),
    )
    for axis, (title, values, errors) in zip(axes[0], columns, strict=True):
        axis.barh(place, values, xerr=errors, color=ACCENT, height=0.6, capsize=3)
        axis.set_yticks(place, found.names if axis is axes[0, 0] else [""] * count)
        axis.set_xlabel(title)
    return axes[0, 0].figure

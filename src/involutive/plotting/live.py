"""Learning as it goes on, in a notebook: points found, proposal, weights of the modes.

The view reads the results that the stages hand to each other, and evaluates nothing: it costs no
evaluation of the density and changes no draw.
"""

import io
import sys

import jax.random as jr
import numpy as np

from involutive.core.errors import check
from involutive.core.types import Axes, Figure
from involutive.kernel.proposals import proposal_distribution
from involutive.learning.stages import Fitted, Found
from involutive.plotting.canvas import ACCENT, INK, SECOND, SOFT, tidy
from involutive.targets.target import Target

POINTS = 1000  # of each cloud
MODES = 16  # bars; the heaviest


class LiveView:
    """A figure in a notebook that is redrawn after every stage.

    Args:
        target: the density that is learned, for its name.
    """

    def __init__(self, target: Target):
        check(
            in_notebook(),
            "live=True needs a notebook, and this process is not one; leave it out, and call "
            "kernel.outcome.plot() afterwards",
        )
        self.target, self._handle, self._tried = target, None, []

    def show(self, result: Found | Fitted) -> None:
        """Draw a stage's result in the place of the one before."""
        from IPython.display import Image, display

        if isinstance(result, Fitted):
            self._tried.append(float(result.proposal.ess))
        page = io.BytesIO()  # a figure itself shows in a notebook only where pyplot was imported
        draw_stage(self.target.name, result, self._tried).savefig(page, format="png", dpi=90)
        picture = Image(data=page.getvalue())
        if self._handle is None:
            self._handle = display(picture, display_id=True)
        else:
            self._handle.update(picture)


def in_notebook() -> bool:
    """Whether figures can be shown: a notebook's kernel runs this process."""
    if "IPython" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    return hasattr(get_ipython(), "kernel")


def draw_stage(name: str, result: Found | Fitted, tried: list[float]) -> Figure:
    """Three panels: the points found, draws of the proposal over them, weights of the modes."""
    from matplotlib import figure as matplotlib_figure

    figure = matplotlib_figure.Figure(figsize=(10.0, 3.2), layout="constrained")
    axes = tidy(figure.subplots(1, 3, squeeze=False))[0]
    found = result.found if isinstance(result, Fitted) else result
    _points(axes[0], found)
    if isinstance(result, Fitted):
        _proposal(axes[1], result)
        _weights(axes[2], result)
        figure.suptitle(f"{name}: {tried[-1]:.2f} effective draws per draw", fontsize=10)
    else:
        for axis in axes[1:]:
            axis.set_axis_off()
        figure.suptitle(f"{name}: modes found, the proposal is fitted next", fontsize=10)
    return figure


def _points(axis: Axes, found: Found) -> None:
    _cloud(axis, found.points, SOFT)
    if len(found.tops):
        _cloud(axis, found.tops, SECOND, "x", 5)
    axis.set_title(f"points found, {found.modes} tops", fontsize=9)


def _proposal(axis: Axes, fitted: Fitted) -> None:
    q = proposal_distribution(fitted.proposal.kernel)
    _cloud(axis, fitted.draws, SOFT)
    if q is not None:
        _cloud(axis, np.asarray(q.sample(jr.key(0), (POINTS,))), ACCENT)
    axis.set_title("draws of the proposal, over the target's", fontsize=9)


def _weights(axis: Axes, fitted: Fitted) -> None:
    """The share of draws nearest to each top."""
    tops, draws = fitted.found.tops, fitted.draws
    if len(tops) < 2:
        axis.set_axis_off()
        return
    apart = ((draws[:, None, :] - tops[None]) ** 2).sum(axis=2)
    share = np.bincount(apart.argmin(axis=1), minlength=len(tops)) / len(draws)
    kept = np.sort(share)[::-1][:MODES]
    axis.bar(np.arange(len(kept)), kept, color=ACCENT, edgecolor=INK, lw=0.4)
    axis.set(xlabel="mode, heaviest first", ylabel="share of draws")
    axis.set_title("weights of the modes", fontsize=9)


def _cloud(axis: Axes, points: np.ndarray, colour: str, mark: str = ".", size: float = 3) -> None:
    """Points on their first two coordinates, or on the line."""
    some = np.asarray(points)[:: max(1, len(points) // POINTS)]
    y = some[:, 1] if some.shape[1] > 1 else np.zeros(len(some))
    axis.plot(some[:, 0], y, mark, ms=size, color=colour, alpha=0.6, rasterized=True)
    axis.set(xlabel="first coordinate", ylabel="second coordinate" if some.shape[1] > 1 else "")

"""Where a proposal sends draws: φ → φ' on two axes, with the chance that it is accepted."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from involutive.core.errors import check
from involutive.core.types import Axes, AxesLike
from involutive.kernel.kernel import AbstractKernel, Kernel
from involutive.plotting.canvas import ACCENT, INK, canvas
from involutive.sampling.draws import Draws

ARROWS = 48  # moves drawn; more than these hide one another


def plot_proposal(
    draws: Draws, kernel: AbstractKernel, count: int = ARROWS, axes: AxesLike | None = None
) -> Axes:
    """See `Draws.plot_proposal`."""
    found = moves(draws, kernel, count)
    kind = type(kernel).__name__
    check(
        found is not None,
        f"plot_proposal needs a kernel with one proposal (learned, or inv.Kernel), got {kind}; "
        "plot its parts one by one",
    )
    return arrows(found or {}, axes)


def arrows(found: dict[str, Any], axes: AxesLike | None = None) -> Axes:
    """Arrows for some draws over the cloud of all; faint where rejection is likely."""
    start, end = np.atleast_2d(found["start"]), np.atleast_2d(found["end"])
    cloud, rate = np.atleast_2d(found["cloud"]), np.asarray(found["acceptance"])
    line = start.shape[1] == 1
    axis = canvas(1, 1, (7.2, 2.4) if line else (5.0, 4.4), axes)[0, 0]
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
    axis.update_datalim(np.concatenate([start, end]))
    axis.autoscale_view()
    return axis


def moves(draws: Draws, kernel: AbstractKernel, count: int = ARROWS) -> dict[str, Any] | None:
    """Where the kernel's proposal sends draws, on two axes: φ → φ' with its acceptance.

    The axes are the coordinates in the plane, else the first two principal directions.
    """
    proposal = getattr(kernel, "proposal", kernel)
    if not isinstance(proposal, Kernel):
        return None
    flat = draws.positions.reshape(-1, draws.positions.shape[2])
    rows = flat[np.linspace(0, len(flat) - 1, min(count, len(flat))).astype(int)]
    keys = jr.split(jr.key(0), len(rows))

    def one(key: Array, position: Array) -> tuple[Array, Array]:
        _, info = proposal.step(key, proposal.init(position))
        return info.proposal, info.acceptance_rate

    there, rate = jax.jit(jax.vmap(one))(keys, jnp.asarray(rows))
    there = np.asarray(there)
    keep = np.isfinite(there).all(axis=1)
    centre, axes, names = _axes(flat)
    return {
        "axes": names,
        "start": ((rows[keep] - centre) @ axes.T).round(6).tolist(),
        "end": ((there[keep] - centre) @ axes.T).round(6).tolist(),
        "acceptance": np.asarray(rate)[keep].astype(float).round(6).tolist(),
        "cloud": ((flat[:: max(1, len(flat) // 600)] - centre) @ axes.T).round(4).tolist(),
        "what": type(proposal.involution).__name__,
    }


def _axes(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Centre, two rows to project on (one in one dimension), and their names."""
    dim = flat.shape[1]
    if dim <= 2:
        return np.zeros(dim), np.eye(dim), [f"x[{i}]" for i in range(dim)]
    centre = flat.mean(axis=0)
    spread = np.atleast_2d(np.cov(flat[:: max(1, len(flat) // 20_000)].T))
    directions = np.linalg.eigh(spread)[1][:, ::-1][:, :2].T
    return centre, directions, ["first principal direction", "second principal direction"]

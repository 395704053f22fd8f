"""What the report shows beyond the summary: the moves of the kernel and how it was learned.

Both are plain numbers, kept in the provenance of draws, so that a file of draws is enough to make
the whole report.
"""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from involutive.core.text import as_json
from involutive.kernel.kernel import AbstractKernel, Kernel
from involutive.sampling.draws import Draws

ARROWS = 48  # moves drawn; more than these hide one another


def with_kernel(draws: Draws, kernel: AbstractKernel) -> Draws:
    """Return the draws with the kernel's moves and learning curves in their provenance."""
    return draws.noting(moves=moves(draws, kernel), learning=learning(kernel))


def learning(kernel: AbstractKernel) -> dict[str, Any] | None:
    """The outcome of `learn` as plain numbers, or None for a kernel made by hand."""
    outcome = getattr(kernel, "outcome", None)
    if outcome is None:
        return None
    names = ("acceptance", "ess_per_draw", "r_hat", "rounds", "evaluations", "seconds")
    plain = {name: as_json(getattr(outcome, name)) for name in names}
    rows = [{key: as_json(value) for key, value in row.items()} for row in outcome.history]
    return plain | {
        "converged": bool(outcome.converged),
        "advice": outcome.advice,
        "history": rows,
        "sentence": str(outcome),
    }


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

    def one(key: Any, position: Any) -> tuple[Any, Any]:
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

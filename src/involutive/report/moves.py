"""What the report shows beyond the summary: the moves of the kernel and how it was learned.

Both are plain numbers, kept in the provenance of draws, so that a file of draws is enough to make
the whole report.
"""

from typing import Any

from involutive.core.text import as_json
from involutive.kernel.kernel import AbstractKernel
from involutive.plotting.moves import moves
from involutive.sampling.draws import Draws


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

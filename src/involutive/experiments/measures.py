"""Figures of a run that several experiments report, and the precision they train in."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from involutive.diagnostics.metrics import ess_per_draw, mode_weights
from involutive.sampling.draws import Draws


@contextmanager
def single_precision() -> Iterator[None]:
    """Compute in 32 bits whatever the caller does: networks train in half the time.

    For the whole process, because chains run in threads of their own.
    """
    before = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    jax.config.update("jax_enable_x64", False)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def mode_labels(draws: Draws) -> np.ndarray:
    """The mode of every draw, `(chains, draws)`."""
    import jax.numpy as jnp

    modes = draws.target.modes
    assert modes is not None  # every target of these experiments names its modes
    label = jax.jit(jax.vmap(jax.vmap(modes.label)))
    return np.asarray(label(jnp.asarray(draws.positions)))


def mixing(draws: Draws) -> dict[str, Any]:
    """Acceptance, ESS per draw, how often a step changes the mode, and the modes' weights."""
    labels = mode_labels(draws)
    return {
        "acceptance": float(draws.acceptance_rate.mean()),
        "ESS per draw": float(ess_per_draw(draws).least),
        "mode changes per draw": float(np.mean(labels[:, 1:] != labels[:, :-1])),
        "modes visited, fewest of a chain": int(min(len(set(row.tolist())) for row in labels)),
        "mode weights off by": float(mode_weights(draws).total_variation),
    }


def mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the last axis and its standard error."""
    return values.mean(-1), values.std(-1, ddof=1) / np.sqrt(values.shape[-1])

"""Records draws on the host as they are made."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from involutive.core.errors import check
from involutive.sampling.draws import Draws
from involutive.sampling.trace import Trace
from involutive.storage.format import PathLike
from involutive.targets.target import Target

FIELDS: tuple[str, ...] = (
    "positions",
    "log_density",
    "accepted",
    "acceptance_rate",
    "nonfinite",
    "irreversible",
)


class Recorder:
    """Arrays of what is recorded of every draw, `(chains, draws, …)`, filled chunk by chunk.

    With a folder `store`, the arrays are memory-mapped files there.
    """

    def __init__(self, num_chains: int, num_samples: int, dim: int, store: PathLike | None = None):
        self.count = 0
        shape, dtype = (num_chains, num_samples), np.dtype(jnp.result_type(float))
        self.positions = _array(store, "positions", (*shape, dim), dtype)
        self.log_density = _array(store, "log_density", shape, dtype)
        self.accepted = _array(store, "accepted", shape, np.dtype(bool))
        self.acceptance_rate = _array(store, "acceptance_rate", shape, dtype)
        self.nonfinite = _array(store, "nonfinite", shape, np.dtype(bool))
        self.irreversible = _array(store, "irreversible", shape, np.dtype(bool))

    def ahead(self, count: int) -> Trace:
        """Views into which the next `count` draws of all chains are written.

        The caller raises `self.count` once they are.
        """
        return Trace(*self.chunk(self.count, self.count + count).values())

    def place(self, rows: slice, start: int, end: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Write draws number `start` to `end` of some chains."""
        for name in FIELDS:
            getattr(self, name)[rows, start:end] = arrays[name]

    def chunk(self, start: int, end: int) -> dict[str, np.ndarray]:
        """Draws number `start` to `end` of all chains."""
        return {name: getattr(self, name)[:, start:end] for name in FIELDS}

    def so_far(self) -> np.ndarray:
        """The positions recorded so far, `(chains, draws, dim)`."""
        return self.positions[:, : self.count]

    def draws(self, target: Target, provenance: dict[str, Any]) -> Draws:
        """Return the draws recorded so far."""
        done: dict[str, Any] = self.chunk(0, self.count)
        return Draws(
            **done
            | {
                "nonfinite": done["nonfinite"].sum(axis=1),
                "irreversible": done["irreversible"].sum(axis=1),
            },
            diverging=done["nonfinite"] | np.isposinf(done["log_density"]),
            stopped=np.isposinf(self.log_density[:, self.count - 1]),
            target=target,
            provenance=provenance,
        )


def _array(
    store: PathLike | None, name: str, shape: tuple[int, ...], dtype: np.dtype
) -> np.ndarray:
    if store is None:
        return np.zeros(shape, dtype)
    folder = Path(store)
    check(not folder.is_file(), f"store must name a folder, got the file {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    return np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype, shape)

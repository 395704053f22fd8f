"""What is kept of every draw, and the one array that a block of chains records it in.

A compiled loop puts one array in its place faster than six, and the host is given one instead of
six.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

FEW = 5  # numbers a row


class Trace(NamedTuple):
    """What is kept of every draw: arrays of `(chains, draws, …)`."""

    position: Any
    log_density: Any
    accepted: Any
    acceptance_rate: Any
    nonfinite: Any
    irreversible: Any


def packed(row: Trace) -> Float[Array, "block columns"]:
    """A row of a trace as one array, in the precision of the positions."""
    flags = sum(
        flag.astype(row.log_density.dtype) * 2**i
        for i, flag in enumerate((row.accepted, row.nonfinite, row.irreversible))
    )
    others = jnp.stack([row.log_density, row.acceptance_rate, flags], axis=1)
    return jnp.concatenate([row.position, others.astype(row.position.dtype)], axis=1)


def unpack(record: np.ndarray, trace: Trace, rows: slice) -> None:
    """Put what was packed, `(draws, chains, columns)`, into some rows of a trace."""
    record = np.swapaxes(record, 0, 1)
    dim, position = trace.position.shape[2], trace.position[rows]
    # NumPy copies row by row, and rows of few numbers slowly
    parts = [np.s_[..., j] for j in range(dim)] if dim < FEW else [np.s_[..., :dim]]
    for part in parts:
        position[part] = record[part]
    trace.log_density[rows] = record[..., -3]
    trace.acceptance_rate[rows] = record[..., -2]
    flags = record[..., -1].astype(np.uint8)
    for i, flag in enumerate((trace.accepted, trace.nonfinite, trace.irreversible)):
        np.not_equal(flags & (1 << i), 0, out=flag[rows])


def empty_trace(chains: int, draws: int, dim: int, dtype: Any) -> Trace:
    """A trace on the host, to be filled block by block."""
    shape = (chains, draws)
    numbers = lambda: np.empty(shape, dtype)  # noqa: E731
    flags = lambda: np.empty(shape, bool)  # noqa: E731
    return Trace(np.empty((*shape, dim), dtype), numbers(), flags(), numbers(), flags(), flags())

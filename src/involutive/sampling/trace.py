"""What is recorded of every draw, and the one array in which a block of chains records it.

A compiled loop updates one array faster than six, and only one is copied to the host.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

FEW = 5  # numbers per row below which NumPy copies columns faster than rows


class Row(NamedTuple):
    """What a step of a block of chains records, on the device: arrays of `(block, …)`."""

    position: Array
    log_density: Array
    accepted: Array
    acceptance_rate: Array
    nonfinite: Array
    irreversible: Array


class Trace(NamedTuple):
    """What is recorded of every draw, on the host: arrays of `(chains, draws, …)`."""

    position: np.ndarray
    log_density: np.ndarray
    accepted: np.ndarray
    acceptance_rate: np.ndarray
    nonfinite: np.ndarray
    irreversible: np.ndarray


def packed(row: Row) -> Float[Array, "block columns"]:
    """A row as one array, in the precision of the positions."""
    flags = sum(
        flag.astype(row.log_density.dtype) * 2**i
        for i, flag in enumerate((row.accepted, row.nonfinite, row.irreversible))
    )
    others = jnp.stack([row.log_density, row.acceptance_rate, flags], axis=1)
    return jnp.concatenate([row.position, others.astype(row.position.dtype)], axis=1)


def unpack(record: np.ndarray, trace: Trace, rows: slice) -> None:
    """Write packed rows, `(draws, chains, columns)`, into some chains of a trace on the host."""
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


def empty_trace(chains: int, draws: int, dim: int, dtype: np.dtype | type) -> Trace:
    """A trace on the host, to be filled block by block."""
    shape = (chains, draws)
    numbers = lambda: np.empty(shape, dtype)  # noqa: E731
    flags = lambda: np.empty(shape, bool)  # noqa: E731
    return Trace(np.empty((*shape, dim), dtype), numbers(), flags(), numbers(), flags(), flags())

"""Where chains start: at given positions, at draws with a finite density, or elsewhere."""

from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Float, Key

from involutive._xla.compilation import Jitted, jit_once, on_device
from involutive._xla.generator import unrolled
from involutive.core.arrays import as_floats
from involutive.core.errors import InputError, check
from involutive.core.types import ArrayLike
from involutive.kernel.kernel import AbstractKernel, State

ELSEWHERE = 4  # one chain in four starts away from a learned proposal; a guess
ATTEMPTS = 100  # draws of X before a chain without a finite density is given up


@jit_once
def start_at(kernel: AbstractKernel, positions: Array, keys: Key[Array, " block"]) -> State:
    """The state of a block of chains at those positions."""
    return jax.vmap(lambda x, key: kernel.init(x, jr.fold_in(key, ATTEMPTS)))(positions, keys)


def start_from(x: AbstractDistribution, kernel: AbstractKernel, keys: Array) -> State:
    """The state of a block of chains, drawn from X until their density is finite."""
    state = start_at(kernel, _draws(x, keys, jnp.asarray(0)), keys)
    for attempt in range(1, ATTEMPTS):
        bad = ~np.isfinite(np.asarray(state.log_density))
        if not bad.any():
            break
        fresh = start_at(kernel, _draws(x, keys, jnp.asarray(attempt)), keys)
        state = jax.tree.map(partial(_choose, bad), fresh, state)
    return state


def start_elsewhere(
    starts: Float[np.ndarray, "places dim"],
    ids: np.ndarray,
    kernel: AbstractKernel,
    keys: Key[Array, " block"],
    state: State,
) -> State:
    """Place one chain in four at the kernel's own places away from its proposal.

    Which chain starts where depends on its id alone. If the density is not finite at a place, the
    chain keeps its draw of the proposal.
    """
    rows = starts[(ids // ELSEWHERE) % len(starts)].astype(starts.dtype)
    moved = start_at(kernel, on_device(rows), keys)
    chosen = started_elsewhere(ids) & np.isfinite(np.asarray(moved.log_density))
    return jax.tree.map(partial(_choose, chosen), moved, state)


def started_elsewhere(ids: np.ndarray) -> np.ndarray:
    """Which chains start away from the proposal, if a kernel has such places."""
    return ids % ELSEWHERE == ELSEWHERE - 1


@Jitted
def _draws(x: AbstractDistribution, keys: Key[Array, " block"], attempt: Array) -> Array:
    # with an unrolled hash this compiles in two thirds of the time
    return jax.vmap(lambda key: x.sample(jr.fold_in(key, attempt)))(unrolled(keys))


def _choose(rows: np.ndarray, new: Array, old: Array) -> Array:
    """The new leaf where `rows` is true."""
    return jnp.where(on_device(rows.reshape(-1, *[1] * (new.ndim - 1))), new, old)


def check_positions(initial: ArrayLike, num_chains: int, dim: int) -> np.ndarray:
    """Return starting positions as a finite float array of shape `(num_chains, dim)`."""
    positions = as_floats(initial, "initial must be positions or a distribution")
    check(
        positions.shape == (num_chains, dim),
        f"initial must have shape (chains, dim) = ({num_chains}, {dim}), got {positions.shape}",
    )
    check(np.isfinite(positions).all(), "initial must be finite, got NaN or infinite positions")
    return positions


def check_started(state: State, ids: np.ndarray) -> None:
    """Raise `InputError` if a chain has no finite density, with the numbers of such chains."""
    bad = np.flatnonzero(~np.isfinite(state.log_density))
    if bad.size == 0:
        return
    named = ", ".join(str(ids[i]) for i in bad[:8]) + (", …" if bad.size > 8 else "")
    values = ", ".join(f"{state.log_density[i]}" for i in bad[:3])
    raise InputError(
        f"every chain must start at a finite log density, but {bad.size} of {ids.size} "
        f"(chains {named}) start at {values}; pass initial= positions inside the support"
    )

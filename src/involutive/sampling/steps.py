"""The steps of one block of chains, as one compiled program.

Chain k at step t uses the key `fold_in(chain_key, t)`. `kernel.draw` draws the randomness of
several steps at once, and `kernel.move` makes the steps.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from involutive._xla.compilation import SHORT, Jitted
from involutive._xla.cost import much_work
from involutive._xla.generator import unrolled
from involutive._xla.program import Program
from involutive.auxiliary import GaussianMixture
from involutive.kernel.kernel import AbstractKernel, State
from involutive.sampling.trace import Row, packed

# Widths measured by `python -m involutive.bench.speed`
BLOCK = 32  # chains per block: 64 of them keep two cores busy
GROUP = 8  # steps of a narrow block whose randomness is drawn at once


class Tally(NamedTuple):
    """What happened since the last recorded draw of each chain."""

    acceptance_rate: Float[Array, " block"]
    nonfinite: Bool[Array, " block"]
    irreversible: Bool[Array, " block"]


class Carry(NamedTuple):
    """The loop state of the steps of a block."""

    state: State
    tally: Tally
    record: Float[Array, "capacity block columns"]


def advance(
    kernel: AbstractKernel,
    capacity: int,
    thin: int,
    state: State,
    chain_keys: Key[Array, " block"],
    first_step: Int[Array, ""],
    count: Int[Array, ""],
) -> tuple[State, Float[Array, "capacity block columns"]]:
    """Make `count · thin` steps from step number `first_step` and record every thin-th state.

    The trip count is dynamic, so that one compilation serves chunks of every length.
    """
    steps, block = count * thin, state.position.shape[0]
    chain_keys = unrolled(chain_keys)
    # drawing small arrays one at a time is slow; XLA divides large ones among threads anyway
    size = GROUP if block <= BLOCK else 1
    move = partial(_move, kernel, thin)

    def group(g: Array, carry: Carry) -> Carry:
        """Draw the randomness of `size` steps at once, then make the steps."""
        noise = _noise(kernel, chain_keys, first_step + g * size + jnp.arange(size))
        if size == 1 and not has_mixture(kernel):
            return move(jax.tree.map(lambda rows: rows[0], noise), g, carry)

        def one(j: Array, carry: Carry) -> Carry:
            at = j if size > 1 else 0
            now = jax.tree.map(lambda rows: jax.lax.dynamic_index_in_dim(rows, at, 0, False), noise)
            return move(now, g * size + j, carry)

        # a loop even for one step: without it XLA computes the noise of a mixture more than once
        return jax.lax.fori_loop(0, jnp.minimum(size, steps - g * size), one, carry)

    groups = (steps + size - 1) // size
    state, _, record = jax.lax.fori_loop(0, groups, group, _begin(state, capacity))
    return state, record


def _begin(state: State, capacity: int) -> Carry:
    block, dim = state.position.shape
    none = jnp.zeros(block, bool)
    tally = Tally(jnp.zeros_like(state.log_density), none, none)
    return Carry(state, tally, jnp.zeros((capacity, block, dim + 3), state.position.dtype))


def _noise(kernel: AbstractKernel, chain_keys: Key[Array, " block"], times: Array) -> PyTree:
    """The randomness of every chain at each step number."""
    keys = jax.vmap(lambda t: jax.vmap(jr.fold_in, (0, None))(chain_keys, t))(times)
    return jax.vmap(jax.vmap(kernel.draw))(keys)


def _move(kernel: AbstractKernel, thin: int, noise: PyTree, number: Array, carry: Carry) -> Carry:
    """Make step `number` of every chain and write it into the record."""
    state, tally, record = carry
    state, info = jax.vmap(kernel.move)(noise, state)
    new = Tally(info.acceptance_rate, info.nonfinite, info.irreversible)
    tally = new if thin == 1 else _joined(tally, new, number % thin == 0, thin)
    row = packed(Row(state.position, state.log_density, info.accepted, *tally))
    # overwritten until the last of its thin steps
    record = jax.lax.dynamic_update_index_in_dim(record, row, number // thin, 0)
    return Carry(state, tally, record)


def _joined(old: Tally, new: Tally, first: Array, thin: int) -> Tally:
    """The tally of a draw after one more of its `thin` steps; before the first it is empty."""
    rate = jnp.where(first, 0.0, old.acceptance_rate) + new.acceptance_rate / thin
    bad, lost = ((flag & ~first) | more for flag, more in zip(old[1:], new[1:], strict=True))
    return Tally(rate, bad, lost)


advance_network = Jitted(advance, {})
advance_learned = Jitted(advance, SHORT)


def compiled_for(kernel: AbstractKernel, program: Program) -> Jitted:
    """`advance` compiled for that kernel, of a density with that program.

    Kernels from `learn` are compiled several times per run, and where a move is little work the
    shorter compilation (`SHORT`) gives code that is as fast. The bare networks of the paper are
    faster with JAX's default compilation, and so are moves of much work: couplings, large mixtures,
    densities with much data.
    """
    short = has_mixture(kernel) and not much_work(program, kernel)
    return advance_learned if short else advance_network


def has_mixture(kernel: AbstractKernel) -> bool:
    """Whether a part of the kernel is a mixture."""
    mixture = lambda node: isinstance(node, GaussianMixture)  # noqa: E731
    return any(map(mixture, jax.tree.leaves(kernel, is_leaf=mixture)))

"""The chain runner: many chains, a host loop over compiled chunks of steps.

Chain k at step t uses the key `fold_in(fold_in(root, k), t)`, so its draws depend on the seed and
on k alone: not on how many chains run beside it, how long the run is, or how it is cut into
chunks. Chains run in blocks of one width, because the last bits of a matrix product can depend on
its shape; blocks run side by side on the machine's cores or on the devices of a mesh.
"""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution, Normal
from jax.extend.core import Jaxpr
from jaxtyping import Array, Float, Key

from involutive._xla.compilation import SHORTER, SHORTEST, Jitted, WithFirst, jit_once, on_device
from involutive._xla.cost import much_work
from involutive._xla.generator import unrolled
from involutive._xla.program import calls_out, factorises_many, program_of
from involutive.auxiliary import GaussianMixture, for_many
from involutive.core.errors import InputError, check
from involutive.core.keys import split
from involutive.core.types import ArrayLike
from involutive.kernel.kernel import AbstractKernel, State
from involutive.sampling.trace import Trace, empty_trace, packed, unpack

# Widths measured by `python -m involutive.bench.speed`
BLOCK = 32  # chains a block: 64 of them keep two cores busy
WIDE, MANY = 256, 1024  # chains a block, from so many on
GROUP = 8  # steps of a narrow block whose randomness is drawn at once
ELSEWHERE = 4  # one chain in so many starts apart from a learned proposal; a guess
ATTEMPTS = 100  # draws from X before a chain without finite density is given up


def _advance(
    kernel: AbstractKernel,
    capacity: int,
    thin: int,
    state: State,
    chain_keys: Key[Array, " block"],
    first_step: Array,
    count: Array,
) -> tuple[State, Float[Array, "capacity block columns"]]:
    """Make `count · thin` steps from step number `first_step` and record every thin-th state.

    The trip count is dynamic, so that one compilation serves chunks of every length.
    """

    steps, (block, dim) = count * thin, state.position.shape
    chain_keys = unrolled(chain_keys)
    # small arrays cost more to start than to fill; large ones XLA divides among busy threads
    size = GROUP if block <= BLOCK else 1

    def group(g: Array, carry: Any) -> Any:
        """Draw what is random in `size` steps at once, then make them."""
        times = first_step + g * size + jnp.arange(size)
        keys = jax.vmap(lambda t: jax.vmap(jr.fold_in, (0, None))(chain_keys, t))(times)
        noise = jax.vmap(jax.vmap(kernel.draw))(keys)
        if size == 1 and not _has_mixture(kernel):
            return move(jax.tree.map(lambda rows: rows[0], noise), g, carry)

        def one(j: Array, carry: Any) -> Any:
            at = j if size > 1 else 0
            now = jax.tree.map(lambda rows: jax.lax.dynamic_index_in_dim(rows, at, 0, False), noise)
            return move(now, g * size + j, carry)

        # a loop even of one turn: without it XLA works out the noise of a mixture more than once
        return jax.lax.fori_loop(0, jnp.minimum(size, steps - g * size), one, carry)

    def move(noise: Any, number: Array, carry: tuple[State, Any, Array]) -> Any:
        state, (rate, bad, lost), record = carry
        state, info = jax.vmap(kernel.move)(noise, state)
        if thin > 1:
            first = number % thin == 0
            rate = jnp.where(first, 0.0, rate) + info.acceptance_rate / thin
            bad, lost = (
                (flag & ~first) | new
                for flag, new in ((bad, info.nonfinite), (lost, info.irreversible))
            )
        else:
            rate, bad, lost = info.acceptance_rate, info.nonfinite, info.irreversible
        row = packed(Trace(state.position, state.log_density, info.accepted, rate, bad, lost))
        # overwritten until the last of its thin steps
        record = jax.lax.dynamic_update_index_in_dim(record, row, number // thin, 0)
        return state, (rate, bad, lost), record

    none = jnp.zeros(block, bool)
    tally = (jnp.zeros_like(state.log_density), none, none)
    record = jnp.zeros((capacity, block, dim + 3), state.position.dtype)
    groups = (steps + size - 1) // size
    state, _, record = jax.lax.fori_loop(0, groups, group, (state, tally, record))
    return state, record


_advance_network = Jitted(_advance, {})
_advance_learned = Jitted(_advance, SHORTER)


def _advancer(kernel: AbstractKernel, program: Jaxpr) -> Any:
    """`_advance` compiled for that kernel, of a density with that program.

    What `learn` makes is compiled several times a run, and where a move is little work it is as
    fast by a shorter way. The bare networks of the paper are faster by JAX's own, and so is all
    that takes much work: couplings, large mixtures, densities of much data.
    """
    short = _has_mixture(kernel) and not much_work(program, kernel)
    return _advance_learned if short else _advance_network


def _has_mixture(kernel: AbstractKernel) -> bool:
    mixture = lambda node: isinstance(node, GaussianMixture)  # noqa: E731
    return any(map(mixture, jax.tree.leaves(kernel, is_leaf=mixture)))


@jit_once
def _init(kernel: AbstractKernel, positions: Array, keys: Key[Array, " block"]) -> State:
    return jax.vmap(lambda x, key: kernel.init(x, jr.fold_in(key, ATTEMPTS)))(positions, keys)


@partial(Jitted, options=SHORTEST)
def law_draws(law: AbstractDistribution, keys: Key[Array, " block"], attempt: Array) -> Array:
    # written out, the hash is compiled in two thirds of the time
    return jax.vmap(lambda key: law.sample(jr.fold_in(key, attempt)))(unrolled(keys))


@jit_once
def fold_all(root: Key[Array, ""], numbers: Array) -> Key[Array, " block"]:
    return jax.vmap(jr.fold_in, (None, 0))(root, numbers)


def _where(chosen: Array, new: Array, old: Array) -> Array:
    return jnp.where(chosen.reshape(-1, *[1] * (new.ndim - 1)), new, old)


def started_elsewhere(ids: np.ndarray) -> np.ndarray:
    """Which chains start apart from the proposal, where a kernel knows such places."""
    return ids % ELSEWHERE == ELSEWHERE - 1


def width_for(num_chains: int) -> int:
    """The fastest width of a block for so many chains in all."""
    return WIDE if num_chains >= MANY else BLOCK


def width_on_host(num_chains: int) -> int:
    """The width of blocks for a density of the host: few blocks, and no chain evaluated twice."""
    return -(-num_chains // -(-num_chains // WIDE))


class Chains:
    """Chains of one kernel, by global chain id, advanced in step.

    Args:
        kernel: what moves them.
        key: the root key of the run.
        ids: the global ids of the chains run here.
        capacity: the most draws one call of `advance` makes.
        thin: steps a draw.
        block: chains a compiled block.
        devices: where blocks run, in turn; by default on the cores of the default device.
    """

    def __init__(
        self,
        kernel: AbstractKernel,
        key: Key[Array, ""],
        ids: Sequence[int] | np.ndarray,
        *,
        capacity: int,
        thin: int = 1,
        block: int = BLOCK,
        devices: Sequence[Any] | None = None,
    ):
        self.kernel, self.ids = kernel, np.asarray(ids)
        self.capacity, self.thin, self.block = capacity, thin, block
        self.devices = list(devices) if devices else [None]
        start_key, step_key = split(key, 2)
        padded = np.resize(self.ids, -(-self.ids.size // block) * block).reshape(-1, block)
        self._start_keys = [self._keys(start_key, row, i) for i, row in enumerate(padded)]
        self._step_keys = [self._keys(step_key, row, i) for i, row in enumerate(padded)]
        mover = for_many(kernel.mover)
        self._kernels = {device: self._place(mover, device) for device in self.devices}
        self._programs: dict[tuple[Any, int], WithFirst] = {}
        # what `one_by_one` cannot take apart: a density that itself factorises many matrices
        program = program_of(kernel.target.log_density, kernel.target.dim)
        # a callback holds a thread of XLA's while it waits for Python; two can wait for each other
        self._alone = factorises_many(program) or calls_out(program)
        self._advance = _advancer(mover, program)
        self.blocks: list[State] = []
        self.step = 0

    def start(self, initial: AbstractDistribution | ArrayLike | None = None) -> None:
        """Place the chains at given positions, or draw them until their density is finite."""
        dim = self.kernel.target.dim
        if initial is None or isinstance(initial, AbstractDistribution):
            own = self.kernel.initial or self.kernel.target.initial
            law = initial or own or Normal(jnp.zeros(dim), jnp.ones(dim))
            self.blocks = self._each(lambda i: self._start_block(law, i))
            if initial is None and self.kernel.starts is not None:
                self._start_elsewhere(np.asarray(self.kernel.starts))
        else:
            positions = self._rows(check_positions(initial, self.ids.size, dim))
            keys = self._start_keys
            self.blocks = self._each(lambda i: _init(self._kernel(i), positions[i], keys[i]))
        self._check_start()

    def advance(self, count: int, into: Trace | None = None) -> Trace:
        """Make `count` draws of every chain; return arrays of `(chains, draws, …)` on the host.

        They are put into the arrays `into`, or into new ones.
        """
        first, number = jnp.asarray(self.step), jnp.asarray(count)
        dtype, dim = self.blocks[0].position.dtype, self.kernel.target.dim
        trace = empty_trace(self.ids.size, count, dim, dtype) if into is None else into

        def run(i: int) -> State:
            state, record = self._program(i)(self.blocks[i], self._step_keys[i], first, number)
            rows = slice(i * self.block, min((i + 1) * self.block, self.ids.size))
            unpack(np.asarray(record)[:count, : rows.stop - rows.start], trace, rows)
            return state

        self.blocks = self._each(run)
        self.step += count * self.thin
        return trace

    def trace(self) -> Any:
        """The program of `advance`, not lowered or compiled yet."""
        state = jax.tree.map(on_device, self.blank(self.block))
        return self._program(0).trace(state, self._step_keys[0], jnp.asarray(0), jnp.asarray(1))

    def blank(self, count: int) -> State:
        """A state of so many chains on the host, all zeros: its form, and what its leaves are."""
        position = jax.ShapeDtypeStruct((self.kernel.target.dim,), jnp.result_type(float))
        one = jax.eval_shape(self.kernel.init, position)
        return jax.tree.map(lambda leaf: np.zeros((count, *leaf.shape), leaf.dtype), one)

    def state(self) -> State:
        """The chains' current state on the host, `(chains, …)`."""
        gathered = jax.tree.map(
            lambda *parts: np.concatenate([np.asarray(part) for part in parts]), *self.blocks
        )
        return jax.tree.map(lambda leaf: leaf[: self.ids.size], gathered)

    def restore(self, state: State, step: int) -> None:
        """Continue from a state saved by `state()` at step number `step`."""
        leaves, form = jax.tree.flatten(state)
        blocks = zip(*(self._rows(leaf) for leaf in leaves), strict=True)
        self.blocks = [jax.tree.unflatten(form, block) for block in blocks]
        self.step = step

    def _kernel(self, i: int) -> AbstractKernel:
        return self._kernels[self.devices[i % len(self.devices)]]

    def _program(self, i: int) -> WithFirst:
        """`_advance` of block `i`, with all that no call changes."""
        at = (self.devices[i % len(self.devices)], self.thin)
        if at not in self._programs:
            self._programs[at] = self._advance.with_first(self._kernel(i), self.capacity, self.thin)
        return self._programs[at]

    def _place(self, tree: Any, device: Any) -> Any:
        if device is None:
            return tree
        arrays, static = eqx.partition(tree, eqx.is_array)
        return eqx.combine(jax.device_put(arrays, device), static)

    def _keys(self, root: Key[Array, ""], row: np.ndarray, i: int) -> Array:
        return self._place(fold_all(root, on_device(row)), self.devices[i % len(self.devices)])

    def _rows(self, values: Any) -> list[Array]:
        values = np.asarray(values)
        count = -(-self.ids.size // self.block) * self.block
        padded = values[np.resize(np.arange(self.ids.size), count)]
        parts = np.split(padded, count // self.block)
        placed = enumerate(parts)
        return [self._place(on_device(p), self.devices[i % len(self.devices)]) for i, p in placed]

    def _each(self, run: Any) -> list[Any]:
        """Run one function of the block number for every block, on all cores or devices."""
        count = len(self._step_keys)
        workers = min(count, max(os.cpu_count() or 1, len(self.devices)))
        if workers == 1 or self._alone:
            return [run(i) for i in range(count)]
        # the first block compiles alone, before the threads start
        head = [run(0)] if self.step == 0 else []
        with ThreadPoolExecutor(workers) as pool:
            return [*head, *pool.map(run, range(len(head), count))]

    def _start_block(self, law: AbstractDistribution, i: int) -> State:
        keys, kernel = self._start_keys[i], self._kernel(i)
        state = _init(kernel, law_draws(law, keys, jnp.asarray(0)), keys)
        for attempt in range(1, ATTEMPTS):
            bad = ~np.isfinite(np.asarray(state.log_density))
            if not bad.any():
                break
            fresh = _init(kernel, law_draws(law, keys, jnp.asarray(attempt)), keys)
            state = jax.tree.map(partial(_choose, bad), fresh, state)
        return state

    def _start_elsewhere(self, starts: np.ndarray) -> None:
        """Place one chain in four at the kernel's own places apart from its proposal.

        Which chain starts where depends on its id alone. A place with no finite density is left to
        the chain's draw from the proposal.
        """
        padded = self._rows(self.ids)
        for i, ids in enumerate(padded):
            numbers = np.asarray(ids)
            rows = starts[(numbers // ELSEWHERE) % len(starts)].astype(starts.dtype)
            moved = _init(self._kernel(i), on_device(rows), self._start_keys[i])
            chosen = started_elsewhere(numbers) & np.isfinite(np.asarray(moved.log_density))
            self.blocks[i] = jax.tree.map(partial(_where, on_device(chosen)), moved, self.blocks[i])

    def _check_start(self) -> None:
        state = self.state()
        bad = np.flatnonzero(~np.isfinite(state.log_density))
        if bad.size == 0:
            return
        named = ", ".join(str(self.ids[i]) for i in bad[:8]) + (", …" if bad.size > 8 else "")
        values = ", ".join(f"{state.log_density[i]}" for i in bad[:3])
        raise InputError(
            f"every chain must start at a finite log density, but {bad.size} of {self.ids.size} "
            f"(chains {named}) start at {values}; pass initial= positions inside the support"
        )


def _choose(rows: np.ndarray, new: Array, old: Array) -> Array:
    """The new leaf where `rows` is true."""
    return jnp.where(rows.reshape(-1, *[1] * (new.ndim - 1)), new, old)


def check_positions(initial: ArrayLike, num_chains: int, dim: int) -> np.ndarray:
    """Return starting positions as a finite float array of shape `(num_chains, dim)`."""
    try:
        positions = np.asarray(initial, dtype=jnp.result_type(float))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"initial must be positions or a distribution, got {type(initial).__name__}"
        ) from error
    check(
        positions.shape == (num_chains, dim),
        f"initial must have shape (chains, dim) = ({num_chains}, {dim}), got {positions.shape}",
    )
    check(np.isfinite(positions).all(), "initial must be finite, got NaN or infinite positions")
    return positions

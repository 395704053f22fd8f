"""The chain runner: many chains, a host loop over compiled chunks of steps.

Chain k at step t uses the key `fold_in(fold_in(root, k), t)`, so its draws depend on the seed and
on k alone: not on how many chains run beside it, how long the run is, or how it is cut into
chunks. Chains run in blocks of one width, because the last bits of a matrix product can depend on
its shape; blocks run side by side on the machine's cores or on the devices of a mesh.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution, Normal
from jaxtyping import Array, Key

from involutive._xla.compilation import jit_once, on_device
from involutive._xla.program import calls_out, factorises_many, program_of
from involutive.auxiliary import for_many
from involutive.core.keys import split
from involutive.core.types import ArrayLike
from involutive.kernel.kernel import AbstractKernel, State
from involutive.sampling.starts import (
    check_positions,
    check_started,
    start_at,
    start_elsewhere,
    start_from,
)
from involutive.sampling.steps import BLOCK, compiled_for
from involutive.sampling.trace import Trace, empty_trace, unpack

# Widths measured by `python -m involutive.bench.speed`
WIDE, MANY = 256, 1024  # chains per block, for at least that many chains
Made = TypeVar("Made")
TreeT = TypeVar("TreeT")


@jit_once
def _fold_all(root: Key[Array, ""], numbers: Array) -> Key[Array, " block"]:
    return jax.vmap(jr.fold_in, (None, 0))(root, numbers)


def width_for(num_chains: int) -> int:
    """The fastest width of a block for that many chains in all."""
    return WIDE if num_chains >= MANY else BLOCK


def width_on_host(num_chains: int) -> int:
    """The width of blocks for a density on the host: few blocks, and no chain evaluated twice."""
    return -(-num_chains // -(-num_chains // WIDE))


class Chains:
    """Chains of one kernel, by global chain id, advanced in step.

    Args:
        kernel: the kernel of the chains.
        key: the root key of the run.
        ids: the global ids of the chains run here.
        capacity: maximum draws per call of `advance`.
        thin: steps per draw.
        block: chains per compiled block.
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
        # a density that factorises many matrices itself, which `one_by_one` cannot take apart
        program = program_of(kernel.target.log_density, kernel.target.dim)
        # a callback holds a thread of XLA's while it waits for Python; two can wait for each other
        self._alone = factorises_many(program) or calls_out(program)
        self._advance = compiled_for(mover, program)
        self.blocks: list[State] = []
        self.step = 0

    def start(self, initial: AbstractDistribution | ArrayLike | None = None) -> None:
        """Place the chains at given positions, or draw them until their density is finite."""
        dim, keys = self.kernel.target.dim, self._start_keys
        if initial is None or isinstance(initial, AbstractDistribution):
            own = self.kernel.initial or self.kernel.target.initial
            start = initial or own or Normal(jnp.zeros(dim), jnp.ones(dim))
            self.blocks = self._each(lambda i: start_from(start, self._kernel(i), keys[i]))
            if initial is None and self.kernel.starts is not None:
                self._start_elsewhere(np.asarray(self.kernel.starts))
        else:
            positions = self._rows(check_positions(initial, self.ids.size, dim))
            self.blocks = self._each(lambda i: start_at(self._kernel(i), positions[i], keys[i]))
        check_started(self.state(), self.ids)

    def advance(self, count: int, into: Trace | None = None) -> Trace:
        """Make `count` draws of every chain; return arrays of `(chains, draws, …)` on the host.

        The draws are written into the arrays `into`, or into new ones.
        """
        first, number = jnp.asarray(self.step), jnp.asarray(count)
        dtype, dim = self.blocks[0].position.dtype, self.kernel.target.dim
        trace = empty_trace(self.ids.size, count, dim, dtype) if into is None else into

        def run(i: int) -> State:
            state, record = self._advance(
                self._kernel(i), self.capacity, self.thin,
                self.blocks[i], self._step_keys[i], first, number,
            )  # fmt: skip
            rows = slice(i * self.block, min((i + 1) * self.block, self.ids.size))
            unpack(np.asarray(record)[:count, : rows.stop - rows.start], trace, rows)
            return state

        self.blocks = self._each(run)
        self.step += count * self.thin
        return trace

    def blank(self, count: int) -> State:
        """A state of `count` chains on the host, all zeros, with the structure of real ones."""
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

    def _place(self, tree: TreeT, device: Any) -> TreeT:
        if device is None:
            return tree
        arrays, static = eqx.partition(tree, eqx.is_array)
        return eqx.combine(jax.device_put(arrays, device), static)

    def _keys(self, root: Key[Array, ""], row: np.ndarray, i: int) -> Array:
        return self._place(_fold_all(root, on_device(row)), self.devices[i % len(self.devices)])

    def _rows(self, values: np.ndarray) -> list[Array]:
        values = np.asarray(values)
        count = -(-self.ids.size // self.block) * self.block
        padded = values[np.resize(np.arange(self.ids.size), count)]
        parts = np.split(padded, count // self.block)
        placed = enumerate(parts)
        return [self._place(on_device(p), self.devices[i % len(self.devices)]) for i, p in placed]

    def _each(self, run: Callable[[int], Made]) -> list[Made]:
        """Run one function of the block number for every block, on all cores or devices."""
        count = len(self._step_keys)
        workers = min(count, max(os.cpu_count() or 1, len(self.devices)))
        if workers == 1 or self._alone:
            return [run(i) for i in range(count)]
        # the first block compiles alone, before the threads start
        head = [run(0)] if self.step == 0 else []
        with ThreadPoolExecutor(workers) as pool:
            return [*head, *pool.map(run, range(len(head), count))]

    def _start_elsewhere(self, starts: np.ndarray) -> None:
        for i, ids in enumerate(self._rows(self.ids)):
            self.blocks[i] = start_elsewhere(
                starts, np.asarray(ids), self._kernel(i), self._start_keys[i], self.blocks[i]
            )

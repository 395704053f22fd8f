"""The chains of this process: blocks over the devices of a mesh and the processes of a cluster.

Chains do not communicate, so nothing is sent between devices or processes. Each process runs a
contiguous share of the global chain ids, cut between blocks: a chain then has the same place in a
block of the same shape however many devices and processes there are, and draws the same bits.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh

from involutive.core.errors import check
from involutive.sampling.runner import width_for

TreeT = TypeVar("TreeT")


class Share(NamedTuple):
    """The global chain ids run by this process, on its devices (None: the default one)."""

    ids: range
    devices: list[Any] | None
    processes: int
    block: int


def share_of(mesh: Mesh | None, num_chains: int, block: int | None) -> Share:
    """Return this process's share of `num_chains` chains, in blocks of the given or best width.

    The best width does not depend on devices or processes if every process has a whole block.
    """
    if mesh is None:
        ranks, devices = list(range(jax.process_count())), None
    else:
        devices = devices_here(mesh)
        ranks = sorted({device.process_index for device in mesh.devices.flat})
    check(
        jax.process_index() in ranks,
        f"process {jax.process_index()} has no device in the mesh, which spans processes {ranks}; "
        "make the mesh over jax.devices()",
    )
    if block is None:
        block = width_for(num_chains)
        if len(ranks) > 1:
            block = max(min(block, num_chains // len(ranks)), 1)
    ids = cut(num_chains, block, len(ranks))[ranks.index(jax.process_index())]
    return Share(ids, devices, len(ranks), block)


def devices_here(mesh: Mesh | None) -> list[Any] | None:
    """The devices of a mesh that belong to this process; None without a mesh."""
    if mesh is None:
        return None
    check(isinstance(mesh, Mesh), f"mesh must be a jax.sharding.Mesh, got {type(mesh).__name__}")
    return [d for d in mesh.devices.flat if d.process_index == jax.process_index()]


@contextmanager
def batches_over(devices: list[Any] | None) -> Iterator[None]:
    """Spread the rows of training batches over devices; JAX then sums their gradients."""
    if devices is None or len(devices) < 2:
        yield
        return
    axes = (AxisType.Auto,)
    mesh = jax.make_mesh((len(devices),), ("rows",), axis_types=axes, devices=devices)
    with jax.set_mesh(mesh):
        yield


def gathered(tree: TreeT, devices: list[Any] | None) -> TreeT:
    """The tree with its arrays on the default device, after work on several devices."""
    if devices is None or len(devices) < 2:
        return tree
    arrays, static = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), arrays), static)


def cut(num_chains: int, block: int, parts: int) -> list[range]:
    """Cut chains 0 … num_chains-1 into contiguous parts of whole blocks, as even as possible."""
    blocks, each = -(-num_chains // block), num_chains // parts
    check(
        blocks >= parts,
        f"num_chains must fill a block for each of {parts} processes, got {num_chains} chains in "
        f"blocks of {block}; use at most {blocks} processes"
        + (f", or begin the run with block={each}" if each else ""),
    )
    edges = [min(blocks * i // parts * block, num_chains) for i in range(parts + 1)]
    return [range(low, high) for low, high in pairwise(edges)]

"""How close sampling is to its floor, and the best width of a block.

Run it by `python -m involutive.bench.speed`.

The floor is the proposal network f and the target density, compiled alone: no random numbers, no
acceptance, nothing recorded. Below it lies the time of the network's matrix products. All three
run the same blocks of chains on the same threads, in turn and in turn backwards, many times, more
often where a run is short. A time is the fastest of them; a ratio is the median of those of one
turn, which share what else the machine is doing.
Other work changes CPU time (of all threads) less than wall time, so both are given.

The best width of a block is measured for the paper's network, for HMC and for what `learn` makes,
by the number of chains; `sample` takes its default from that table.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from involutive import targets
from involutive.auxiliary import standard_normal
from involutive.involutions.architectures import paper_network
from involutive.kernel.classical import hmc
from involutive.kernel.kernel import AbstractKernel, Kernel, evaluate
from involutive.sampling.runner import Chains, width_for
from involutive.targets.target import Target

CHAIN_STEPS = 64_000  # of all chains, in one run
REPEATED = 20_000_000  # of all chains, in all runs
DRAWS = (250, 2000)  # least and most of each; `sample` makes 250 a call
TIMES = (41, 101)  # least and most runs
Rows = list[dict[str, Any]]
Job = Callable[[], Any]


class Timing(NamedTuple):
    """Seconds on the clock, and of CPU in all threads."""

    wall: float
    cpu: float


def paper_kernel(target: Target | None = None, aux_dim: int | None = None) -> Kernel:
    """The paper's network on mog6 with 30 auxiliary dimensions, or on another target."""
    target = targets.mog6() if target is None else target
    aux_dim = 30 if aux_dim is None else aux_dim
    return Kernel(target, paper_network(0, target.dim, aux_dim), standard_normal(aux_dim))


@eqx.filter_jit
def _bare(kernel: Kernel, z: Array, steps: Array) -> Array:
    """f and the density, again and again; the density decides, so that neither is left out."""
    dim = kernel.target.dim

    def step(_: object, z: Array) -> Array:
        moved, _ = jax.vmap(kernel.involution)(z)
        density = jax.vmap(lambda x: evaluate(kernel.target, x))(moved[:, :dim])
        return jnp.where(density[:, None] > -jnp.inf, moved, z)

    return jax.lax.fori_loop(0, steps, step, z)


@eqx.filter_jit
def _products(weights: list[Array], inputs: list[Array], steps: Array) -> list[Array]:
    """The network's matrix products alone, each with its own input."""

    def step(_: object, inputs: list[Array]) -> list[Array]:
        # a little of each result joins its input, so that no product is left out
        results = [x @ w.T for x, w in zip(inputs, weights, strict=True)]
        return [x + 1e-30 * r[:, :1] for x, r in zip(inputs, results, strict=True)]

    return jax.lax.fori_loop(0, steps, step, inputs)


def floor_job(kernel: Kernel, chains: int, steps: int, block: int) -> Job:
    """The floor, over blocks as the runner has them."""
    size = kernel.involution.size
    z, number = jr.normal(jr.key(0), (block, size)), jnp.asarray(steps)
    return _over_blocks(lambda _: _bare(kernel, z, number), chains, block)


def product_job(kernel: Kernel, chains: int, steps: int, block: int) -> Job:
    """The matrix products, each as often as a step uses it."""
    weights = _weights(kernel)
    inputs = [jr.normal(jr.key(0), (block, w.shape[1])) for w in weights]
    number = jnp.asarray(steps)
    return _over_blocks(lambda _: _products(weights, inputs, number), chains, block)


def _weights(kernel: Kernel) -> list[Array]:
    """The matrices of one step: g and g⁻¹ of the outer block twice, of the inner block once."""
    outer = kernel.involution.outer  # type: ignore[attr-defined]
    inner = kernel.involution.inner.inner  # type: ignore[attr-defined]
    matrices = lambda tree: [x for x in jax.tree.leaves(tree) if eqx.is_array(x) and x.ndim == 2]  # noqa: E731
    return 4 * matrices(outer) + 2 * matrices(inner)


def runner_job(kernel: AbstractKernel, chains: int, steps: int, block: int) -> Job:
    """The chain runner."""
    runner = Chains(kernel, jr.key(0), range(chains), capacity=steps, block=block)
    runner.start()

    return lambda: runner.advance(steps)


def _over_blocks(run: Callable[[int], Any], chains: int, block: int) -> Job:
    count = -(-chains // block)
    workers = min(count, os.cpu_count() or 1)

    def job() -> None:
        if workers == 1:
            jax.block_until_ready(run(0))
            return
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(lambda i: jax.block_until_ready(run(i)), range(count)))

    return job


def in_turn(jobs: Sequence[Job], times: int) -> np.ndarray:
    """Wall and CPU seconds `(times, jobs, 2)` of each job in turn, after one that compiles.

    Every second turn goes backwards, so that a machine that grows slower favours none of them.
    """
    for job in jobs:
        job()
    turns = [[_timed(job) for job in jobs[::way]][::way] for way in np.resize([1, -1], times)]
    return np.array(turns)


def fastest(jobs: Sequence[Job], times: int) -> list[Timing]:
    """The least wall and CPU time of `times` runs of each."""
    return [Timing(*least) for least in in_turn(jobs, times).min(axis=0)]


def _timed(job: Job) -> Timing:
    wall, cpu = time.perf_counter(), time.process_time()
    job()
    return Timing(time.perf_counter() - wall, time.process_time() - cpu)


def overhead(chains: Sequence[int] = (1, 64, 1024, 8192), *, repeated: int = REPEATED) -> Rows:
    """The runner's cost per chain-step over the floor and over the matrix products."""
    kernel, rows = paper_kernel(), []
    for count in chains:
        steps = int(np.clip(CHAIN_STEPS // count, *DRAWS))
        width = min(width_for(count), count)
        times = int(np.clip(repeated // (count * steps), *TIMES))
        makers = (runner_job, floor_job, product_job)
        found = in_turn([make(kernel, count, steps, width) for make in makers], times)
        each = 1e6 * found[..., 0].min(axis=0) / (count * steps)
        over = np.median(found[:, :1] / found, axis=0)
        rows.append(
            {
                "chains": count,
                "block": width,
                "runs": times,
                "runner µs": each[0],
                "f + density µs": each[1],
                "products µs": each[2],
                "over f + density": over[1, 0],
                "over products": over[2, 0],
                "CPU over f + density": over[1, 1],
                "CPU over products": over[2, 1],
            }
        )
    return rows


def moving_kernels() -> dict[str, AbstractKernel]:
    """The paper's network, HMC and a learned mixture, all on mog6."""
    from involutive.learning.learn import learn

    target = targets.mog6()
    return {
        "paper's network": paper_kernel(target),
        "HMC": hmc(target, 0.3, 10),
        "learned": learn(target, key=0, progress=False),
    }


def widths(
    kernels: Mapping[str, AbstractKernel],
    chains: Sequence[int] = (64, 1024, 8192),
    blocks: Sequence[int] = (32, 64, 128, 256, 512),
    times: int = 5,
) -> Rows:
    """Microseconds per chain-step by the width of a block, at the draws of one call of `sample`."""
    rows, steps = [], DRAWS[0]
    for (name, kernel), count in product(kernels.items(), chains):
        fitting = [block for block in blocks if block <= count]
        jobs = [runner_job(kernel, count, steps, block) for block in fitting]
        walls = [f"{1e6 * t.wall / (count * steps):.3f}" for t in fastest(jobs, times)]
        found = dict(zip(map(str, fitting), walls, strict=True))
        none = {str(block): "" for block in blocks}
        rows.append({"kernel": name, "chains": count} | none | found)
    return rows


def main() -> None:
    """Print the tables in Markdown."""
    from involutive.core.text import markdown_table

    for name, rows in {"overhead": overhead(), "widths": widths(moving_kernels())}.items():
        sys.stdout.write(f"## {name}\n\n{markdown_table(rows)}\n")


if __name__ == "__main__":
    main()

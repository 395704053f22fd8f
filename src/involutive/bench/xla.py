"""What each workaround of `_xla` gains, or the symptom that it stands against.

Run it by `python -m involutive.bench.xla NAME…`; without a name it runs every case. A case of
speed times the same work without and with the workaround, in turn, and prints the least time of
each and their ratio. A case of correctness prints what JAX does and what this package does instead.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from involutive import targets
from involutive._xla import batched, compilation
from involutive.auxiliary import GaussianMixture
from involutive.bench.speed import Job, Rows, fastest, paper_kernel
from involutive.involutions.blocks import PermutationBlock
from involutive.kernel.kernel import AbstractKernel, Kernel
from involutive.sampling.runner import Chains
from involutive.sampling.steps import advance

TIMES = 7  # runs of each way, in turn
STUCK = 20.0  # seconds after which a program that takes one is taken to wait for ever


def _ratio(work: str, unit: str, scale: float, before: Job, after: Job, times: int = TIMES) -> Rows:
    old, new = (scale * timing.wall for timing in fastest([before, after], times))
    row = {"work": work, "unit": unit, "before": f"{old:.4g}", "after": f"{new:.4g}"}
    return [row | {"ratio": f"{old / new:.2f}"}]


def _often(function: Callable[..., Any], *arguments: Any, calls: int = 50) -> Job:
    return lambda: jax.block_until_ready([function(*arguments) for _ in range(calls)][-1])


def mixture_kernel() -> Kernel:
    """An independence kernel of mog6 whose proposal is a mixture, as `learn` makes them."""
    means = np.random.default_rng(0).normal(size=(6, 2))
    law = GaussianMixture(np.ones(6), means, np.stack([np.eye(2)] * 6))
    return Kernel(targets.mog6(), PermutationBlock(jnp.array([2, 3, 0, 1])), law)


# ── Speed ───────────────────────────────────────────────────────────────────────────────────────


def batch_last(components: int = 50, dim: int = 10, chains: int = 1024) -> Rows:
    """The log density of a mixture, mapped over chains."""
    rng = np.random.default_rng(0)
    means = rng.normal(size=(components, dim))
    law = GaussianMixture(np.ones(components), means, np.stack([np.eye(dim)] * components))
    points = jr.normal(jr.key(0), (chains, dim))

    def plain(x: jax.Array) -> jax.Array:
        white = jnp.einsum("kij,kj->ki", law.factors(), x - law.means)
        levels = jax.nn.log_softmax(law.logits) + jnp.sum(law.log_diagonal, axis=1)
        return jax.nn.logsumexp(levels - 0.5 * jnp.sum(white**2, axis=1))

    before, after = (jax.jit(jax.vmap(f)) for f in (plain, law.log_prob))
    work = f"mixture of {components} in {dim}-D at {chains} points"
    return _ratio(work, "µs", 2e4, _often(before, points), _often(after, points))


def rows(counts: int = 20) -> Rows:
    """A density at as many rows as asked for, by one compiled block or by `jit` of all rows."""
    target, sizes = targets.mog6(), [37 * i for i in range(1, counts + 1)]
    points = [np.zeros((size, 2), np.float32) for size in sizes]

    def before() -> None:
        program = jax.jit(jax.vmap(lambda x: target.log_density(x)))
        for part in points:
            np.asarray(program(part))

    def after() -> None:
        density = batched.BatchedDensity(lambda x: target.log_density(x), 2)
        for part in points:
            density.values(part)

    work = f"mog6 at {counts} numbers of rows, compilation included"
    return _ratio(work, "s", 1.0, before, after, 3)


def calls(repeats: int = 100) -> Rows:
    """A compiled density of 512 rows, through `eqx.filter_jit` or through `Jitted`."""
    found: Rows = []
    for name, target in {"mog6": targets.mog6(), "funnel in 10-D": targets.funnel(10)}.items():
        points = compilation.on_device(np.zeros((512, target.dim), np.float32))
        ways = (compilation.jit_once, compilation.Jitted)
        jobs = [
            _often(way(lambda f, x: jax.vmap(f)(x)), target.log_density, points, calls=repeats)
            for way in ways
        ]
        found += _ratio(f"call of {name} at 512 rows", "µs", 1e6 / repeats, jobs[0], jobs[1])
    return found


def compiling() -> Rows:
    """The runner's program, a mixture's and HMC's gradient, by each effort of compilation."""
    found: Rows = []
    works: dict[str, tuple[AbstractKernel, int]] = {
        "steps of a mixture": (mixture_kernel(), 250),
        "steps of the paper's network": (paper_kernel(), 250),
    }
    efforts = {"JAX's own": {}, "SHORT": compilation.SHORT}
    efforts |= {"SHORTER": compilation.SHORTER, "SHORTEST": compilation.SHORTEST}
    for (work, (kernel, steps)), (effort, options) in (
        (work, effort) for work in works.items() for effort in efforts.items()
    ):
        seconds, run = _compiled(kernel, steps, options)
        found.append(
            {"work": work, "effort": effort, "to compile s": f"{seconds:.3f}"}
            | {"ms to run": f"{1e3 * fastest([run], TIMES)[0].wall:.3f}"}
        )
    return found


def _compiled(kernel: AbstractKernel, steps: int, options: dict[str, Any]) -> tuple[float, Job]:
    """The least seconds in which a block's steps are compiled, and a job that runs them."""
    chains = Chains(kernel, jr.key(0), range(32), capacity=steps)
    chains.start()
    arrays, static = chains.arguments(0)
    numbers = jnp.asarray(0), jnp.asarray(steps)
    seconds = []
    for _ in range(3):
        jax.clear_caches()
        program = jax.jit(lambda *given: advance(*static, *given), compiler_options=options)
        lowered = program.lower(*arrays, *numbers)
        began = time.perf_counter()
        compiled = lowered.compile()
        seconds.append(time.perf_counter() - began)
    return min(seconds), lambda: jax.block_until_ready(compiled(*arrays, *numbers))

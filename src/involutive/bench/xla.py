"""What each workaround of `_xla` gains, or the symptom that it stands against.

Run it by `python -m involutive.bench.xla NAME…`; without a name it runs every case. A case of
speed times the same work without and with the workaround, in turn, and prints the least time of
each and their ratio. A case of correctness prints what JAX does and what this package does instead.
"""

import itertools
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from involutive import targets
from involutive._xla import batched, compilation, cost, generator, threads
from involutive._xla.program import same_program_twice
from involutive.auxiliary import GaussianMixture, for_many
from involutive.bench.speed import Job, Rows, fastest, paper_kernel
from involutive.core.errors import InputError
from involutive.core.text import markdown_table
from involutive.involutions.blocks import PermutationBlock
from involutive.kernel.kernel import Kernel
from involutive.sampling.runner import Chains
from involutive.sampling.steps import advance
from involutive.targets.target import Target

TIMES = 7  # runs of each way, in turn
STUCK = 30.0  # seconds without a result after which a program is taken to wait for ever


def _ratio(work: str, unit: str, scale: float, before: Job, after: Job, times: int = TIMES) -> Rows:
    old, new = (scale * timing.wall for timing in fastest([before, after], times))
    row = {"work": work, "unit": unit, "before": f"{old:.4g}", "after": f"{new:.4g}"}
    return [row | {"ratio": f"{old / new:.2f}"}]


def _often(function: Callable[..., Any], *arguments: object, calls: int = 50) -> Job:
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
    """A compiled density of 512 rows, called through `eqx.filter_jit` or through `Jitted`."""
    found: Rows = []
    for name, target in {"mog6": targets.mog6(), "funnel in 10-D": targets.funnel(10)}.items():
        points = compilation.on_device(np.zeros((512, target.dim), np.float32))
        ways = (compilation.jit_once, compilation.Jitted)
        before, after = (
            _often(way(_mapped), target.log_density, points, calls=repeats) for way in ways
        )
        found += _ratio(f"call of {name} at 512 rows", "µs", 1e6 / repeats, before, after)
    return found


def _mapped(function: Callable[..., jax.Array], points: jax.Array) -> jax.Array:
    return jax.vmap(function)(points)


def arrays(shapes: int = 60) -> Rows:
    """NumPy's arrays of new shapes, put on the device."""
    fresh = itertools.count(1)  # JAX remembers every shape that it has met

    def job(way: Callable[[np.ndarray], jax.Array]) -> Job:
        sizes = lambda: [(next(fresh), 3) for _ in range(shapes)]  # noqa: E731
        return lambda: jax.block_until_ready([way(np.zeros(size)) for size in sizes()])

    work = f"{shapes} arrays of new shapes"
    return _ratio(work, "ms", 1e3, job(jnp.asarray), job(compilation.on_device), 3)


def compiling(steps: int = 250, chains: int = 32) -> Rows:
    """Programs of a run, by each effort of compilation: CPU seconds to compile, ms to run."""
    mixture, network = mixture_kernel(), paper_kernel()
    points = jnp.zeros((batched.BLOCK, 2))
    works = {
        f"{steps} steps of {chains} chains, mixture": _block(mixture, steps, chains),
        f"{steps} steps of {chains} chains, paper's network": _block(network, steps, chains),
        "Hessians of mog6 at 512 rows": (batched.hessians, targets.mog6().log_density, points),
    }
    level, short = "xla_backend_optimization_level", compilation.SHORT
    efforts: dict[str, dict[str, Any]] = {"JAX's own": {}, "SHORT": short}
    efforts |= {f"SHORT, level {i}": {**short, level: i} for i in (2, 1)}
    found: Rows = []
    for work, (function, *given) in works.items():
        made = {effort: _compiled(options, function, given) for effort, options in efforts.items()}
        times = fastest([job for _, job in made.values()], TIMES)
        found += [
            {"work": work, "effort": effort, "CPU s to compile": f"{seconds:.3f}"}
            | {"ms to run": f"{1e3 * timing.wall:.2f}"}
            for (effort, (seconds, _)), timing in zip(made.items(), times, strict=True)
        ]
    return found


def _block(kernel: Kernel, steps: int, chains: int) -> tuple[Any, ...]:
    """The runner's function of one block of chains, and its arguments."""
    runner = Chains(kernel, jr.key(0), range(chains), capacity=steps, block=chains)
    runner.start()
    keys, numbers = jr.split(jr.key(1), chains), (jnp.asarray(0), jnp.asarray(steps))
    return advance, for_many(kernel.mover), steps, 1, runner.blocks[0], keys, *numbers


def _compiled(
    options: dict[str, Any], function: Callable[..., Any], arguments: list[Any]
) -> tuple[float, Job]:
    """The least CPU seconds in which a function is compiled, and a job that runs it."""
    seconds, program = [], None
    for _ in range(3):
        jax.clear_caches()
        more: dict[str, Any] = {"compiler_options": options}
        lowered = eqx.filter_jit(function, **more).lower(*arguments)
        began = time.process_time()
        program = lowered.compile()
        seconds.append(time.process_time() - began)
    assert program is not None
    return min(seconds), lambda: jax.block_until_ready(program(*arguments))


def variates(dim: int = 30) -> Rows:
    """Normal variates of many keys, by `jax.random` and by the written-out hash."""
    found: Rows = []
    for count in (32, 256, 1024):
        keys = jr.split(jr.key(0), count)
        before = jax.jit(jax.vmap(lambda key: jr.normal(key, (dim,))))
        after = jax.jit(jax.vmap(lambda key: generator.normal(key, dim)))
        jobs = _often(before, keys), _often(after, generator.unrolled(keys))
        found += _ratio(f"{dim} normals of {count} keys", "µs", 2e4, *jobs)
    return found


def products(size: int = 64, calls: int = 50) -> Rows:
    """Matrix products of NumPy beside busy programs, by BLAS's threads and by one."""
    matrix = np.random.default_rng(0).normal(size=(size, size))
    tall = np.random.default_rng(1).normal(size=(4096, size))
    busy = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(busy) for _ in range(os.cpu_count() or 1)]

    def before() -> list[np.ndarray]:
        return [tall @ matrix for _ in range(calls)]

    def after() -> list[np.ndarray]:
        with threads.one_thread():
            return before()

    try:
        return _ratio(f"{tall.shape} @ {matrix.shape}", "µs", 1e6 / calls, before, after)
    finally:
        for other in others:
            other.kill()


# ── Correctness ─────────────────────────────────────────────────────────────────────────────────


def _shown(case: str, theirs: object, here: object) -> Rows:
    return [{"case": case, "JAX": str(theirs), "here": str(here)}]


AT_ONCE = """
import sys, jax, jax.numpy as jnp
from concurrent.futures import ThreadPoolExecutor
from involutive._xla.lapack import OneByOne
def density(x):
    matrix = jnp.exp(x[0] - (jnp.arange(40.0)[:, None] - jnp.arange(40.0)) ** 2) + jnp.eye(40)
    return jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(matrix))))
function = OneByOne(density) if sys.argv[1] == "alone" else density
program, points = jax.jit(jax.vmap(jax.grad(function))), jnp.zeros((128, 2))
def call(_):
    program(points).block_until_ready()
    print("done", flush=True)
call(0)
with ThreadPoolExecutor(4) as pool:
    list(pool.map(call, range(999)))
"""


def factorising() -> Rows:
    """Programs at once that factorise many matrices each, on the machine's own cores."""

    def made(way: str) -> str:
        child = subprocess.Popen([sys.executable, "-c", AT_ONCE, way], stdout=subprocess.PIPE)
        assert child.stdout is not None
        lines, ended = b"", False
        while not ended and select.select([child.stdout], [], [], STUCK)[0]:
            part = os.read(child.stdout.fileno(), 4096)
            lines, ended = lines + part, not part
        child.kill()
        child.communicate()
        calls = f"{lines.count(b'done')} of 1000 calls"
        return calls if ended else f"{calls}, then none for {STUCK:g} s"

    return _shown("1000 calls of 128 Cholesky factors, 4 at once", made("mapped"), made("alone"))


def counting() -> Rows:
    """Operations of one evaluation: `lowered.cost_analysis()` against the program's own loops."""

    def looped(times: int) -> Callable[[jax.Array], jax.Array]:
        step = lambda _, y: y + 0.01 * jnp.tanh(y)  # noqa: E731
        return lambda x: jnp.sum(jax.lax.fori_loop(0, times, step, x))

    def outside(x: jax.Array) -> jax.Array:
        return jax.pure_callback(np.sum, jax.ShapeDtypeStruct((), x.dtype), x)

    functions = {"a loop of 20": looped(20), "a loop of 2000": looped(2000), "a callback": outside}
    found: Rows = []
    for name, function in functions.items():
        theirs = jax.jit(function).lower(jnp.zeros(4)).cost_analysis()
        assert theirs is not None  # every backend here has one
        found += _shown(f"{name}: operations", theirs["flops"], cost.operations(function, 4))
    return found


def indexing() -> Rows:
    """An index that its axis does not have, and a coordinate that nothing reads."""

    def answer(density: Callable[[jax.Array], jax.Array]) -> str:
        try:
            Target(density, dim=3)
        except InputError as error:
            return str(error)
        return "accepted"

    missing, unread = (lambda x: -jnp.sum(x**2) - x[7] ** 2), (lambda x: -(x[0] ** 2) - x[1] ** 2)
    point = jnp.array([1.0, 2.0, 3.0])
    return [
        *_shown("x[7] of three coordinates", float(missing(point)), answer(missing)),
        *_shown("x[2] is not read", float(unread(point)), answer(unread)),
    ]


def frozen() -> Rows:
    """A density that reads what changes outside of it, which tracing fixes."""
    number = itertools.count(1)

    def density(x: jax.Array) -> jax.Array:
        return -next(number) * jnp.sum(x**2)

    program, point = jax.jit(density), jnp.ones(2)
    compiled, plain = ([float(f(point)) for _ in range(2)] for f in (program, density))
    same = same_program_twice(density, 2)
    return _shown(f"called twice: {plain}", f"compiled: {compiled}", f"same program twice: {same}")


def maps(programs: int = 100) -> Rows:
    """Memory maps that compiled programs take; the process dies where the system has no more."""
    count = lambda: compilation.MAPS.read_bytes().count(b"\n")  # noqa: E731
    before = count()
    kept = [jax.jit(lambda x, i=i: jnp.sum(jnp.sin(x + i))) for i in range(programs)]
    for program in kept:
        program(jnp.zeros(3)).block_until_ready()
    each, limit = (count() - before) / programs, int(compilation.LIMIT.read_text())
    jax.clear_caches()
    case = f"{each:.1f} maps per program, {limit} allowed"
    left = max(count() - before, 0)
    return _shown(case, f"keeps {each * programs:.0f}", f"{left} are left once it forgets programs")


CASES: Mapping[str, Callable[[], Rows]] = {
    case.__name__: case
    for case in (
        *(batch_last, rows, calls, arrays, compiling, variates, products),
        *(factorising, counting, indexing, frozen, maps),
    )
}


def main() -> None:
    """Print the table of each case asked for."""
    for name in sys.argv[1:] or CASES:
        if name not in CASES:
            sys.exit(f"NAME must be one of {', '.join(CASES)}, got {name}")
        sys.stdout.write(f"## {name} (jax {jax.__version__})\n\n{markdown_table(CASES[name]())}\n")


if __name__ == "__main__":
    main()

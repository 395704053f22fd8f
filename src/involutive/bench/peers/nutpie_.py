"""nutpie with its defaults: 400 steps of warm-up, 1000 draws, gradients from JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import nutpie
from nutpie.compiled_pyfunc import from_pyfunc

from involutive.bench.peers.base import GRADIENT, PeerRun, Task, keep_sampling

CHAINS, WARMUP, DRAWS = 8, 400, 1000


def run(task: Task) -> PeerRun:
    """Warm up and sample; each chunk starts again, so that its warm-up is paid again."""
    target, calls = task.target, 0
    slope = jax.jit(jax.value_and_grad(lambda x: jnp.asarray(target.log_density(x), float)))
    starts = np.asarray(task.starts(CHAINS), np.float64)
    slope(jnp.asarray(starts[0]))[0].block_until_ready()

    def make_log_density():
        def log_density(x, **unused):
            nonlocal calls
            calls += 1
            value, gradient = slope(jnp.asarray(x))
            if not np.isfinite(value):
                raise ValueError("the density is not finite here")
            return float(value), np.asarray(gradient, np.float64)

        return log_density

    def make_expand(*unused):
        return lambda x, **more: {"x": np.asarray(x)}

    turn = iter(np.resize(starts, (10_000, target.dim)))
    model = from_pyfunc(
        target.dim, make_log_density, make_expand, [np.dtype("float64")], [(target.dim,)], ["x"],
        make_initial_point_fn=lambda seed: next(turn),
    )  # fmt: skip
    setup = task.spent

    def chunk(i: int) -> tuple:
        before = calls
        trace = nutpie.sample(
            model, chains=CHAINS, tune=task.size(WARMUP, 100), draws=task.size(DRAWS, 100),
            seed=task.seed + i, cores=1, progress_bar=False, blocking=True,
        )  # fmt: skip
        return np.asarray(trace.posterior["x"]), float(GRADIENT * (calls - before))

    draws, seconds, evaluations = keep_sampling(task, chunk, join=0)
    return PeerRun(draws, setup, seconds, 0.0, evaluations)

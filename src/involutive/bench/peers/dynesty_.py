"""dynesty's static nested sampler with its defaults; the prior is X, the likelihood p/X.

Its weighted draws become as many equal ones as their weights are worth (Kish's count), which
takes dynesty's word for their independence.
"""

import dynesty
import jax
import jax.numpy as jnp
import numpy as np

from involutive.bench.peers.base import LOWEST, Integral, PeerRun, Task, equal_draws

LIVE = 500  # live points. Standard: its default


def run(task: Task) -> PeerRun:
    """One run to dynesty's own stopping rule."""
    target = task.target
    compiled = jax.jit(task.log_likelihood)
    compiled(jnp.zeros(target.dim)).block_until_ready()
    setup = task.spent
    sampler = dynesty.NestedSampler(
        lambda x: max(float(np.nan_to_num(compiled(x), nan=LOWEST)), LOWEST),
        lambda u: task.from_cube(u).astype(np.float32),
        target.dim,
        nlive=task.size(LIVE, 50),
        rstate=np.random.default_rng(task.seed),
    )
    sampler.run_nested(print_progress=False)
    found = sampler.results
    draws = equal_draws(np.asarray(found.samples), np.asarray(found.logwt), task.seed + 1)
    return PeerRun(
        draws, setup, task.spent - setup, 0.0, float(np.sum(found.ncall)), exchangeable=True,
        integral=Integral(float(found.logz[-1]), float(found.logzerr[-1])),
    )  # fmt: skip

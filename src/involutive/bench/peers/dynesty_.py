"""dynesty's static nested sampler with its defaults; the prior is X, the likelihood p/X.

Its weighted draws become as many equal ones as their weights are worth (Kish's count), which
takes dynesty's word for their independence.
"""

import dynesty
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from involutive.bench.peers.base import PeerRun, Task, log_initial
from involutive.bench.targets import SPREAD

LIVE = 500


def run(task: Task) -> PeerRun:
    """One run to dynesty's own stopping rule."""
    target = task.target
    compiled = jax.jit(lambda x: jnp.asarray(target.log_density(x) - log_initial(x), float))
    compiled(jnp.zeros(target.dim)).block_until_ready()
    setup = task.spent
    sampler = dynesty.NestedSampler(
        lambda x: max(float(np.nan_to_num(compiled(x), nan=-1e300)), -1e300),
        lambda u: (SPREAD * ndtri(u)).astype(np.float32),
        target.dim,
        nlive=task.size(LIVE, 50),
        rstate=np.random.default_rng(task.seed),
    )
    sampler.run_nested(print_progress=False)
    results = sampler.results
    weights = results.importance_weights()
    worth = int(1 / np.sum(weights**2))
    rng = np.random.default_rng(task.seed + 1)
    places = (np.arange(worth) + rng.random()) / worth
    rows = np.minimum(np.searchsorted(np.cumsum(weights), places), len(weights) - 1)
    draws = np.asarray(results.samples)[rows][None]
    calls = float(np.sum(results.ncall))
    return PeerRun(draws, setup, task.spent - setup, 0.0, calls, exchangeable=True)

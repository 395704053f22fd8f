"""eryn: an ensemble with parallel tempering between X (the prior) and the target."""

import numpy as np
from eryn.ensemble import EnsembleSampler
from eryn.prior import ProbDistContainer
from scipy.stats import norm

from involutive.bench.peers.base import PeerRun, Task, keep_sampling, of_rows

if not hasattr(np, "in1d"):  # eryn calls it; NumPy 2.4 has only its new name
    np.in1d = np.isin  # type: ignore[attr-defined]  # noqa: NPY201
TEMPERATURES, LEAST_WALKERS, BURN, STEPS = 10, 64, 1000, 500


def run(task: Task) -> PeerRun:
    """Burn in, then keep the coldest chains in chunks."""
    dim = task.target.dim
    walkers = max(LEAST_WALKERS, 4 * dim)
    prior = ProbDistContainer({i: norm(0.0, task.spread) for i in range(dim)})
    sampler = EnsembleSampler(
        walkers, dim, of_rows(task.log_likelihood), prior,
        tempering_kwargs={"ntemps": TEMPERATURES}, vectorize=True,
    )  # fmt: skip
    np.random.seed(task.seed)  # noqa: NPY002  (eryn's own generator)
    starts = np.asarray(task.starts(TEMPERATURES * walkers), np.float64)
    steps = task.size(BURN, 50)
    state = sampler.run_mcmc(starts.reshape(TEMPERATURES, walkers, 1, dim), steps)
    setup, cost = task.spent, TEMPERATURES * walkers

    def chunk(i: int) -> tuple:
        nonlocal state
        count = task.size(STEPS, 50)
        before = sampler.backend.iteration
        state = sampler.run_mcmc(state, count)
        chain = sampler.get_chain()["model_0"][before:, 0, :, 0]
        return np.swapaxes(chain, 0, 1), float(count * cost)

    draws, seconds, evaluations = keep_sampling(task, chunk)
    return PeerRun(draws, setup, seconds, float(steps * cost), evaluations)

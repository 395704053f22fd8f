"""emcee with the mix of moves its documentation gives for several modes."""

import emcee
import numpy as np

from involutive.bench.peers.base import PeerRun, Task, keep_sampling, of_rows

WALKERS_A_DIM, LEAST_WALKERS, BURN, STEPS = 4, 64, 2000, 1000


def run(task: Task) -> PeerRun:
    """Burn in, then sample in chunks."""
    dim = task.target.dim
    walkers = max(LEAST_WALKERS, WALKERS_A_DIM * dim)
    moves = [(emcee.moves.DEMove(), 0.8), (emcee.moves.DESnookerMove(), 0.2)]
    sampler = emcee.EnsembleSampler(
        walkers, dim, of_rows(task.target.log_density), moves=moves, vectorize=True
    )
    np.random.seed(task.seed)  # noqa: NPY002  (emcee's own generator)
    steps = task.size(BURN, 100)
    state = sampler.run_mcmc(np.asarray(task.starts(walkers), np.float64), steps)
    setup = task.spent

    def chunk(i: int) -> tuple:
        nonlocal state
        sampler.reset()
        state = sampler.run_mcmc(state, task.size(STEPS, 200))
        chain = sampler.get_chain()
        return np.swapaxes(chain, 0, 1), float(chain.shape[0] * walkers)

    draws, seconds, evaluations = keep_sampling(task, chunk)
    return PeerRun(draws, setup, seconds, float(steps * walkers), evaluations)

"""pocoMC with its defaults, where it is installed (it needs PyTorch); the prior is X."""

import numpy as np
import pocomc
from scipy.stats import norm

from involutive.bench.peers.base import PeerRun, Task, log_density_of_rows
from involutive.bench.targets import SPREAD


def run(task: Task) -> PeerRun:
    """One run to its own stopping rule."""
    dim, density = task.target.dim, log_density_of_rows(task.target)
    prior = pocomc.Prior([norm(0.0, SPREAD)] * dim)

    def likelihood(x: np.ndarray) -> np.ndarray:
        return density(x) - norm.logpdf(x, scale=SPREAD).sum(axis=1)

    sampler = pocomc.Sampler(prior, likelihood, vectorize=True, random_state=task.seed)
    setup = task.spent
    sampler.run(progress=False)
    draws, *_ = sampler.posterior(resample=True)
    calls = float(sampler.calls)
    seconds = task.spent - setup
    return PeerRun(np.asarray(draws)[None], setup, seconds, 0.0, calls, exchangeable=True)

"""pocoMC with its defaults, where it is installed (it needs PyTorch); the prior is X."""

import numpy as np
import pocomc
from scipy.stats import norm

from involutive.bench.peers.base import Integral, PeerRun, Task, of_rows


def run(task: Task) -> PeerRun:
    """One run to its own stopping rule."""
    prior = pocomc.Prior([norm(0.0, task.spread)] * task.target.dim)
    likelihood = of_rows(task.log_likelihood)
    sampler = pocomc.Sampler(prior, likelihood, vectorize=True, random_state=task.seed)
    setup = task.spent
    sampler.run(progress=False)
    draws, *_ = sampler.posterior(resample=True)
    calls = float(sampler.calls)
    seconds = task.spent - setup
    log_z, error = (float(part) for part in sampler.evidence())
    return PeerRun(
        np.asarray(draws)[None], setup, seconds, 0.0, calls, exchangeable=True,
        integral=Integral(log_z, error),
    )  # fmt: skip

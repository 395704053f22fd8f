"""nautilus with its defaults, 2000 live points and 10,000 effective draws; the prior is X."""

import numpy as np
from nautilus import Sampler

from involutive.bench.peers.base import Integral, PeerRun, Task, equal_draws, of_rows

LIVE, EFFECTIVE = 2000, 10_000  # live points, as it has by default, and effective draws


def run(task: Task) -> PeerRun:
    """Explore, which is its set-up, then sample until its own stopping rule or until time is up."""
    sampler = Sampler(
        task.from_cube, of_rows(task.log_likelihood), n_dim=task.target.dim,
        n_live=task.size(LIVE, 500), vectorized=True, pass_dict=False, seed=task.seed,
    )  # fmt: skip
    left, began = lambda: max(task.seconds - task.spent, 1.0), task.spent
    sampler.run(n_eff=0, timeout=left(), verbose=False)
    setup, explored = task.spent, float(sampler.n_like)
    if not sampler.run(n_eff=task.size(EFFECTIVE, 1000), timeout=left(), verbose=False):
        setup, explored = began, 0.0  # cut short: what it has is of the exploration
    points, log_weights, _ = sampler.posterior()
    draws = equal_draws(np.asarray(points), np.asarray(log_weights), task.seed)
    error = float(1 / np.sqrt(max(sampler.n_eff, 1.0)))  # its documentation's estimate
    return PeerRun(
        draws, setup, task.spent - setup, explored, float(sampler.n_like) - explored,
        exchangeable=True,
        integral=Integral(float(sampler.log_z), error),
    )  # fmt: skip

"""Tempest (persistent tempered sampling, by pocoMC's author) with its defaults; the prior is X."""

import numpy as np
import tempest

from involutive.bench.peers.base import Integral, PeerRun, Task, equal_draws, of_rows

TOTAL = 4096  # effective draws that it collects: its default


def run(task: Task) -> PeerRun:
    """One run to its own stopping rule."""
    calls, evaluate = 0, of_rows(task.log_likelihood)

    def counted(x: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += len(np.atleast_2d(x))
        return evaluate(x)

    sampler = tempest.Sampler(
        task.from_cube, counted, task.target.dim, vectorize=True, random_state=task.seed
    )
    setup = task.spent
    sampler.run(n_total=task.size(TOTAL, 500), progress=False)
    points, weights, *_ = sampler.posterior()
    log_weights = np.log(np.maximum(np.asarray(weights), 1e-300))
    draws = equal_draws(np.asarray(points), log_weights, task.seed)
    log_z, error = sampler.evidence()
    return PeerRun(
        draws, setup, task.spent - setup, 0.0, float(calls), exchangeable=True,
        integral=Integral(float(log_z), None if error is None else float(error)),
    )  # fmt: skip

"""UltraNest's reactive nested sampler with its defaults; the prior is X."""

import numpy as np
import ultranest

from involutive.bench.peers.base import Integral, PeerRun, Task, equal_draws, of_rows

LIVE = 400  # live points, at least


def run(task: Task) -> PeerRun:
    """One run to its own stopping rule."""
    np.random.seed(task.seed)  # noqa: NPY002  (UltraNest's own generator)
    names = [f"x{i}" for i in range(task.target.dim)]
    sampler = ultranest.ReactiveNestedSampler(
        names, of_rows(task.log_likelihood), task.from_cube, vectorized=True
    )
    setup = task.spent
    live = task.size(LIVE, 100)
    found = sampler.run(min_num_live_points=live, show_status=False, viz_callback=False)
    weighted = found["weighted_samples"]
    log_weights = np.log(np.maximum(weighted["weights"], 1e-300))
    draws = equal_draws(np.asarray(weighted["points"]), log_weights, task.seed)
    return PeerRun(
        draws, setup, task.spent - setup, 0.0, float(found["ncall"]), exchangeable=True,
        integral=Integral(float(found["logz"]), float(found["logzerr"])),
    )  # fmt: skip

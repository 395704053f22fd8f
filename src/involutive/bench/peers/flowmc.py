"""flowMC: the spline-flow and MALA bundle with the sizes of its quick start."""

import tempfile

import jax.random as jr
import numpy as np
from flowMC.resource_strategy_bundle.RQSpline_MALA import RQSpline_MALA_Bundle
from flowMC.Sampler import Sampler

from involutive.bench.peers.base import GRADIENT, PeerRun, Task

CHAINS, LOCAL, GLOBAL, TRAINING, PRODUCTION, EPOCHS = 100, 50, 50, 20, 20, 20


def run(task: Task) -> PeerRun:
    """Its own training loops, then production loops, timed apart."""
    target, loops = task.target, (task.size(TRAINING, 2), task.size(PRODUCTION, 2))
    bundle = RQSpline_MALA_Bundle(
        jr.fold_in(task.key, 1), CHAINS, target.dim, lambda x, data: target.log_density(x),
        n_local_steps=LOCAL, n_global_steps=GLOBAL, n_training_loops=loops[0],
        n_production_loops=loops[1], n_epochs=EPOCHS,
    )  # fmt: skip
    marks: list[float] = []
    _mark_before(bundle.strategies, "reset_steppers", lambda: marks.append(task.spent))
    with tempfile.TemporaryDirectory() as folder:
        sampler = Sampler(
            n_dim=target.dim, n_chains=CHAINS, rng_key=jr.fold_in(task.key, 2),
            resource_strategy_bundles=bundle, checkpoint_interval=0, outdir=folder,
        )  # fmt: skip
        sampler.sample(task.starts(CHAINS), {})
    setup, end = marks[0], task.spent
    draws = np.asarray(sampler.resources["positions_production"].data)
    cost = CHAINS * (LOCAL * GRADIENT + GLOBAL)
    return PeerRun(draws, setup, end - setup, loops[0] * cost, loops[1] * cost)


def _mark_before(strategies: dict, name: str, mark) -> None:
    """Note the time when production begins: the strategy of that name runs once, before it."""
    inner = strategies[name]

    def marked(*args, **options):
        mark()
        return inner(*args, **options)

    strategies[name] = marked

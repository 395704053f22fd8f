"""This library with its defaults: `learn` from the density, then `sample`."""

import numpy as np

import involutive.interop.arviz  # noqa: F401  no peer's imports are part of its time
from involutive.bench.peers.base import PeerRun, Task, keep_sampling, timed
from involutive.learning.judge.pilot import evaluations_per_step
from involutive.learning.learn import learn
from involutive.sampling.sample import sample

CHAINS, DRAWS, FIRST = 512, 500, 250


def run(task: Task) -> PeerRun:
    """Learn, compile and warm up the chains, then sample in chunks."""
    budget = 20.0 if task.quick else None
    learned = learn(task.target, key=task.seed, budget=budget, progress=False)
    kernel, warmup = learned.kernel, learned.warmup
    first = sample(
        kernel, key=task.seed + 1, num_chains=CHAINS, num_samples=FIRST, num_warmup=warmup,
        initial=learned.initial, progress=False,
    )  # fmt: skip
    places, cost = first.positions[:, -1], CHAINS * DRAWS * evaluations_per_step(kernel)

    def draw(count: int, seed: int) -> np.ndarray:
        draws = sample(
            kernel, key=seed, num_chains=CHAINS, num_samples=count, initial=places, progress=False
        )
        return draws.positions

    _, again = timed(lambda: draw(FIRST, task.seed + 1))
    setup = task.spent - 2 * again  # as for SMC: of the first draws, compilation and warm-up alone

    def chunk(i: int) -> tuple:
        nonlocal places
        draws = draw(DRAWS, task.seed + 2 + i)
        places = draws[:, -1]
        return draws, cost

    draws, seconds, evaluations = keep_sampling(task, chunk)
    spent = learned.outcome.evaluations + cost * FIRST / DRAWS
    nearly = learned.outcome.nearly_learned
    return PeerRun(draws, setup, seconds, spent, evaluations, learned_seconds=nearly)

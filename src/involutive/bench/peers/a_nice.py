"""A-NICE-MC: its network, its adversarial training, and its bootstrap, with its code's sizes.

Rounds of training are as many as fit into the time that other samplers are given.
"""

import jax.random as jr

from involutive.bench.peers.base import PeerRun, Task, keep_sampling
from involutive.kernel.classical import a_nice_mc, a_nice_network
from involutive.learning.problem import initial_distribution
from involutive.sampling.sample import sample
from involutive.training.a_nice import ANice
from involutive.training.bootstrap import BootstrapConfig, bootstrap
from involutive.training.fit import TrainConfig

CHAINS, DRAWS, WARMUP, ROUNDS = 64, 1000, 500, 2
QUICK = BootstrapConfig(rounds=1, train=TrainConfig(steps=20, chunk=20, patience=None), draws=100)


def run(task: Task) -> PeerRun:
    """Bootstrap from X, then sample with the trained kernel alone."""
    target = task.target
    network = a_nice_network(jr.fold_in(task.key, 1), target.dim)
    kernel = a_nice_mc(target, network, initial_distribution(None, target, task.spread))
    config = QUICK if task.quick else BootstrapConfig(rounds=ROUNDS)
    trained = bootstrap(kernel, ANice(), key=task.seed, config=config, progress=False).kernel
    first = sample(
        trained, key=task.seed + 1, num_chains=CHAINS, num_samples=16, num_warmup=WARMUP,
        progress=False,
    )  # fmt: skip
    places, setup = first.positions[:, -1], task.spent

    def chunk(i: int) -> tuple:
        nonlocal places
        draws = sample(
            trained, key=task.seed + 2 + i, num_chains=CHAINS, num_samples=DRAWS, initial=places,
            progress=False,
        )  # fmt: skip
        places = draws.positions[:, -1]
        return draws.positions, CHAINS * DRAWS

    draws, seconds, evaluations = keep_sampling(task, chunk)
    refreshes = config.rounds * config.chains * (config.draws + config.burn_in)
    return PeerRun(draws, setup, seconds, refreshes, evaluations)

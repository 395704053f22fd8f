"""BlackJAX's HMC: window adaptation of 1000 steps on one chain, then 64 chains from X."""

import blackjax
import jax
import jax.random as jr
import numpy as np

from involutive.bench.peers.base import GRADIENT, Outcome, Task, keep_sampling

ADAPT, CHAINS, LEAPS, WARMUP, DRAWS = 1000, 64, 16, 500, 500


def run(task: Task) -> Outcome:
    """Adapt, run the chains to where they belong, then sample in chunks."""
    log_density = task.target.log_density
    adapt = blackjax.window_adaptation(blackjax.hmc, log_density, num_integration_steps=LEAPS)
    starts = task.starts(CHAINS + 1)
    keys = jr.split(task.key, 3)
    steps = task.size(ADAPT, 100)
    (_, parameters), _ = adapt.run(keys[0], starts[0], steps)
    kernel = blackjax.hmc(log_density, **parameters)
    states = jax.vmap(kernel.init)(starts[1:])

    @jax.jit
    def advance(key, states):
        def one(states, key):
            states, _ = jax.vmap(kernel.step)(jr.split(key, CHAINS), states)
            return states, states.position

        return jax.lax.scan(one, states, jr.split(key, DRAWS))

    warm = max(WARMUP // DRAWS, 1)
    for i in range(warm):
        states, positions = advance(jr.fold_in(keys[1], i), states)
    jax.block_until_ready(positions)
    setup = task.spent
    cost = GRADIENT * LEAPS * CHAINS * DRAWS

    def chunk(i: int) -> tuple:
        nonlocal states
        states, positions = advance(jr.fold_in(keys[2], i), states)
        return np.swapaxes(np.asarray(positions), 0, 1), cost

    draws, seconds, evaluations = keep_sampling(task, chunk)
    return Outcome(draws, setup, seconds, warm * cost + GRADIENT * LEAPS * steps, evaluations)

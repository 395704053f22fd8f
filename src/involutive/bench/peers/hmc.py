"""BlackJAX's HMC: 64 chains from X, each after its own window adaptation of 1000 steps."""

import blackjax
import jax
import jax.random as jr
import numpy as np

from involutive.bench.peers.base import GRADIENT, PeerRun, Task, keep_sampling

ADAPT, CHAINS, LEAPS, DRAWS = 1000, 64, 16, 500


def run(task: Task) -> PeerRun:
    """Adapt every chain, which also brings it to where it belongs, then sample in chunks."""
    log_density = task.target.log_density
    adapt = blackjax.window_adaptation(blackjax.hmc, log_density, num_integration_steps=LEAPS)
    keys = jr.split(task.key, 3)
    steps = task.size(ADAPT, 100)

    @jax.jit
    @jax.vmap
    def warmed(key, start):
        (state, parameters), _ = adapt.run(key, start, steps)
        return state, parameters["step_size"], parameters["inverse_mass_matrix"]

    states, sizes, masses = warmed(jr.split(keys[0], CHAINS), task.starts(CHAINS))
    kernel = blackjax.hmc.build_kernel()

    def move(key, state, size, mass):
        return kernel(key, state, log_density, size, mass, LEAPS)

    @jax.jit
    def advance(key, states):
        def one(states, key):
            states, _ = jax.vmap(move)(jr.split(key, CHAINS), states, sizes, masses)
            return states, states.position

        return jax.lax.scan(one, states, jr.split(key, DRAWS))

    jax.block_until_ready(advance(keys[1], states))  # compiles
    setup = task.spent
    cost = GRADIENT * LEAPS * CHAINS * DRAWS

    def chunk(i: int) -> tuple:
        nonlocal states
        states, positions = advance(jr.fold_in(keys[2], i), states)
        return np.swapaxes(np.asarray(positions), 0, 1), cost

    draws, seconds, evaluations = keep_sampling(task, chunk)
    return PeerRun(draws, setup, seconds, GRADIENT * LEAPS * CHAINS * steps, evaluations)

"""BlackJAX's adaptive tempered SMC from X to the target, HMC moves, as its documentation builds it.

Each run gives one cloud of particles. Runs are repeated; a run counts as a chain, so that what
differs between runs lowers the effective draws, as it should.
"""

from collections.abc import Callable

import blackjax
import blackjax.smc.resampling as resampling
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from blackjax.base import SamplingAlgorithm
from blackjax.smc import extend_params
from jaxtyping import Array

from involutive.bench.peers.base import GRADIENT, PeerRun, Task, keep_sampling, timed

# ten leaps of 0.3 are one period of modes of sd 0.5, so that particles would return where they were
PARTICLES, MOVES, LEAPS, STEP, TARGET_ESS = 2000, 20, 4, 0.3, 0.5


def run(task: Task) -> PeerRun:
    """Compile with one run, then repeat it on fresh particles."""
    target, count = task.target, task.size(PARTICLES, 200)
    one_run = _one_run(_tempered(task))

    def chunk(i: int) -> tuple:
        key_start, key_run = jr.split(jr.fold_in(task.key, i + 1))
        particles = task.spread * jr.normal(key_start, (count, target.dim))
        particles, temperatures = one_run(key_run, particles)
        cost = float(temperatures) * count * MOVES * GRADIENT * (LEAPS + 1)
        return np.asarray(particles)[None], cost

    chunk(-1)
    _, again = timed(lambda: chunk(-1))
    setup = task.spent - 2 * again  # compilation alone: a run is not set-up
    draws, seconds, evaluations = keep_sampling(task, chunk, join=0)
    return PeerRun(draws, setup, seconds, 0.0, evaluations, exchangeable=True)


def _tempered(task: Task) -> SamplingAlgorithm:
    """The algorithm from X to the target, with HMC moves."""
    settings = {
        "step_size": STEP,
        "inverse_mass_matrix": jnp.ones(task.target.dim),
        "num_integration_steps": LEAPS,
    }
    return blackjax.adaptive_tempered_smc(
        task.log_initial,
        task.log_likelihood,
        blackjax.hmc.build_kernel(),
        blackjax.hmc.init,
        extend_params(settings),
        resampling.systematic,
        TARGET_ESS,
        num_mcmc_steps=MOVES,
    )


def _one_run(tempered: SamplingAlgorithm) -> Callable[[Array, Array], tuple[Array, Array]]:
    """From a key and particles of X, particles of the target and the number of temperatures."""

    def go(carry: tuple) -> tuple:
        state, key, n = carry
        key, key_step = jr.split(key)
        state, _ = tempered.step(key_step, state)
        return state, key, n + 1

    @jax.jit
    def one_run(key: Array, particles: Array) -> tuple[Array, Array]:
        start = (tempered.init(particles), key, 0)
        reached = jax.lax.while_loop(lambda c: c[0].tempering_param < 1, go, start)
        # particles are of the temperature before, with weights; one more step resamples and moves
        state, _, n = go(reached)
        return state.particles, n

    return one_run

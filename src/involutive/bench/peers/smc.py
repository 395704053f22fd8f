"""BlackJAX's adaptive tempered SMC from X to the target, HMC moves, as its documentation builds it.

Each run gives one cloud of particles and an unbiased estimate of Z. Runs are repeated; a run counts
as a chain, so that what differs between runs lowers the effective draws, as it should, and log Z is
that of their mean.
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

from involutive.bench.peers.base import GRADIENT, Integral, PeerRun, Task, keep_sampling, timed

# ten leaps of 0.3 are one period of modes of sd 0.5, so that particles would return where they were
PARTICLES, MOVES, LEAPS, STEP, TARGET_ESS = 2000, 20, 4, 0.3, 0.5


def run(task: Task) -> PeerRun:
    """Compile with one run, then repeat it on fresh particles."""
    target, count = task.target, task.size(PARTICLES, 200)
    one_run = _one_run(_tempered(task))
    log_z: list[float] = []

    def chunk(i: int) -> tuple:
        key_start, key_run = jr.split(jr.fold_in(task.key, i + 1))
        particles = task.spread * jr.normal(key_start, (count, target.dim))
        particles, temperatures, found = one_run(key_run, particles)
        if i >= 0:
            log_z.append(float(found))
        cost = float(temperatures) * count * MOVES * GRADIENT * (LEAPS + 1)
        return np.asarray(particles)[None], cost

    chunk(-1)
    _, again = timed(lambda: chunk(-1))
    setup = task.spent - 2 * again  # compilation alone: a run is not set-up
    draws, seconds, evaluations = keep_sampling(task, chunk, join=0)
    return PeerRun(
        draws, setup, seconds, 0.0, evaluations, exchangeable=True, integral=_joined(log_z)
    )


def _joined(log_z: list[float]) -> Integral:
    """The log of the mean of Z over runs, with the standard error of that mean."""
    top = max(log_z)
    shares = np.exp(np.array(log_z) - top)
    spread = shares.std(ddof=1) / shares.mean() if len(log_z) > 1 else None
    error = None if spread is None else float(spread / np.sqrt(len(log_z)))
    return Integral(top + float(np.log(shares.mean())), error)


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


def _one_run(tempered: SamplingAlgorithm) -> Callable[[Array, Array], tuple[Array, Array, Array]]:
    """From a key and particles of X, particles of the target, the temperatures, and log Z."""

    def go(carry: tuple) -> tuple:
        state, key, n, log_z = carry
        key, key_step = jr.split(key)
        state, info = tempered.step(key_step, state)
        return state, key, n + 1, log_z + info.log_likelihood_increment

    @jax.jit
    def one_run(key: Array, particles: Array) -> tuple[Array, Array, Array]:
        start = (tempered.init(particles), key, 0, jnp.zeros(()))
        reached = jax.lax.while_loop(lambda c: c[0].tempering_param < 1, go, start)
        # particles are of the temperature before, with weights; one more step resamples and moves
        state, _, n, log_z = go(reached)
        return state.particles, n, log_z

    return one_run

"""BlackJAX's nested slice sampling with the sizes its documentation advises; the prior is X.

`2 dim` slice steps per new point, at least 5. A tenth of the live points is replaced at a time, so
that slices run side by side.
"""

import blackjax
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from blackjax.ns.utils import finalise, log_weights
from jax.scipy.special import logsumexp

from involutive.bench.peers.base import Integral, PeerRun, Task, equal_draws

LIVE, SHARE = 1000, 10  # live points, and which share of them is replaced at once
REMAINING = -3.0  # log of the live points' part of Z at which a run ends: the documentation's


def run(task: Task) -> PeerRun:
    """One run until the live points hold e⁻³ of the evidence."""
    live = task.size(LIVE, 100)
    inner = max(5, 2 * task.target.dim)
    sampler = blackjax.nss(
        task.log_initial, task.log_likelihood, num_inner_steps=inner, num_delete=live // SHARE
    )
    step = jax.jit(sampler.step)
    state = jax.jit(sampler.init)(task.starts(live))
    key = jr.fold_in(task.key, 1)
    step(key, state)[0].particles.loglikelihood.block_until_ready()  # compiles
    setup, dead = task.spent, []
    while state.integrator.logZ_live - state.integrator.logZ > REMAINING:
        key, key_step = jr.split(key)
        state, info = step(key_step, state)
        dead.append(info)
    every = finalise(state, dead)
    weights = log_weights(jr.fold_in(task.key, 2), every)
    log_z = np.asarray(logsumexp(weights, axis=0))
    mean = np.asarray(jnp.nan_to_num(weights, neginf=-1e300)).mean(axis=1)
    draws = equal_draws(np.asarray(every.particles.position), mean, task.seed)
    slices = every.update_info  # a slice costs its expansions, its shrinkages and one more
    calls = live + sum(
        float(np.asarray(part).sum()) for part in (slices.num_expansions, slices.num_shrink)
    )
    seconds = task.spent - setup
    integral = Integral(float(log_z.mean()), float(log_z.std()))
    return PeerRun(draws, setup, seconds, 0.0, calls, exchangeable=True, integral=integral)

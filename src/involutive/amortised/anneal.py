"""Annealed particles of many posteriors at once: draws that owe nothing to a network.

From X with the density r, particles pass through `r(x)^{1-β} p(x, D)^β` for β from 0 to 1. At every
temperature they are resampled by their weights and moved by random walks as wide as they are. They
follow mass and not gradients, so that a mode gets about the particles that its weight deserves.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Float, Key

from involutive.amortised.family import Family

NEVER = -1e30  # a log density where there is none, so that no difference is NaN
EARLY = 4.0  # power of the schedule of β: most temperatures are spent near X; a guess
SHRINK = (1.0, 0.3, 0.1)  # scales of moves, as multiples of 2.38/√d of the particles' sds; guesses


class Annealed(NamedTuple):
    """Particles of one posterior, `(particles, dim)`, with log p(x, D)."""

    x: Float[Array, "particles dim"]
    log_density: Float[Array, " particles"]


def annealed(
    family: Family,
    law: AbstractDistribution,
    observed: Any,
    key: Key[Array, ""],
    particles: int,
    temperatures: int,
    moves: int,
) -> Annealed:
    """Particles of the posterior of one padded data set; mapped over data sets by the caller."""
    key_start, key_run = jr.split(key)
    log_p = jax.vmap(lambda x: _finite(family.density(observed)(x)))
    log_r = jax.vmap(lambda x: _finite(law.log_prob(x)))
    x = jax.vmap(law.sample)(jr.split(key_start, particles))
    betas = (jnp.arange(temperatures + 1) / temperatures) ** EARLY

    def cool(carry: tuple[Array, Array, Array], i: Array) -> tuple[Any, None]:
        x, p, r = carry
        before, beta = betas[i], betas[i + 1]
        key_pick, key_move = jr.split(jr.fold_in(key_run, i))
        weights = jax.nn.softmax((beta - before) * (p - r))
        pick = _systematic(key_pick, weights)
        x, p, r = x[pick], p[pick], r[pick]
        spread = jnp.std(x, axis=0)

        def move(state: tuple[Array, Array, Array], j: Array) -> tuple[Any, None]:
            x, p, r = state
            key_noise, key_accept = jr.split(jr.fold_in(key_move, j))
            size = 2.38 / x.shape[1] ** 0.5 * jnp.asarray(SHRINK, x.dtype)[j % len(SHRINK)]
            new = x + size * spread[None] * jr.normal(key_noise, x.shape, x.dtype)
            new_p, new_r = log_p(new), log_r(new)
            gain = beta * (new_p - p) + (1 - beta) * (new_r - r)
            accepted = jnp.log(jr.uniform(key_accept, p.shape, p.dtype)) < gain
            chosen = (jnp.where(accepted[:, None], new, x), jnp.where(accepted, new_p, p))
            return (*chosen, jnp.where(accepted, new_r, r)), None

        # at the end as many moves again: resampling leaves copies
        return jax.lax.scan(move, (x, p, r), jnp.arange(moves))[0], None

    state, _ = jax.lax.scan(cool, (x, log_p(x), log_r(x)), jnp.arange(temperatures))
    return Annealed(state[0], state[1])


def _finite(value: Any) -> Array:
    return jnp.where(jnp.isfinite(value), value, NEVER)


def _systematic(key: Key[Array, ""], weights: Float[Array, " n"]) -> Array:
    """Indices of a systematic resampling, of least variance."""
    count = weights.shape[0]
    places = (jnp.arange(count) + jr.uniform(key, dtype=weights.dtype)) / count
    return jnp.clip(jnp.searchsorted(jnp.cumsum(weights), places), 0, count - 1)

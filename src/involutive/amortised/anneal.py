"""Annealed particles of many posteriors at once: draws that do not depend on a network.

From X with the density r, particles pass through `r(x)^{1-β} p(x, D)^β` for β from 0 to 1. At every
temperature they are resampled by their weights and moved by random walks as wide as they are. They
follow mass and not gradients, so that a mode gets about the particles that its weight deserves.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Bool, Float, Key

from involutive.amortised.family import Family
from involutive.amortised.layout import Observed
from involutive.amortised.settings import AmortiseSettings, ManySettings

NEVER = -1e30  # stands for a log density of -inf or NaN, so that no difference is NaN
STEP = 2.38  # standard: over √d, the best step of a random walk in sds of the target


class SetParticles(NamedTuple):
    """Particles of one posterior, `(particles, dim)`, with log p(x, D)."""

    x: Float[Array, "particles dim"]
    log_density: Float[Array, " particles"]


class Cloud(NamedTuple):
    """Particles between X and a posterior, with both log densities."""

    x: Float[Array, "particles dim"]
    log_p: Float[Array, " particles"]
    log_r: Float[Array, " particles"]


def annealed(
    family: Family,
    law: AbstractDistribution,
    observed: Observed,
    key: Key[Array, ""],
    settings: AmortiseSettings | ManySettings,
) -> SetParticles:
    """Particles of the posterior of one padded data set; mapped over data sets by the caller."""
    key_start, key_run = jr.split(key)
    particles, temperatures = settings.particles, settings.temperatures
    log_p = jax.vmap(lambda x: _finite(family.density(observed)(x)))
    log_r = jax.vmap(lambda x: _finite(law.log_prob(x)))
    x = jax.vmap(law.sample)(jr.split(key_start, particles))
    betas = (jnp.arange(temperatures + 1) / temperatures) ** settings.early
    scales = STEP / x.shape[1] ** 0.5 * jnp.asarray(settings.move_scales, x.dtype)

    def cool(cloud: Cloud, i: Array) -> tuple[Cloud, None]:
        before, beta = betas[i], betas[i + 1]
        key_pick, key_move = jr.split(jr.fold_in(key_run, i))
        weights = jax.nn.softmax((beta - before) * (cloud.log_p - cloud.log_r))
        pick = _systematic(key_pick, weights)
        cloud = jax.tree.map(lambda leaf: leaf[pick], cloud)
        spread = jnp.std(cloud.x, axis=0)

        def move(cloud: Cloud, j: Array) -> tuple[Cloud, None]:
            key_noise, key_accept = jr.split(jr.fold_in(key_move, j))
            noise = jr.normal(key_noise, cloud.x.shape, cloud.x.dtype)
            new = cloud.x + scales[j % scales.size] * spread[None] * noise
            proposed = Cloud(new, log_p(new), log_r(new))
            gain = beta * (proposed.log_p - cloud.log_p)
            gain = gain + (1 - beta) * (proposed.log_r - cloud.log_r)
            accepted = jnp.log(jr.uniform(key_accept, gain.shape, gain.dtype)) < gain
            return jax.tree.map(lambda a, b: _where(accepted, a, b), proposed, cloud), None

        return jax.lax.scan(move, cloud, jnp.arange(settings.moves))[0], None

    cloud, _ = jax.lax.scan(cool, Cloud(x, log_p(x), log_r(x)), jnp.arange(temperatures))
    return SetParticles(cloud.x, cloud.log_p)


def _where(chosen: Bool[Array, " n"], new: Array, old: Array) -> Array:
    return jnp.where(chosen.reshape(-1, *[1] * (new.ndim - 1)), new, old)


def _finite(value: Array) -> Array:
    return jnp.where(jnp.isfinite(value), value, NEVER)


def _systematic(key: Key[Array, ""], weights: Float[Array, " n"]) -> Array:
    """Indices of systematic resampling."""
    count = weights.shape[0]
    places = (jnp.arange(count) + jr.uniform(key, dtype=weights.dtype)) / count
    return jnp.clip(jnp.searchsorted(jnp.cumsum(weights), places), 0, count - 1)

"""The compiled parts of adaptation: rounds of many ladders in parallel."""

import time
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.compilation import jit_once
from involutive.core.types import Number
from involutive.kernel.kernel import State
from involutive.kernel.replicas import Tempered
from involutive.kernel.rungs import Bridge


class Seen(NamedTuple):
    """The measurements of a round: means over its second half, and records of all of it."""

    swaps: np.ndarray
    moves: np.ndarray
    means: np.ndarray  # (replicas, dim)
    spreads: np.ndarray  # variances, (replicas, dim)
    slopes: np.ndarray  # mean squared gradients of replicas but the hot one
    log_weights: np.ndarray  # (scans, ladders, replicas)
    cold: np.ndarray  # (scans, ladders, dim)
    trips: int


# states, step sizes, sums of measurements, log weights and cold positions of every scan
Carry = tuple[State, Array, tuple[Array, ...], Array, Array]


@jit_once
def reference_draws(reference: AbstractDistribution, keys: Array) -> Array:
    return jax.vmap(reference.sample)(keys)


@jit_once
def started(kernel: Tempered, positions: Array, keys: Array) -> State:
    return jax.vmap(kernel.init)(positions, keys)


@jit_once
def scored(kernel: Tempered, states: State) -> State:
    """The states with log densities under the kernel's reference."""
    log_q = jax.vmap(jax.vmap(kernel.reference.log_prob))(states.carried.positions)
    dtype = states.position.dtype
    return states._replace(carried=states.carried._replace(log_reference=log_q.astype(dtype)))


@jit_once
def run_round(
    kernel: Tempered, states: State, key: Key[Array, ""], count: Array, rate: Array, capacity: int
) -> Carry:
    """Make `count` scans of all ladders; step sizes adapt to the acceptance `rate`, unless NaN."""
    ladders, dim = states.position.shape
    dtype = states.position.dtype

    def body(t: Array, carry: Carry) -> Carry:
        states, steps, sums, weights, cold = carry
        now = eqx.tree_at(lambda k: k.steps, kernel, steps)
        keys = jr.split(jr.fold_in(key, t), ladders)
        noise = jax.vmap(now.draw_scan)(keys)
        states, scan = jax.vmap(now.scan)(noise, states)
        moves, swaps = scan.local_rate.mean(0), scan.swap_rate.mean(0)
        change = jnp.where(jnp.isnan(rate), 0.0, (moves - rate) / jnp.sqrt(t + 1.0))
        steps = steps * jnp.exp(change.astype(dtype))
        new = (swaps, moves, *_moments(kernel, noise.hot, states, rate))
        half = count // 2
        share = jnp.where(t >= half, 1.0 / (count - half), 0.0).astype(dtype)
        sums = jax.tree.map(lambda total, part: total + share * part, sums, new)
        weights = jax.lax.dynamic_update_index_in_dim(weights, scan.log_weights, t, 0)
        cold = jax.lax.dynamic_update_index_in_dim(cold, states.position, t, 0)
        return states, steps, sums, weights, cold

    moved = kernel.num_replicas - 1
    rates, rows = jnp.zeros(moved, dtype), jnp.zeros((moved + 1, dim), dtype)
    sums = (rates, rates, rows, rows, rows[1:])
    weights = jnp.zeros((capacity, ladders, moved + 1), dtype)
    cold = jnp.zeros((capacity, ladders, dim), dtype)
    return jax.lax.fori_loop(0, count, body, (states, kernel.steps, sums, weights, cold))


def _moments(
    kernel: Tempered, hot: Array, states: State, rate: Array
) -> tuple[Array, Array, Array]:
    """Means and second moments of every replica over ladders, and mean squared gradients."""
    every = jnp.concatenate(
        [hot[:, None], states.carried.positions, states.position[:, None]], axis=1
    )
    none = jnp.zeros((kernel.num_replicas - 1, every.shape[-1]), states.position.dtype)
    slope = jax.lax.cond(
        jnp.isnan(rate), lambda s: none, lambda s: jax.vmap(partial(_slopes, kernel))(s).mean(0),
        states,
    )  # fmt: skip
    # bounded, as a replica that is still far away can have very large gradients
    return every.mean(0), (every**2).mean(0), jnp.minimum(slope, 1e20)


def _slopes(kernel: Tempered, state: State) -> Array:
    """Squared gradients of one ladder's replicas but the hot one; zero for a random walk."""

    def one(beta: Array, x: Array) -> Array:
        return jax.grad(Bridge(kernel.target.log_density, kernel.reference, beta))(x) ** 2

    if kernel.leaps is None:
        return jnp.zeros((kernel.num_replicas - 1, state.position.size), state.position.dtype)
    rungs = jnp.concatenate([state.carried.positions, state.position[None]])
    return jax.vmap(one)(kernel.betas[1:], rungs)


class RoundClock:
    """Tells whether the next round, of twice the scans, and the measurement fit in the time."""

    def __init__(self, seconds: Number | None):
        self._last = time.perf_counter()
        self._end = float("inf") if seconds is None else self._last + seconds

    def allows_another(self) -> bool:
        now = time.perf_counter()
        took, self._last = now - self._last, now
        return now + 4 * took < self._end

"""The parts of a ladder of replicas: what it carries, what is random in it, its densities."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Bool, Float, Int

Vector = Float[Array, " dim"]
Scalar = Float[Array, ""]


class Replicas(NamedTuple):
    """What a ladder carries beside the cold replica, which is the state's position.

    The hot replica is drawn anew in every scan, so that only those between the two have a position.
    A tag travels with its replica: 1 if it was last at the hot end, 2 if at the cold one since.
    """

    positions: Float[Array, "inner dim"]
    log_target: Float[Array, " inner"]
    log_reference: Float[Array, " inner"]
    tags: Int[Array, " replicas"]
    trips: Int[Array, ""]  # round trips hot → cold → hot of all replicas
    parity: Int[Array, ""]  # which pairs are exchanged next


class Rungs(NamedTuple):
    """All replicas from the hot to the cold one, with both log densities."""

    positions: Float[Array, "replicas dim"]
    log_target: Float[Array, " replicas"]
    log_reference: Float[Array, " replicas"]


class Noise(NamedTuple):
    """Everything random in one scan."""

    hot: Vector
    log_hot: Scalar
    momenta: Float[Array, "moved dim"]
    stretch: Float[Array, " moved"]
    levels: Float[Array, " moved"]
    swap_levels: Float[Array, " pairs"]


class Scan(NamedTuple):
    """What happened in one scan: of the local moves, of the exchanges, and the log weights p/q."""

    proposal: Vector
    log_ratio: Scalar
    local_rate: Float[Array, " moved"]
    swap_rate: Float[Array, " pairs"]
    log_weights: Float[Array, " replicas"]
    moved: Bool[Array, ""]
    nonfinite: Bool[Array, ""]
    stopped: Bool[Array, ""]


class Bridge(eqx.Module):
    """The log density of p_β ∝ q^{1-β} p^β at one position."""

    log_density: Any
    reference: AbstractDistribution
    beta: Scalar

    def __call__(self, x: Vector) -> Scalar:
        return bridge(self.beta, jnp.asarray(self.log_density(x), x.dtype), log_reference(self, x))


def bridge(beta: Array, log_target: Array, log_reference: Array) -> Array:
    """`(1-β) log q + β log p`; at an end the other density counts for nothing, even if 0."""
    between = (1 - beta) * log_reference + beta * log_target
    return jnp.where(beta == 0, log_reference, jnp.where(beta == 1, log_target, between))


def log_reference(holder: Any, x: Vector) -> Scalar:
    return jnp.asarray(holder.reference.log_prob(x), x.dtype)


def placed(swapped: Array, low: Array, high: Array, old: Array) -> Array:
    """What every replica holds once the swapped pairs hold `low` below and `high` above."""
    none = jnp.zeros(1, bool)
    shape = (-1, *[1] * (old.ndim - 1))
    as_low = jnp.concatenate([swapped, none]).reshape(shape)
    as_high = jnp.concatenate([none, swapped]).reshape(shape)
    from_low = jnp.concatenate([low, old[-1:]])
    from_high = jnp.concatenate([old[:1], high])
    return jnp.where(as_low, from_low, jnp.where(as_high, from_high, old))

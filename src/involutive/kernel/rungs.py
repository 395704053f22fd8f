"""The parts of a ladder of replicas: its carried state, its randomness and its densities."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import AbstractBijection
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Bool, Float, Int

from involutive.core.errors import check
from involutive.core.types import ArrayLike
from involutive.involutions.blocks import FunctionBlock
from involutive.kernel.kernel import evaluate
from involutive.targets.target import Target

Vector = Float[Array, " dim"]
Scalar = Float[Array, ""]


class Replicas(NamedTuple):
    """The carried state of a ladder; the cold replica is the state's position.

    The hot replica is drawn anew in every scan, so that only the replicas between the two are
    carried. A tag moves with its replica: 1 if it was last at the hot end, 2 if at the cold one
    since.
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
    """The record of one scan: rates of local moves and exchanges, and log weights p/q."""

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

    log_density: Callable[..., Array]
    reference: AbstractDistribution
    beta: Scalar

    def __call__(self, x: Vector) -> Scalar:
        return bridge(self.beta, jnp.asarray(self.log_density(x), x.dtype), log_reference(self, x))


def bridge(beta: Array, log_target: Array, log_reference: Array) -> Array:
    """`(1-β) log q + β log p`; at an end the other density has no effect, even if it is 0."""
    between = (1 - beta) * log_reference + beta * log_target
    return jnp.where(beta == 0, log_reference, jnp.where(beta == 1, log_target, between))


@runtime_checkable
class HasReference(Protocol):
    """A ladder, or a density between its ends."""

    @property
    def reference(self) -> AbstractDistribution: ...


@runtime_checkable
class LadderLike(HasReference, Protocol):
    """A ladder of replicas: its target and its reference."""

    @property
    def target(self) -> Target: ...


def log_reference(holder: HasReference, x: Vector) -> Scalar:
    """The log density of the reference at one position, in the position's precision."""
    return jnp.asarray(holder.reference.log_prob(x), x.dtype)


def rung_at(ladder: LadderLike, x: Vector) -> Rungs:
    """One position with both log densities."""
    return Rungs(x, evaluate(ladder.target, x), log_reference(ladder, x))


def placed(swapped: Array, low: Array, high: Array, old: Array) -> Array:
    """The values of all replicas after the swapped pairs take `low` below and `high` above."""
    none = jnp.zeros(1, bool)
    shape = (-1, *[1] * (old.ndim - 1))
    as_low = jnp.concatenate([swapped, none]).reshape(shape)
    as_high = jnp.concatenate([none, swapped]).reshape(shape)
    from_low = jnp.concatenate([low, old[-1:]])
    from_high = jnp.concatenate([old[:1], high])
    return jnp.where(as_low, from_low, jnp.where(as_high, from_high, old))


def check_schedule(target: Target, reference: object, betas: ArrayLike) -> np.ndarray:
    """The schedule as an array, for a reference that fits the target."""
    found = type(reference).__name__
    check(
        isinstance(reference, AbstractDistribution) and reference.shape == (target.dim,),
        f"reference must be a FlowJAX distribution of {target.dim} coordinates, got {found} of "
        f"shape {getattr(reference, 'shape', None)}",
    )
    schedule = np.asarray(betas, float)
    check(
        schedule.ndim == 1 and schedule.size >= 2 and (np.diff(schedule) > 0).all()
        and schedule[0] == 0 and schedule[-1] == 1,
        f"betas must increase from 0 to 1, got {schedule.tolist()[:12]}",
    )  # fmt: skip
    return schedule


def check_scales(scales: ArrayLike, moved: int, dim: int) -> np.ndarray:
    found = np.asarray(scales, float)
    found = np.broadcast_to(found, (moved, dim)).copy() if found.ndim == 0 else found
    check(
        found.shape in ((moved, dim), (moved, dim, dim)),
        f"scales must be a number or have shape {(moved, dim)} or {(moved, dim, dim)}, one row for "
        f"every replica but the hot one, got shape {found.shape}",
    )
    return found


def stacked(transports: Sequence[AbstractBijection], pairs: int) -> FunctionBlock:
    """One function block whose arrays have a row for every pair of neighbours."""
    blocks = [FunctionBlock(g) for g in transports]
    check(
        len(blocks) == pairs, f"transports must be {pairs}, one for every pair, got {len(blocks)}"
    )
    forms = {jax.tree.structure(eqx.filter(block, eqx.is_array)) for block in blocks}
    check(len(forms) == 1, f"transports must have one structure, got {len(forms)} different ones")
    arrays = [eqx.filter(block, eqx.is_array) for block in blocks]
    rows = jax.tree.map(lambda *leaves: jnp.stack(leaves), *arrays)
    return eqx.combine(rows, eqx.filter(blocks[0], eqx.is_array, inverse=True))

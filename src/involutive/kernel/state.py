"""The state of a chain, the record of a step, and the proposal in between."""

from collections.abc import Hashable
from typing import NamedTuple

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, Bool, Float, Key, PyTree

Vector = Float[Array, " dim"]
Auxiliary = Float[Array, " aux"]
Scalar = Float[Array, ""]
Flag = Bool[Array, ""]


class State(NamedTuple):
    """The state of a chain. A log density of +inf marks a chain that was stopped.

    `carried` is what a kernel needs besides the position (the other replicas of a ladder). Runs
    save it in their checkpoints; kernels that do not use it pass it on unchanged.

    Attributes:
        position: where the chain is, `(dim,)`.
        log_density: the target's log density there.
        carried: what a kernel needs besides the position.

    Example:
        >>> import involutive as inv, jax.numpy as jnp
        >>> state = inv.hmc(inv.targets.gaussian(2), 0.1, 3).init(jnp.zeros(2))
        >>> state.position.tolist()
        [0.0, 0.0]
    """

    position: Vector
    log_density: Scalar
    carried: PyTree = ()

    @property
    def logdensity(self) -> Float[Array, "..."]:
        """The log density under BlackJAX's name."""
        return self.log_density


class Info(NamedTuple):
    """What happened in a step; it is reported, and not part of the state.

    Attributes:
        proposal: the position proposed, also where it was rejected.
        log_ratio: the log of the acceptance ratio; -inf where the move was not allowed.
        accepted: whether the chain moved there.
        acceptance_rate: `min(1, exp(log_ratio))`.
        nonfinite: whether the proposal's density was NaN or +inf, or its position not finite.
        irreversible: whether f(f(z)) ≠ z: by the guard, or beyond the exact range of a lattice.

    Example:
        >>> import involutive as inv, jax.numpy as jnp, jax.random as jr
        >>> kernel = inv.random_walk(inv.targets.gaussian(2), 0.5)
        >>> state, info = kernel.step(jr.key(0), kernel.init(jnp.zeros(2)))
        >>> bool(info.accepted) == bool((state.position == info.proposal).all())
        True
    """

    proposal: Vector
    log_ratio: Scalar
    accepted: Flag
    acceptance_rate: Scalar
    nonfinite: Flag
    irreversible: Flag

    @property
    def is_accepted(self) -> Bool[Array, "..."]:
        """Whether the move was made, under BlackJAX's name."""
        return self.accepted


class Proposed(NamedTuple):
    """The point to which f maps (φ, π), and the log of the acceptance ratio."""

    state: State
    auxiliary: Vector
    log_ratio: Scalar
    reversible: Flag


class KeyBits(eqx.Module):
    """A key as raw bits, which compiled loops can index, unlike keys.

    `draw` returns it in a kernel whose randomness cannot be drawn before its move.
    """

    data: Array
    impl: Hashable = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""]):
        self.data, self.impl = jr.key_data(key), jr.key_impl(key)

    def key(self) -> Key[Array, ""]:
        """Return the key."""
        return jr.wrap_key_data(self.data, impl=self.impl)

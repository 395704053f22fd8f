"""A persistent auxiliary: π is refreshed in part, and kept between steps.

On p ⊗ N(0, I) one step is three moves that each leave it invariant:

    π ← α π + √(1 - α²) ξ,  ξ ~ N(0, I)       partial refreshment
    (φ, π) ← f(φ, π) with probability min(1, r)   the involution
    π ← -π                                     the flip

For HMC (Horowitz 1991) f ends with a flip of its own, so an accepted move goes on in its direction
and only a rejected one turns round. α = 0 is the kernel itself.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from flowjax.distributions import AbstractDistribution, StandardNormal
from jaxtyping import Array, Bool, Float, Key

from involutive.core.errors import check
from involutive.kernel.kernel import AbstractKernel, Info, Kernel, State, settle
from involutive.targets.target import Target

Vector = Float[Array, " dim"]
Auxiliary = Float[Array, " aux"]


class Momentum(NamedTuple):
    """π between two steps, and whether it was drawn already."""

    value: Auxiliary
    begun: Bool[Array, ""]


class Persistent(AbstractKernel):
    """A kernel that refreshes π only in part from step to step.

    Args:
        kernel: a `Kernel` whose auxiliary distribution is the standard normal.
        memory: α in [0, 1), the correlation of π with that of the step before.

    Raises:
        InputError: if the kernel has another auxiliary distribution or moves on a lattice, or if
            `memory` is outside [0, 1).

    Example:
        >>> import involutive as inv
        >>> kernel = inv.Persistent(inv.hmc(inv.targets.gaussian(2), 0.2, 1), memory=0.9)
        >>> draws = inv.sample(kernel, key=0, num_samples=10)
    """

    target: Target
    initial: AbstractDistribution | None
    kernel: Kernel
    memory: float = eqx.field(static=True)

    def __init__(self, kernel: Kernel, memory: float = 0.9):
        check(isinstance(kernel, Kernel), f"kernel must be a Kernel, got {type(kernel).__name__}")
        law = kernel.auxiliary
        check(
            isinstance(law, StandardNormal),
            "a persistent auxiliary must be standard normal, whose part refreshment is known, got "
            f"{type(law).__name__}; use inv.standard_normal",
        )
        check(kernel.grid is None, "a persistent auxiliary leaves the lattice; use no lattice")
        check(0 <= memory < 1, f"memory must be in [0, 1), got {memory}")
        self.target, self.initial = kernel.target, kernel.initial
        self.kernel, self.memory = kernel, float(memory)

    def carry(self, position: Vector, key: Key[Array, ""] | None = None) -> Momentum:
        """No π yet: the first step draws all of it."""
        del key
        nothing = jnp.zeros(self.kernel.auxiliary.shape, position.dtype)
        return Momentum(nothing, jnp.array(False))

    def draw(self, key: Key[Array, ""]) -> tuple[Auxiliary, Float[Array, ""]]:
        """Draw ξ, and -log u for a uniform u."""
        key_noise, key_accept = jr.split(key)
        noise = self.kernel.draw_auxiliary(key_noise)
        return noise, jr.exponential(key_accept, dtype=noise.dtype)

    def move(self, noise: tuple[Auxiliary, Float[Array, ""]], state: State) -> tuple[State, Info]:
        """Refresh π in part, move both or neither, flip π."""
        fresh, level = noise
        old: Momentum = state.carried
        share = jnp.where(old.begun, self.memory, 0.0).astype(fresh.dtype)
        auxiliary = share * old.value + jnp.sqrt(1 - share**2) * fresh
        proposal = self.kernel.propose(state, auxiliary)
        new, info = settle(level, state, proposal)
        kept = -jnp.where(info.accepted, proposal.auxiliary, auxiliary)
        return new._replace(carried=Momentum(kept, jnp.array(True))), info

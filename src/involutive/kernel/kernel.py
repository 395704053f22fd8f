"""Metropolis-Hastings with involutive proposals.

Draw π ~ Y and set (φ', π') = f(φ, π), where f(f(z)) = z. Accept φ' with probability

    min(1, p(φ') Y(π') |det Df(φ, π)| / (p(φ) Y(π))).

The target stays invariant for every involution f, whatever a network in it has learned. The
distribution of π may depend on the state, π ~ Y(·|φ); the ratio then has Y(π'|φ') above and Y(π|φ)
below: the reverse move draws its π at φ'. `Kernel.propose` is the one place where this ratio is
computed, for sampling and for training alike.
"""

import abc
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Float, Key, PyTree

from involutive.auxiliary import drawn, log_gain, noted_log_prob
from involutive.bijections.couplings import round_to
from involutive.core.errors import check
from involutive.core.views import view
from involutive.involutions.blocks import AbstractInvolution
from involutive.involutions.lattice import Lattice
from involutive.kernel.describe import described
from involutive.kernel.state import (
    Auxiliary,
    Flag,
    Info,
    KeyBits,
    Proposed,
    Scalar,
    State,
    Vector,
)
from involutive.targets.target import Target


class AbstractKernel(eqx.Module):
    """A Markov kernel that leaves `target` invariant, in BlackJAX's contract.

    A kernel defines `draw`, all that is random in a step, and `move`, which is deterministic. A
    step is `move(draw(key), state)` in every kernel.

    Example:
        >>> import involutive as inv, jax.numpy as jnp, jax.random as jr
        >>> kernel = inv.random_walk(inv.targets.gaussian(2), 0.5)
        >>> state = kernel.init(jnp.zeros(2))
        >>> state, info = kernel.step(jr.key(0), state)
        >>> isinstance(kernel, inv.AbstractKernel), info.proposal.shape
        (True, (2,))
    """

    target: eqx.AbstractVar[Target]
    initial: eqx.AbstractVar[AbstractDistribution | None]

    def __repr__(self) -> str:
        return described(self)

    def _repr_html_(self) -> str:
        return view("kernel_html")(self)

    @property
    def mover(self) -> "AbstractKernel":
        """The kernel that makes the moves: this one, or the one that it wraps with a record."""
        return self

    def init(self, position: PyTree, rng_key: Array | None = None) -> State:
        """Return the state at a position, on the lattice if the kernel moves on one.

        `rng_key` is the randomness of the carried state, for kernels that have one.
        """
        position, grid = self.target.flatten(position), self.grid
        position = position if grid is None else round_to(position, grid)
        carried = self.mover.carry(position, rng_key)
        return State(position, evaluate(self.target, position), carried)

    def carry(self, position: Vector, key: Key[Array, ""] | None = None) -> PyTree:
        """The carried state at the start of a chain; empty unless a kernel overrides it."""
        del position, key
        return ()

    @property
    def starts(self) -> Float[Array, "n dim"] | None:
        """Places away from `initial` from which some chains start, if a kernel has any."""
        return None

    @property
    def grid(self) -> float | None:
        """The spacing of the lattice that positions stay on, or None."""
        return None

    @final
    def step(self, key: Key[Array, ""], state: State) -> tuple[State, Info]:
        """Make one step: `move(draw(key), state)`."""
        return self.move(self.draw(key), state)

    @abc.abstractmethod
    def draw(self, key: Key[Array, ""]) -> PyTree:
        """Return the randomness of a step as arrays, which are cheaper to draw for many steps."""

    @abc.abstractmethod
    def move(self, noise: PyTree, state: State) -> tuple[State, Info]:
        """Make the step, which is deterministic given the randomness that `draw` returned."""


class Kernel(AbstractKernel):
    """Metropolis-Hastings with an involution and a distribution of its auxiliary vector.

    Args:
        target: the density to leave invariant.
        involution: f, on `target.dim + auxiliary.shape[0]` coordinates.
        auxiliary: the distribution Y of π: any FlowJAX distribution of one vector, or a
            conditional one Y(π|φ) whose condition is the state, `cond_shape == (target.dim,)`.
        initial: the distribution X that chains start from when no positions are given.
        guard: reject a move unless f(f(z)) = z within this relative tolerance. None trusts f; a
            lattice involution always rejects moves beyond its exact range.

    Raises:
        InputError: if the sizes of target, involution and auxiliary do not fit together.

    Example:
        >>> import involutive as inv
        >>> network = inv.paper_network(0, state_dim=2, aux_dim=4)
        >>> kernel = inv.Kernel(inv.targets.gaussian(2), network, inv.standard_normal(4))
        >>> inv.sample(kernel, key=0, num_chains=4, num_samples=10).positions.shape
        (4, 10, 2)
    """

    target: Target
    involution: AbstractInvolution
    auxiliary: AbstractDistribution
    initial: AbstractDistribution | None
    guard: float | None = eqx.field(static=True)

    def __init__(
        self,
        target: Target,
        involution: AbstractInvolution,
        auxiliary: AbstractDistribution,
        initial: AbstractDistribution | None = None,
        guard: float | None = None,
    ):
        for name, value, kind in (
            ("target", target, Target),
            ("involution", involution, AbstractInvolution),
            ("auxiliary", auxiliary, AbstractDistribution),
        ):
            found = type(value).__name__
            check(isinstance(value, kind), f"{name} must be a {kind.__name__}, got {found}")
        check(
            len(auxiliary.shape) == 1 and auxiliary.cond_shape in (None, (target.dim,)),
            "auxiliary must be a distribution of one vector, given nothing or the state of "
            f"{target.dim} coordinates, got shape {auxiliary.shape} and condition "
            f"{auxiliary.cond_shape}",
        )
        check(
            involution.size == target.dim + auxiliary.shape[0],
            f"involution must act on state and auxiliary together, {target.dim} + "
            f"{auxiliary.shape[0]} coordinates, got {involution.size}",
        )
        check(guard is None or guard > 0, f"guard must be a positive tolerance, got {guard}")
        self.target, self.involution, self.auxiliary = target, involution, auxiliary
        self.initial, self.guard = initial, guard

    @property
    def grid(self) -> float | None:
        return self.involution.grid if isinstance(self.involution, Lattice) else None

    def propose(
        self, state: State, auxiliary: Vector, log_auxiliary: Scalar | None = None
    ) -> Proposed:
        """Apply f to (φ, π) and return the new point with the log acceptance ratio.

        `log_auxiliary` is log Y(π), or log Y(π|φ), if it is known already.
        """
        dim = self.target.dim
        z = jnp.concatenate([state.position, auxiliary])
        moved, log_det = self.involution(z)
        position, returned = moved[:dim], moved[dim:]
        log_density = evaluate(self.target, position)
        gained = self._log_gain(state.position, auxiliary, position, returned, log_auxiliary)
        log_ratio = log_density - state.log_density + gained + log_det
        finite = jnp.all(jnp.isfinite(moved)) & ~jnp.isnan(log_ratio)
        reversible = self._returns(z, moved) & (log_det > -jnp.inf)
        log_ratio = jnp.where(finite & reversible, log_ratio, -jnp.inf)
        return Proposed(State(position, log_density), returned, log_ratio, reversible)

    @property
    def conditional(self) -> bool:
        """Whether the distribution of π depends on the state."""
        return self.auxiliary.cond_shape is not None

    def draw_auxiliary(self, key: Key[Array, ""], position: Vector | None = None) -> Auxiliary:
        """Draw π ~ Y, or π ~ Y(·|φ) at the position φ; on the lattice if f moves on one."""
        if self.conditional:
            auxiliary = self.auxiliary.sample(key, condition=position)
        else:
            auxiliary = drawn(self.auxiliary, key)
        return auxiliary if self.grid is None else round_to(auxiliary, self.grid)

    def draw(self, key: Key[Array, ""]) -> tuple[Auxiliary | KeyBits, Scalar | None, Scalar]:
        """Draw a fresh π, with its log density if `log_gain` needs it, and -log u, u uniform.

        If the distribution of π depends on the state, `move` draws π, and its key is returned.
        """
        key_auxiliary, key_accept = jr.split(key)
        if self.conditional:
            level = jr.exponential(key_accept, dtype=jnp.result_type(float))
            return KeyBits(key_auxiliary), None, level
        auxiliary = self.draw_auxiliary(key_auxiliary)
        level = jr.exponential(key_accept, dtype=auxiliary.dtype)
        return auxiliary, noted_log_prob(self.auxiliary, auxiliary), level

    def move(
        self, noise: tuple[Auxiliary | KeyBits, Scalar | None, Scalar], state: State
    ) -> tuple[State, Info]:
        """Propose, and accept with probability `min(1, ratio)`."""
        auxiliary, log_auxiliary, level = noise
        if isinstance(auxiliary, KeyBits):
            auxiliary = self.draw_auxiliary(auxiliary.key(), state.position)
        return settle(level, state, self.propose(state, auxiliary, log_auxiliary))

    def _log_gain(
        self, old: Vector, old_v: Auxiliary, new: Vector, new_v: Auxiliary, log_old: Scalar | None
    ) -> Scalar:
        """`log Y(π'|φ') - log Y(π|φ)`, each at its own state."""
        law = self.auxiliary
        if not self.conditional:
            return log_gain(law, new_v, old_v, log_old)
        below = law.log_prob(old_v, condition=old) if log_old is None else log_old
        return law.log_prob(new_v, condition=new) - below

    def _returns(self, z: Vector, moved: Vector) -> Flag:
        """Whether f(f(z)) = z within the guard's tolerance."""
        if self.guard is None:
            return jnp.array(True)
        back, _ = self.involution(moved)
        return jnp.all(jnp.abs(back - z) <= self.guard * (1 + jnp.abs(z)))


def evaluate(target: Target, position: Vector) -> Scalar:
    """The target's log density at one position, in the position's precision."""
    return jnp.asarray(target.log_density(position), position.dtype)


def settle(level: Scalar, state: State, proposal: Proposed) -> tuple[State, Info]:
    """Accept a proposal if its log ratio is above `-level`, an exponential variate.

    The level is -log u for u in (0, 1], so a ratio of zero is never accepted. A proposal of density
    +inf stops the chain, which keeps its position and is marked by `log_density=+inf`.
    """
    new, log_ratio = proposal.state, proposal.log_ratio
    inside = jnp.all(jnp.isfinite(new.position))
    explodes = (new.log_density == jnp.inf) & inside
    accepted = (-level < log_ratio) & ~explodes
    position = jnp.where(accepted, new.position, state.position)
    log_density = jnp.where(accepted, new.log_density, state.log_density)
    log_density = jnp.where(explodes, jnp.inf, log_density)
    nonfinite = jnp.isnan(new.log_density) | explodes | ~inside
    rate = jnp.where(explodes, 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
    info = Info(new.position, log_ratio, accepted, rate, nonfinite, ~proposal.reversible)
    return state._replace(position=position, log_density=log_density), info


def carries(kernel: AbstractKernel) -> bool:
    """Whether a kernel's state holds more than a position and its density."""
    position = jax.ShapeDtypeStruct((kernel.target.dim,), jnp.result_type(float))
    return len(jax.tree.leaves(jax.eval_shape(kernel.mover.carry, position))) > 0

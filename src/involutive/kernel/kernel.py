"""Metropolis-Hastings with involutive proposals.

Draw π ~ Y and set (φ', π') = f(φ, π), where f(f(z)) = z. Accept φ' with probability

    min(1, p(φ') Y(π') |det Df(φ, π)| / (p(φ) Y(π))).

The target stays invariant for every involution f, whatever a network in it has learned. The
distribution of π may depend on the state, π ~ Y(·|φ); the ratio then has Y(π'|φ') above and Y(π|φ)
below: the reverse move draws its π at φ'. `Kernel.propose` is the one place where this ratio is
computed, for sampling and for training alike.
"""

import abc
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Bool, Float, Key

from involutive.auxiliary import drawn, log_gain, noted_log_prob
from involutive.bijections.couplings import round_to
from involutive.core.errors import check
from involutive.core.views import view
from involutive.involutions.blocks import AbstractInvolution
from involutive.involutions.lattice import Lattice
from involutive.kernel.describe import described
from involutive.targets.target import Target

Vector = Float[Array, " dim"]
Auxiliary = Float[Array, " aux"]
Scalar = Float[Array, ""]
Flag = Bool[Array, ""]


class State(NamedTuple):
    """What the next step needs. A log density of +inf marks a chain that was stopped.

    `carried` is what a kernel needs beside the position (the other replicas of a ladder). Runs keep
    it in their checkpoints; kernels that have no use for it hand it on untouched.

    Attributes:
        position: where the chain is, `(dim,)`.
        log_density: the target's log density there.
        carried: what a kernel needs beside the position.

    Example:
        >>> import involutive as inv, jax.numpy as jnp
        >>> state = inv.hmc(inv.targets.gaussian(2), 0.1, 3).init(jnp.zeros(2))
        >>> state.position.tolist()
        [0.0, 0.0]
    """

    position: Vector
    log_density: Scalar
    carried: Any = ()

    @property
    def logdensity(self) -> Float[Array, "..."]:
        """The log density under BlackJAX's name."""
        return self.log_density


class Info(NamedTuple):
    """What happened in a step; reported, never carried.

    Attributes:
        proposal: the position proposed, also where it was rejected.
        log_ratio: the log of the acceptance ratio; -inf where the move was not allowed.
        accepted: whether the chain moved there.
        acceptance_rate: `min(1, exp(log_ratio))`.
        nonfinite: whether the proposal's density was NaN or +inf, or its position not finite.
        irreversible: whether f did not return: by the guard, or the exact range of a lattice.

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
    nonfinite: Flag  # the proposal's density was NaN or +inf, or its position not finite
    irreversible: Flag  # f did not return: the guard, or the exact range of a lattice

    @property
    def is_accepted(self) -> Bool[Array, "..."]:
        """Whether the move was made, under BlackJAX's name."""
        return self.accepted


class Proposal(NamedTuple):
    """The point f sends (φ, π) to, and the log of the acceptance ratio."""

    state: State
    auxiliary: Vector
    log_ratio: Scalar
    reversible: Flag


class KeyBits(eqx.Module):
    """A key as raw bits, which loops may index where they may not index keys.

    `draw` returns this in a kernel whose randomness cannot be drawn before its move.
    """

    data: Array
    impl: Any = eqx.field(static=True)

    def __init__(self, key: Key[Array, ""]):
        self.data, self.impl = jr.key_data(key), jr.key_impl(key)

    def key(self) -> Key[Array, ""]:
        """Return the key."""
        return jr.wrap_key_data(self.data, impl=self.impl)


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
        """What makes the moves: the kernel itself, or the one it wraps with a record."""
        return self

    def init(self, position: Any, rng_key: Any = None) -> State:
        """Return the state at a position, on the lattice if the kernel moves on one.

        `rng_key` starts what the kernel carries beside the position, if it carries anything.
        """
        position, grid = self.target.flatten(position), self.grid
        position = position if grid is None else round_to(position, grid)
        carried = self.mover.carry(position, rng_key)
        return State(position, evaluate(self.target, position), carried)

    def carry(self, position: Vector, key: Key[Array, ""] | None = None) -> Any:
        """What the kernel carries beside the position, at the start of a chain: nothing."""
        del position, key
        return ()

    @property
    def starts(self) -> Float[Array, "n dim"] | None:
        """Places apart from `initial` from which some chains start, where a kernel knows any."""
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
    def draw(self, key: Key[Array, ""]) -> Any:
        """Return everything random in a step: arrays, of which many are cheaper drawn at once."""

    @abc.abstractmethod
    def move(self, noise: Any, state: State) -> tuple[State, Info]:
        """Make the move whose randomness `draw` returned; nothing in it is random."""


class Kernel(AbstractKernel):
    """Metropolis-Hastings with an involution and a distribution of its auxiliary vector.

    Args:
        target: the density to leave invariant.
        involution: f, on `target.dim + auxiliary.shape[0]` coordinates.
        auxiliary: the distribution Y of π: any FlowJAX distribution of one vector, or a
            conditional one Y(π|φ) whose condition is the state, `cond_shape == (target.dim,)`.
        initial: the distribution X that chains start from when no positions are given.
        guard: reject a move unless f returns to where it came from within this relative
            tolerance. None trusts f; a lattice involution is always checked for equality of range.

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
    ) -> Proposal:
        """Apply f to (φ, π) and return where it leads with the log acceptance ratio.

        `log_auxiliary` is log Y(π), or log Y(π|φ), where it is known already.
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
        return Proposal(State(position, log_density), returned, log_ratio, reversible)

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
        return self.involution.snap(auxiliary) if self.grid is not None else auxiliary  # type: ignore[attr-defined]

    def draw(self, key: Key[Array, ""]) -> tuple[Auxiliary | KeyBits, Scalar | None, Scalar]:
        """Draw a fresh π, with its log density if `log_gain` needs it, and -log u, u uniform.

        A π whose distribution depends on the state is drawn by `move`: its key stands in its place.
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


def settle(level: Scalar, state: State, proposal: Proposal) -> tuple[State, Info]:
    """Accept a proposal if its log ratio is above `-level`, an exponential variate.

    That is -log u for u in (0, 1], so no ratio of zero is ever accepted. A proposal of density
    +inf stops the chain: it stays where it is, marked by `log_density=+inf`.
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

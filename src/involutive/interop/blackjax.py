"""BlackJAX: our kernels as one of its algorithms, and its algorithms as local moves of ours.

`algorithm` is a BlackJAX `GenerateSamplingAPI`, so `algorithm(logdensity_fn, kernel)` serves
`blackjax.util.run_inference_algorithm`, and `algorithm.build_kernel(kernel)` is the inner kernel
of its sequential Monte Carlo, where the density changes while the proposal stays.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key, PyTree

from involutive.core.errors import InputError, check
from involutive.core.text import first_line
from involutive.interop.extras import require
from involutive.kernel.kernel import AbstractKernel, Info, KeyBits, State, Vector
from involutive.storage.codec import register
from involutive.targets.target import Target

require("blackjax", "blackjax")

import blackjax  # noqa: E402

__all__ = ["algorithm", "as_kernel", "build_kernel", "retarget"]


def __dir__() -> list[str]:
    return list(__all__)


class BlackJAXState(NamedTuple):
    """A position, any pytree, and its log density."""

    position: PyTree
    logdensity: Array


class BlackJAXInfo(NamedTuple):
    """What happened in a step; `proposal` has the shape of a position."""

    acceptance_rate: Array
    is_accepted: Array
    proposal: PyTree
    log_ratio: Array
    is_divergent: Array


def retarget(kernel: AbstractKernel, target: Target) -> AbstractKernel:
    """Return the kernel with its proposal unchanged and another density to leave invariant."""
    found = type(kernel).__name__
    check(isinstance(kernel, AbstractKernel), f"kernel must be a kernel, got {found}")
    check(
        kernel.target.dim == target.dim,
        f"kernel must have the density's dimension, {target.dim}, got {kernel.target.dim}",
    )

    def is_target(node: object) -> bool:
        return isinstance(node, Target)

    swapped = [target if is_target(x) else x for x in jax.tree.leaves(kernel, is_leaf=is_target)]
    return jax.tree.unflatten(jax.tree.structure(kernel, is_leaf=is_target), swapped)


def init(position: PyTree, logdensity_fn: Callable[[Any], Any]) -> BlackJAXState:
    """Return the state at a position."""
    return BlackJAXState(position, logdensity_fn(position))


def build_kernel(kernel: AbstractKernel) -> Callable[..., tuple[BlackJAXState, BlackJAXInfo]]:
    """Return `step(rng_key, state, logdensity_fn)`: a step with `kernel`'s proposal."""

    def step(
        rng_key: Key[Array, ""], state: BlackJAXState, logdensity_fn: Callable[[Any], Any]
    ) -> tuple[BlackJAXState, BlackJAXInfo]:
        target = Target(logdensity_fn, like=_in_order(state.position, kernel.target))
        position, restore = target.flatten(state.position), target.restore
        now = State(position, jnp.asarray(state.logdensity, position.dtype))
        new, info = retarget(kernel, target).step(rng_key, now)
        moved = BlackJAXState(
            restore(new.position), new.log_density.astype(jnp.result_type(state.logdensity))
        )
        return moved, BlackJAXInfo(
            info.acceptance_rate,
            info.accepted,
            restore(info.proposal),
            info.log_ratio,
            info.nonfinite | info.irreversible,
        )

    return step


def _in_order(position: PyTree, learned_for: Target) -> PyTree:
    """The position with its keys in the order of the target that the kernel was made for.

    A program that JAX compiles receives every dict sorted.
    """
    known = learned_for.restore(jnp.zeros(learned_for.dim))
    alike = jax.tree.structure(known) == jax.tree.structure(position)
    return known if alike else position


def as_top_level_api(
    logdensity_fn: Callable[[Any], Any], kernel: AbstractKernel
) -> blackjax.SamplingAlgorithm:
    """Return BlackJAX's pair `(init, step)` for a density of any pytree and a kernel's proposal."""
    return blackjax.base.build_sampling_algorithm(build_kernel(kernel), init, logdensity_fn)


algorithm = blackjax.GenerateSamplingAPI(as_top_level_api, init, build_kernel)


@register
class LocalMove(AbstractKernel):
    """One step of a BlackJAX algorithm, as a kernel.

    The algorithm's state is made afresh from the position at every step, so that any kernel can
    move the chain in between; that takes one more evaluation per step. The kernel leaves the target
    invariant if the algorithm leaves its `logdensity_fn` invariant; `mclmc` (unadjusted) and
    `elliptical_slice` (which multiplies the density by a prior) do not.
    """

    target: Target
    initial: AbstractDistribution | None
    algorithm: Callable[..., blackjax.SamplingAlgorithm] = eqx.field(static=True)
    parameters: dict[str, Any]

    def draw(self, key: Key[Array, ""]) -> KeyBits:
        return KeyBits(key)  # the algorithm draws its own randomness while it moves

    def move(self, noise: KeyBits, state: State) -> tuple[State, Info]:
        key_init, key_step = jr.split(noise.key())
        moves = self.algorithm(self.target.log_density, **self.parameters)
        before = moves.init(state.position, key_init)
        after: Any
        after, info = moves.step(key_step, before)
        density = jnp.asarray(after.logdensity, state.log_density.dtype)
        # a chain stopped at a density of +inf stays stopped, as in every other kernel
        stopped = state.log_density == jnp.inf
        position = jnp.where(stopped, state.position, after.position)
        density = jnp.where(stopped, state.log_density, density)
        return State(position, density), _translate(info, state.position, position, density)


def as_kernel(
    target: Target,
    algorithm: Callable[..., Any],
    *,
    initial: AbstractDistribution | None = None,
    **parameters: Any,
) -> LocalMove:
    """Return a BlackJAX algorithm as a kernel, to sample with or to mix with a learned one.

    For example `as_kernel(target, blackjax.nuts, step_size=0.1, inverse_mass_matrix=scales)`.

    Args:
        target: the density.
        algorithm: BlackJAX's algorithm itself, or any function of `(logdensity_fn, **parameters)`
            that returns its pair `(init, step)`.
        initial: the distribution that chains start from when no positions are given.
        **parameters: of the algorithm.
    """
    check(isinstance(target, Target), f"target must be a Target, got {type(target).__name__}")
    check(
        callable(algorithm),
        f"algorithm must be a BlackJAX algorithm such as blackjax.nuts, got "
        f"{type(algorithm).__name__}; pass its parameters to as_kernel",
    )
    arrays = jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, parameters)
    build = getattr(algorithm, "differentiable", algorithm)  # the API object itself has no hash
    try:
        build(target.log_density, **arrays)
    except TypeError as error:
        raise InputError(
            f"algorithm must accept its parameters, but raised {first_line(error, named=True)}"
        ) from error
    return LocalMove(target, initial, build, arrays)


def _translate(info: object, before: Vector, after: Vector, density: Array) -> Info:
    """BlackJAX's account of a step in our words; what it does not report is read off the move."""
    moved = jnp.any(after != before)
    rate = getattr(info, "acceptance_rate", moved)
    rate = jnp.asarray(rate, after.dtype)
    return Info(
        proposal=after,
        log_ratio=jnp.log(rate),
        accepted=moved,
        acceptance_rate=rate,
        nonfinite=~jnp.isfinite(density),
        irreversible=jnp.array(False),
    )

"""The classical samplers as involutions in the same kernel.

random walk   (φ, π) ↦ (φ + s π, -π)
HMC           leapfrog for L steps, then flip the momentum
A-NICE-MC     a sign bit in π chooses f or its inverse, and is flipped
any proposal  π ~ q(·|φ) in the place of the new state, and (φ, π) ↦ (π, φ)
multiple-try  several tries and their references in π, and a permutation of all of them
"""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import AbstractBijection, Chain
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive.auxiliary import MultipleTry, standard_normal
from involutive.bijections.couplings import AdditiveCoupling, MakeNetwork, mlp
from involutive.core.errors import check, check_count
from involutive.core.types import ArrayLike
from involutive.involutions.blocks import PermutationBlock
from involutive.involutions.classical import Directed, Leapfrog, RandomWalk, check_scale
from involutive.kernel.kernel import Kernel
from involutive.targets.target import Target


def random_walk(
    target: Target, scale: ArrayLike, initial: AbstractDistribution | None = None
) -> Kernel:
    """Gaussian random walk Metropolis with the given scale (number, vector or matrix).

    Args:
        target: the density to leave invariant.
        scale: the scale of steps: a number, a vector of sds, or a matrix that multiplies N(0, I).
        initial: the distribution that chains start from when no positions are given.

    Returns:
        The kernel.

    Raises:
        InputError: if the scale does not fit the target's dimension.

    Example:
        >>> import involutive as inv
        >>> kernel = inv.random_walk(inv.targets.gaussian(2), 0.5)
        >>> inv.sample(kernel, key=0, num_chains=4, num_samples=10).positions.shape
        (4, 10, 2)
    """
    return Kernel(target, RandomWalk(scale, target.dim), standard_normal(target.dim), initial)


def hmc(
    target: Target,
    step_size: ArrayLike,
    num_steps: int,
    scale: ArrayLike | None = None,
    initial: AbstractDistribution | None = None,
) -> Kernel:
    """Hamiltonian Monte Carlo; `scale` preconditions (a vector of sds, or a Cholesky factor).

    Args:
        target: the density to leave invariant; it must be differentiable.
        step_size: the size of a leapfrog step.
        num_steps: leapfrog steps per move.
        scale: sds `(dim,)` or a Cholesky factor `(dim, dim)` of the positions; ones by default.
        initial: the distribution that chains start from when no positions are given.

    Returns:
        The kernel.

    Raises:
        InputError: if the number of steps is below 1 or the scale does not fit the dimension.

    Example:
        >>> import involutive as inv
        >>> kernel = inv.hmc(inv.targets.gaussian(2), step_size=0.2, num_steps=5)
        >>> inv.sample(kernel, key=0, num_chains=4, num_samples=10).positions.shape
        (4, 10, 2)
    """
    scale = jnp.ones(target.dim) if scale is None else jnp.asarray(scale, float)
    check_count("num_steps", num_steps)
    check_scale(scale, target.dim)
    flow = Leapfrog(target, jnp.asarray(step_size, float), scale, num_steps)
    return Kernel(target, flow, standard_normal(target.dim), initial)


def a_nice_network(
    key: Key[Array, ""], dim: int, aux_dim: int | None = None, make: MakeNetwork | None = None
) -> Chain:
    """A-NICE-MC's network: shift v by x, x by v, v by x (one hidden layer of 400 by default)."""
    aux_dim = dim if aux_dim is None else aux_dim
    make = mlp(400, last_scale=1.0) if make is None else make
    size, keys = dim + aux_dim, jr.split(key, 3)
    return Chain(
        [
            AdditiveCoupling(make(keys[0], dim, aux_dim), size, dim),
            AdditiveCoupling(make(keys[1], aux_dim, dim), size, dim, flip=True),
            AdditiveCoupling(make(keys[2], dim, aux_dim), size, dim),
        ]
    )


def a_nice_mc(
    target: Target, network: AbstractBijection, initial: AbstractDistribution | None = None
) -> Kernel:
    """A-NICE-MC: propose `f(φ, v)` or `f⁻¹(φ, v)`, each half the time, f an invertible network.

    Args:
        target: the density to leave invariant.
        network: f, a bijection of `target.dim + k` coordinates for some k of at least 1.
        initial: the distribution that chains start from when no positions are given.

    Returns:
        The kernel, with k + 1 auxiliary coordinates: v, and the sign that chooses f or its inverse.

    Raises:
        InputError: if the network acts on no more coordinates than the target has.

    Example:
        >>> import involutive as inv, jax.random as jr
        >>> network = inv.additive_cascade(jr.key(0), 4, blocks=1)
        >>> inv.a_nice_mc(inv.targets.gaussian(2), network).auxiliary.shape
        (3,)
    """
    aux_dim = network.shape[0] - target.dim
    check(
        aux_dim >= 1,
        f"network must act on more than the target's {target.dim} coordinates, got {network.shape}",
    )
    return Kernel(target, Directed(network), standard_normal(aux_dim + 1), initial)


def metropolis_hastings(
    target: Target, proposal: AbstractDistribution, initial: AbstractDistribution | None = None
) -> Kernel:
    """Metropolis-Hastings with any proposal `φ' ~ q(·|φ)`, as the involution `(φ, π) ↦ (π, φ)`.

    Args:
        target: the density to leave invariant.
        proposal: a FlowJAX distribution of the target's dimension; a conditional one is given the
            state, one without a condition proposes independently of it.
        initial: the distribution X that chains start from when no positions are given.

    Returns:
        A kernel whose ratio is `p(φ') q(φ|φ') / (p(φ) q(φ'|φ))`.

    Raises:
        InputError: if the proposal is not of the target's dimension.

    Example:
        >>> import jax.numpy as jnp, involutive as inv
        >>> target = inv.targets.gaussian(2)
        >>> q = inv.ConditionalNormal(lambda x: 0.5 * x, lambda x: jnp.zeros(2), 2)
        >>> draws = inv.sample(inv.metropolis_hastings(target, q), key=0, num_samples=10)
    """
    check(
        proposal.shape == (target.dim,),
        f"proposal must be a distribution of shape ({target.dim},), got {proposal.shape}",
    )
    return Kernel(target, PermutationBlock.swap(2 * target.dim), proposal, initial)


def multiple_try(
    target: Target,
    proposal: AbstractDistribution,
    tries: int,
    initial: AbstractDistribution | None = None,
) -> Kernel:
    """Multiple-try Metropolis: the best of several tries, as a permutation of tries and references.

    Args:
        target: the density to leave invariant.
        proposal: a FlowJAX distribution of the target's dimension; a conditional one is given the
            state, one without a condition proposes independently of it.
        tries: the number of tries per step, at least 2; a step evaluates the density at twice as
            many points.
        initial: the distribution X that chains start from when no positions are given.

    Returns:
        A kernel whose proposal is one of the tries, chosen with the weights `p(y) / q(y|φ)`.

    Raises:
        InputError: if the proposal is not of the target's dimension or there are too few tries.

    Example:
        >>> import involutive as inv
        >>> kernel = inv.multiple_try(inv.targets.gaussian(2), inv.standard_normal(2), tries=4)
        >>> inv.sample(kernel, key=0, num_chains=4, num_samples=10).positions.shape
        (4, 10, 2)
    """
    dim = target.dim
    check(
        proposal.shape == (dim,),
        f"proposal must be a distribution of shape ({dim},), got {proposal.shape}",
    )
    law = MultipleTry(target.log_density, proposal, tries)
    # blocks: the state, the chosen try, the other tries, the reference points
    blocks = np.array([1, 0, *range(tries + 1, 2 * tries), *range(2, tries + 1)])
    order = (blocks[:, None] * dim + np.arange(dim)[None, :]).reshape(-1)
    return Kernel(target, PermutationBlock(order), law, initial)

"""The classical samplers as involutions in the same kernel.

random walk   (φ, π) ↦ (φ + s π, -π)
HMC           leapfrog for L steps, then flip the momentum
A-NICE-MC     a sign bit in π chooses f or its inverse, and is flipped
"""

from typing import Any

import jax.numpy as jnp
import jax.random as jr
from flowjax.bijections import AbstractBijection, Chain
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive.auxiliary import standard_normal
from involutive.bijections.couplings import AdditiveCoupling, MakeNetwork, mlp
from involutive.core.errors import check, check_count
from involutive.involutions.classical import Directed, Leapfrog, RandomWalk, check_scale
from involutive.kernel.kernel import Kernel
from involutive.targets.target import Target


def random_walk(target: Target, scale: Any, initial: AbstractDistribution | None = None) -> Kernel:
    """Gaussian random walk Metropolis with the given scale (number, vector or matrix)."""
    return Kernel(target, RandomWalk(scale, target.dim), standard_normal(target.dim), initial)


def hmc(
    target: Target,
    step_size: Any,
    num_steps: int,
    scale: Any = None,
    initial: AbstractDistribution | None = None,
) -> Kernel:
    """Hamiltonian Monte Carlo; `scale` preconditions (a vector of sds, or a Cholesky factor)."""
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
    """A-NICE-MC: propose `f(φ, v)` or `f⁻¹(φ, v)` with even chances, f an invertible network."""
    aux_dim = network.shape[0] - target.dim
    check(
        aux_dim >= 1,
        f"network must act on more than the target's {target.dim} coordinates, got {network.shape}",
    )
    return Kernel(target, Directed(network), standard_normal(aux_dim + 1), initial)

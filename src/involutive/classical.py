"""The classical samplers as involutions in the same kernel.

random walk   (φ, π) ↦ (φ + s π, -π)
HMC           leapfrog for L steps, then flip the momentum
A-NICE-MC     a sign bit in π chooses f or its inverse, and is flipped
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from flowjax.bijections import AbstractBijection, Chain
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive.auxiliary import standard_normal
from involutive.bijections import AdditiveCoupling, MakeNetwork, mlp
from involutive.errors import check, check_count
from involutive.involutions import AbstractInvolution, Scalar, Vector
from involutive.kernel import Kernel
from involutive.targets import Target


class RandomWalk(AbstractInvolution):
    """`(φ, π) ↦ (φ + S π, -π)`, S a scale, a vector of scales, or a matrix."""

    scale: Array
    dim: int = eqx.field(static=True)

    def __init__(self, scale: Any, dim: int):
        self.scale, self.dim = jnp.asarray(scale, float), check_count("dim", dim)
        _check_scale(self.scale, dim)

    @property
    def size(self) -> int:
        return 2 * self.dim

    @property
    def volume_preserving(self) -> bool:
        return True

    def __call__(self, z: Vector) -> tuple[Vector, Scalar]:
        x, v = z[: self.dim], z[self.dim :]
        scale = jax.lax.stop_gradient(self.scale).astype(z.dtype)
        shift = scale @ v if scale.ndim == 2 else scale * v
        return jnp.concatenate([x + shift, -v]), jnp.zeros((), z.dtype)


class Leapfrog(AbstractInvolution):
    """`num_steps` leapfrog steps of Hamiltonian dynamics, then a flip of the momentum.

    In the coordinates y = S⁻¹ φ the mass is one: each step is a half kick `v += ε/2 Sᵀ∇log p`, a
    drift `φ += ε S v` and another half kick.
    """

    target: Target
    step_size: Array
    scale: Array
    num_steps: int | Array  # an array: other numbers compile nothing anew

    @property
    def size(self) -> int:
        return 2 * self.target.dim

    @property
    def volume_preserving(self) -> bool:
        return True

    def __call__(self, z: Vector) -> tuple[Vector, Scalar]:
        dim = self.target.dim
        step, scale = self.step_size.astype(z.dtype), self.scale.astype(z.dtype)
        slope = jax.grad(lambda x: jnp.asarray(self.target.log_density(x), z.dtype))

        def kick(x: Array) -> Array:
            return scale.T @ slope(x) if scale.ndim == 2 else scale * slope(x)

        def drift(v: Array) -> Array:
            return scale @ v if scale.ndim == 2 else scale * v

        def leap(_: Any, phase: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            x, v, force = phase
            v = v + 0.5 * step * force
            x = x + step * drift(v)
            force = kick(x)
            return x, v + 0.5 * step * force, force

        x, v = z[:dim], z[dim:]
        x, v, _ = jax.lax.fori_loop(0, self.num_steps, leap, (x, v, kick(x)))
        return jnp.concatenate([x, -v]), jnp.zeros((), z.dtype)


class Directed(AbstractInvolution):
    """`(y, s) ↦ (f(y), -s)` if s > 0, else `(f⁻¹(y), -s)`: A-NICE-MC's pair of moves."""

    f: AbstractBijection

    @property
    def size(self) -> int:
        return self.f.shape[0] + 1

    @property
    def volume_preserving(self) -> bool:
        return _preserves(self.f)

    def __call__(self, z: Vector) -> tuple[Vector, Scalar]:
        y, sign = z[:-1], z[-1:]
        forward = sign[0] > 0
        ahead, log_det_ahead = self.f.transform_and_log_det(y)
        behind, log_det_behind = self.f.inverse_and_log_det(y)
        moved = jnp.where(forward, ahead, behind)
        log_det = jnp.where(forward, log_det_ahead, log_det_behind)
        return jnp.concatenate([moved, -sign]), log_det


def _preserves(f: AbstractBijection) -> bool:
    """Whether f itself, not only its round trip, keeps volume."""
    parts = f.bijections if isinstance(f, Chain) else (f,)
    return all(isinstance(part, AdditiveCoupling) for part in parts)


def _check_scale(scale: Array, dim: int) -> None:
    check(
        scale.shape in ((), (dim,), (dim, dim)),
        f"scale must be a number, a vector of {dim} or a {dim} x {dim} matrix, "
        f"got shape {scale.shape}",
    )


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
    _check_scale(scale, target.dim)
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

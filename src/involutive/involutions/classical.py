"""The classical samplers as involutions in the same kernel.

random walk   (φ, π) ↦ (φ + s π, -π)
HMC           leapfrog for L steps, then flip the momentum
A-NICE-MC     a sign bit in π chooses f or its inverse, and is flipped
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.bijections import AbstractBijection, Chain
from jaxtyping import Array

from involutive.bijections.couplings import AdditiveCoupling
from involutive.core.errors import check, check_count
from involutive.core.types import ArrayLike
from involutive.involutions.blocks import AbstractInvolution, Scalar, Vector
from involutive.targets.target import Target


class RandomWalk(AbstractInvolution):
    """`(φ, π) ↦ (φ + S π, -π)`, S a scale, a vector of scales, or a matrix."""

    scale: Array
    dim: int = eqx.field(static=True)

    def __init__(self, scale: ArrayLike, dim: int):
        self.scale, self.dim = jnp.asarray(scale, float), check_count("dim", dim)
        check_scale(self.scale, dim)

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


def check_scale(scale: Array, dim: int) -> None:
    check(
        scale.shape in ((), (dim,), (dim, dim)),
        f"scale must be a number, a vector of {dim} or a {dim} x {dim} matrix, "
        f"got shape {scale.shape}",
    )

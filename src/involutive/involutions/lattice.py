"""Lattice mode: involutions that undo themselves bit for bit.

On the lattice of multiples of h = 2^-bits, every shift is rounded to the lattice, and sums of
lattice points are exact in floating point while they stay in range. Additive couplings,
permutations and, written as shears around one sign flip, matrix blocks are then exact bijections
of the lattice, and so is every network built from them. The lattice carries counting measure, so
detailed balance is exact too. What leaves the exact range has log-determinant -inf: rejected.

For the matrix block, with k the largest coordinate of v and u = v_rest/v_k,

    I_M = L⁻¹ ∘ (y_k ↦ -y_k - 2c·y_rest) ∘ L,   L: x_rest ↦ x_rest - u x_k,   c = v_k w_rest/(v·w).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax import bijections as fb
from flowjax.bijections import AbstractBijection
from jaxtyping import Array

from involutive.bijections.couplings import AdditiveCoupling, outside, round_to
from involutive.core.errors import InputError, check, check_count
from involutive.involutions.blocks import (
    AbstractInvolution,
    Conjugate,
    FunctionBlock,
    PermutationBlock,
    Sandwich,
    Scalar,
    SignFlipBlock,
    Vector,
)
from involutive.involutions.matrix import MatrixBlock


class Lattice(AbstractInvolution):
    """An involution of the lattice of spacing `grid`, exact in floating point.

    Made by `lattice`.

    Attributes:
        inner: the involution, every shift in it rounded to the lattice.
        grid: the spacing, a power of two.

    Example:
        >>> import involutive as inv, jax.numpy as jnp
        >>> f = inv.lattice(inv.paper_network(0, state_dim=2, aux_dim=2))
        >>> z = f.snap(jnp.array([0.1, 0.2, 0.3, 0.4]))
        >>> bool(jnp.all(f(f(z)[0])[0] == z))
        True
    """

    inner: AbstractInvolution
    grid: float = eqx.field(static=True)

    @property
    def size(self) -> int:
        return self.inner.size

    @property
    def volume_preserving(self) -> bool:
        """False: the log-determinant carries 0 inside the exact range and -inf outside it."""
        return False

    def snap(self, z: Array) -> Array:
        """Return the nearest lattice point."""
        return round_to(z, self.grid)

    def __call__(self, z: Vector) -> tuple[Vector, Scalar]:
        z = self.snap(z)
        moved, log_det = self.inner(z)
        return moved, log_det + outside(z, self.grid) + outside(moved, self.grid)


class LatticeMatrix(AbstractInvolution):
    """A matrix block as shears around one sign flip, each shift rounded to the lattice."""

    matrix: MatrixBlock
    grid: float = eqx.field(static=True)

    @property
    def size(self) -> int:
        return self.matrix.size

    @property
    def volume_preserving(self) -> bool:
        return False

    def __call__(self, z: Vector) -> tuple[Vector, Scalar]:
        v, w = self.matrix.directions()
        v, w = v.astype(z.dtype), w.astype(z.dtype)
        k = jax.lax.stop_gradient(jnp.argmax(jnp.abs(v)))
        axis = jnp.arange(self.size) == k
        u = jnp.where(axis, 0.0, v / v[k])
        c = jnp.where(axis, 0.0, v[k] * w / (v @ w))
        sheared = z - round_to(u * z[k], self.grid)
        flipped = -sheared[k] - round_to(2 * (c @ sheared), self.grid)
        turned = jnp.where(axis, flipped, sheared)
        moved = turned + round_to(u * flipped, self.grid)
        return moved, outside(sheared, self.grid) + outside(turned, self.grid)


def lattice(f: AbstractInvolution, bits: int = 12) -> Lattice:
    """Return `f` rounded to the lattice of spacing `2^-bits`, where f(f(z)) == z bit for bit.

    Values stay exact below `2^(10 - bits + 12)` in float32 (1024 for 12 bits) and far beyond in
    float64. Gradients flow through the rounding as through the identity.

    Args:
        f: a network of permutation blocks, matrix blocks and additive couplings.
        bits: the spacing of the lattice is `2^-bits`.

    Returns:
        The involution of the lattice.

    Raises:
        InputError: if f contains anything but permutation, sign-flip and matrix blocks, and
            function blocks or conjugations by additive couplings and permutations.

    Example:
        >>> import involutive as inv
        >>> inv.lattice(inv.MatrixBlock.random(0, 4), bits=10).grid
        0.0009765625
    """
    check(isinstance(f, AbstractInvolution), f"f must be an involution, got {type(f).__name__}")
    grid = 2.0 ** -check_count("bits", bits)
    return Lattice(_involution(f, grid), grid)


def _involution(f: AbstractInvolution, grid: float) -> AbstractInvolution:
    match f:
        case PermutationBlock() | SignFlipBlock():
            return f
        case MatrixBlock():
            return LatticeMatrix(f, grid)
        case FunctionBlock():
            return FunctionBlock(_bijection(f.g, grid))
        case Sandwich():
            return Sandwich(_involution(f.outer, grid), _involution(f.inner, grid))
        case Conjugate():
            return Conjugate(_bijection(f.g, grid), _involution(f.inner, grid))
    raise _refusal(f)


def _bijection(g: Any, grid: float) -> AbstractBijection:
    match g:
        case AdditiveCoupling():
            return AdditiveCoupling(g.net, g.shape[0], g.split, g.flip, grid)
        case fb.Permute() | fb.Flip() | fb.Identity():
            return g
        case fb.Chain():
            return fb.Chain([_bijection(part, grid) for part in g.bijections])
        case fb.Invert():
            return fb.Invert(_bijection(g.bijection, grid))
    raise _refusal(g)


def _refusal(part: object) -> InputError:
    return InputError(
        f"lattice mode needs additive couplings, permutations and matrix blocks throughout, got "
        f"{type(part).__name__}; build g with additive_cascade, or use Kernel(..., guard=1e-6)"
    )

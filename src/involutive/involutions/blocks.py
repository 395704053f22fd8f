"""Involutions: maps with f(f(z)) = z, by construction and for every parameter value.

    FunctionBlock     I_F(z) = g⁻¹(z₂) ⌢ g(z₁)        g any bijection of one half
    PermutationBlock  I_P(z) = σ z                     σ∘σ = id
    MatrixBlock       I_M = Id - 2 v⊗w / (v·w)         in matrix.py
    SignFlipBlock     I_S(z) = s ⊙ z                   s_i = ±1
    Sandwich          outer ∘ inner ∘ outer
    Conjugate         g⁻¹ ∘ inner ∘ g

These, nested at will, are the deep involutive networks of the paper, and sign flips beside them.
Each maps one flat vector z = φ ⌢ π and returns `f(z)` with `log|det Df(z)|`.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Bool, Float, Int

from involutive.bijections.cascades import constant_log_det
from involutive.core.errors import InputError, check, check_count
from involutive.core.keys import KeyLike, as_key, generator
from involutive.core.types import ArrayLike

Vector = Float[Array, " size"]
Scalar = Float[Array, ""]


class AbstractInvolution(eqx.Module):
    """A map from R^size to itself that is its own inverse.

    Subclasses define `size`, `volume_preserving` and the map itself, of one unbatched vector.

    Example:
        >>> import involutive as inv
        >>> f = inv.PermutationBlock.swap(4)
        >>> isinstance(f, inv.AbstractInvolution), f.size, f.volume_preserving
        (True, 4, True)
    """

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """The dimension of z."""

    @property
    @abc.abstractmethod
    def volume_preserving(self) -> bool:
        """Whether `log|det Df|` is known to be zero everywhere; it is not computed then."""

    @abc.abstractmethod
    def __call__(self, z: Vector) -> tuple[Vector, Scalar]:
        """Return `f(z)` and `log|det Df(z)|`."""


class FunctionBlock(AbstractInvolution):
    """`z₁ ⌢ z₂ ↦ g⁻¹(z₂) ⌢ g(z₁)` for a bijection g of one half.

    Volume preserving whenever det Dg is constant: the two halves cancel.

    Args:
        g: any FlowJAX bijection of one half.

    Raises:
        InputError: if g is not an unconditional bijection of one vector.

    Example:
        >>> import involutive as inv, jax.numpy as jnp
        >>> from flowjax.bijections import Affine
        >>> f = inv.FunctionBlock(Affine(jnp.ones(1), 2 * jnp.ones(1)))
        >>> f(jnp.array([1.0, 5.0]))[0].round(6).tolist()
        [2.0, 3.0]
    """

    g: AbstractBijection

    def __init__(self, g: AbstractBijection):
        _check_bijection(g)
        self.g = g

    @property
    def size(self) -> int:
        return 2 * self.g.shape[0]

    @property
    def volume_preserving(self) -> bool:
        return constant_log_det(self.g)

    def __call__(self, z: Vector) -> tuple[Vector, Scalar]:
        n = self.g.shape[0]
        if self.volume_preserving:
            first, second = self.g.inverse(z[n:]), self.g.transform(z[:n])
            return jnp.concatenate([first, second]), jnp.zeros((), z.dtype)
        first, log_det_first = self.g.inverse_and_log_det(z[n:])
        second, log_det_second = self.g.transform_and_log_det(z[:n])
        return jnp.concatenate([first, second]), log_det_first + log_det_second


class PermutationBlock(AbstractInvolution):
    """`z ↦ (z_σ(1), …, z_σ(n))` for an involution σ of the indices.

    Args:
        sigma: the indices σ(1), …, σ(n), from 0.

    Raises:
        InputError: if σ is not its own inverse.

    Example:
        >>> import involutive as inv, jax.numpy as jnp
        >>> f = inv.PermutationBlock([1, 0, 2])
        >>> f(jnp.array([5.0, 6.0, 7.0]))[0].tolist()
        [6.0, 5.0, 7.0]
    """

    sigma: Int[Array, " size"]

    def __init__(self, sigma: ArrayLike):
        order = np.asarray(sigma)
        check(
            order.ndim == 1 and order.size > 0 and np.issubdtype(order.dtype, np.integer),
            f"sigma must be a list of indices, got an array of shape {order.shape} and dtype "
            f"{order.dtype}",
        )
        n = order.size
        check(
            order.min() >= 0 and order.max() < n and (order[order % n] == np.arange(n)).all(),
            f"sigma must be its own inverse on 0..{n - 1}, got {order.tolist()[:12]}; "
            "PermutationBlock.random(key, n) draws one",
        )
        self.sigma = jnp.asarray(order)

    @staticmethod
    def random(key: KeyLike, n: int) -> "PermutationBlock":
        """Draw uniformly among all involutions of n points, fixed points allowed.

        With t(n) = t(n-1) + (n-1) t(n-2) the number of involutions, the last free point is fixed
        with probability t(n-1)/t(n), and else paired with a uniform other free point.

        Raises:
            InputError: if n is not a whole number of at least 1.
        """
        check_count("n", n)
        # the ratios t(k-1)/t(k), which unlike t itself do not overflow
        fixed = [1.0, 1.0]
        for k in range(2, n + 1):
            fixed.append(1.0 / (1.0 + (k - 1) * fixed[k - 1]))
        rng = generator(as_key(key))
        sigma, free = np.arange(n), list(range(n))
        while free:
            stays = rng.random() < fixed[len(free)]
            last = free.pop()
            if not stays:
                other = free.pop(rng.integers(len(free)))
                sigma[last], sigma[other] = other, last
        return PermutationBlock(sigma)

    @staticmethod
    def swap(n: int) -> "PermutationBlock":
        """Exchange the two halves of an even number n of coordinates.

        Raises:
            InputError: if n is not a positive even number.
        """
        check(check_count("n", n) % 2 == 0, f"a swap needs an even size, got {n}")
        return PermutationBlock(np.roll(np.arange(n), n // 2))

    @property
    def size(self) -> int:
        return self.sigma.shape[0]

    @property
    def volume_preserving(self) -> bool:
        return True

    def __call__(self, z: Vector) -> tuple[Vector, Scalar]:
        return z[self.sigma], jnp.zeros((), z.dtype)


class SignFlipBlock(AbstractInvolution):
    """`z ↦ s ⊙ z` with every `s_i` 1 or -1: flips the sign of some coordinates.

    HMC's flip of the momentum is one; conjugated by a bijection g (`Conjugate`) it is the
    involution of the Ai-sampler.

    Args:
        signs: 1 or -1 for every coordinate.

    Raises:
        InputError: if a sign is neither.

    Example:
        >>> import jax.numpy as jnp, involutive as inv
        >>> inv.SignFlipBlock([1, -1])(jnp.array([2.0, 3.0]))[0].tolist()
        [2.0, -3.0]
    """

    negative: Bool[Array, " size"]

    def __init__(self, signs: object):
        values = np.asarray(signs)
        check(
            values.ndim == 1 and values.size > 0 and bool((np.abs(values) == 1).all()),
            f"signs must be a list of 1 and -1, got {values.tolist()}",
        )
        self.negative = jnp.asarray(values < 0)

    @staticmethod
    def momentum(state_dim: int, aux_dim: int) -> "SignFlipBlock":
        """Flip the auxiliary coordinates and leave the state's.

        Raises:
            InputError: if a number of coordinates is not a whole number of at least 1.
        """
        first, second = check_count("state_dim", state_dim), check_count("aux_dim", aux_dim)
        return SignFlipBlock(np.concatenate([np.ones(first), -np.ones(second)]))

    @property
    def size(self) -> int:
        return self.negative.shape[0]

    @property
    def volume_preserving(self) -> bool:
        return True

    def __call__(self, z: Vector) -> tuple[Vector, Scalar]:
        return jnp.where(self.negative, -z, z), jnp.zeros((), z.dtype)


class Sandwich(AbstractInvolution):
    """`outer ∘ inner ∘ outer`.

    Args:
        outer: the involution applied first and last.
        inner: the involution between, of the same size.

    Raises:
        InputError: if one is not an involution, or their sizes differ.

    Example:
        >>> import involutive as inv, jax.numpy as jnp
        >>> f = inv.Sandwich(inv.PermutationBlock.random(0, 4), inv.MatrixBlock.random(1, 4))
        >>> z = jnp.arange(4.0)
        >>> bool(jnp.allclose(f(f(z)[0])[0], z, atol=1e-4))
        True
    """

    outer: AbstractInvolution
    inner: AbstractInvolution

    def __init__(self, outer: AbstractInvolution, inner: AbstractInvolution):
        _check_involution("outer", outer)
        _check_involution("inner", inner)
        _check_sizes("outer", outer.size, "inner", inner.size)
        self.outer, self.inner = outer, inner

    @property
    def size(self) -> int:
        return self.inner.size

    @property
    def volume_preserving(self) -> bool:
        return self.outer.volume_preserving and self.inner.volume_preserving

    def __call__(self, z: Vector) -> tuple[Vector, Scalar]:
        first, log_det_first = self.outer(z)
        second, log_det_second = self.inner(first)
        third, log_det_third = self.outer(second)
        return third, log_det_first + log_det_second + log_det_third


class Conjugate(AbstractInvolution):
    """`g⁻¹ ∘ inner ∘ g`, g any bijection. Volume preserving if inner is and det Dg is constant.

    Args:
        g: any FlowJAX bijection of all coordinates.
        inner: the involution between g and its inverse, of the same size.

    Raises:
        InputError: if g is not a bijection of one vector, inner not an involution, or sizes differ.

    Example:
        >>> import involutive as inv, jax.numpy as jnp
        >>> from flowjax.bijections import Affine
        >>> g = Affine(jnp.zeros(2), jnp.array([1.0, 2.0]))
        >>> f = inv.Conjugate(g, inv.PermutationBlock([1, 0]))
        >>> f(jnp.array([1.0, 2.0]))[0].round(6).tolist()
        [4.0, 0.5]
    """

    g: AbstractBijection
    inner: AbstractInvolution

    def __init__(self, g: AbstractBijection, inner: AbstractInvolution):
        _check_bijection(g)
        _check_involution("inner", inner)
        _check_sizes("g", g.shape[0], "inner", inner.size)
        self.g, self.inner = g, inner

    @property
    def size(self) -> int:
        return self.inner.size

    @property
    def volume_preserving(self) -> bool:
        return constant_log_det(self.g) and self.inner.volume_preserving

    def __call__(self, z: Vector) -> tuple[Vector, Scalar]:
        if constant_log_det(self.g):
            moved, log_det = self.inner(self.g.transform(z))
            return self.g.inverse(moved), log_det
        there, log_det_there = self.g.transform_and_log_det(z)
        moved, log_det_moved = self.inner(there)
        back, log_det_back = self.g.inverse_and_log_det(moved)
        return back, log_det_there + log_det_moved + log_det_back


def _check_bijection(g: object) -> None:
    if not isinstance(g, AbstractBijection):
        raise InputError(f"g must be a FlowJAX bijection, got {type(g).__name__}")
    check(
        len(g.shape) == 1 and g.cond_shape is None,
        f"g must be an unconditional bijection of one vector, got shape {g.shape} and "
        f"condition {g.cond_shape}",
    )


def _check_involution(name: str, f: object) -> None:
    if not isinstance(f, AbstractInvolution):
        raise InputError(f"{name} must be an involution, got {type(f).__name__}")


def _check_sizes(name: str, size: int, other: str, other_size: int) -> None:
    check(
        size == other_size,
        f"{name} and {other} must act on the same number of coordinates, got {size} and "
        f"{other_size}",
    )

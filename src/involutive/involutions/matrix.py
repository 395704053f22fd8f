"""The matrix block `I_M = Id - 2 v⊗w / (v·w)`, as given and in a form that is safe to train."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer

from involutive.core.errors import check, check_count
from involutive.core.keys import KeyLike, as_key
from involutive.core.types import ArrayLike
from involutive.involutions.blocks import AbstractInvolution, Scalar, Vector

LEAST_COSINE = 0.2  # float32 round trips stay below 1e-5 from here up
MOST_LOSS = 1e-3  # relative error of a round trip above which a pair (v, w) is refused: a guess


class MatrixBlock(AbstractInvolution):
    """`z ↦ z - 2 v (w·z)/(v·w)`, with determinant -1: the paper's definition for the pair given.

    The map stretches by up to `2/|cos(v, w)|`, so a round trip loses about `4 eps/cos²` of its
    digits; a pair whose loss is above 1e-3 is refused. Where v and w are trained, nothing keeps
    them apart from such pairs: `MatrixBlock.trainable` and `MatrixBlock.random` make blocks in
    which w is turned towards v wherever the cosine would fall below 0.2.

    Args:
        v: a vector that is not zero.
        w: a vector of the same size, not orthogonal to v.
        turns: whether w is turned towards v, as in `MatrixBlock.trainable`.

    Raises:
        InputError: if v or w is not a finite nonzero vector, or if they are nearly orthogonal.

    Example:
        >>> import involutive as inv, jax.numpy as jnp
        >>> f = inv.MatrixBlock([1.0, 1.0], [1.0, 0.0])
        >>> f(jnp.array([1.0, 0.0]))[0].round(6).tolist()
        [-1.0, -2.0]
    """

    v: Vector
    w: Vector
    # files written before this field existed hold blocks that turn
    turns: bool = eqx.field(static=True, default=True)

    def __init__(self, v: ArrayLike, w: ArrayLike, *, turns: bool = False):
        self.v, self.w = _pair(v, w)
        self.turns = turns
        if turns or isinstance(self.v, Tracer) or isinstance(self.w, Tracer):
            return
        cosine = float(_unit(self.v) @ _unit(self.w))
        loss = 4 * float(jnp.finfo(self.v.dtype).eps) / max(cosine**2, 1e-300)
        check(
            loss <= MOST_LOSS,
            f"v and w must not be near orthogonal, got a cosine of {cosine:.2g}: in "
            f"{self.v.dtype} a round trip would be wrong by about {loss:.1g} of z; use "
            "MatrixBlock.trainable(v, w), which turns w towards v",
        )

    @staticmethod
    def trainable(v: ArrayLike, w: ArrayLike) -> "MatrixBlock":
        """Return the block in which w is turned towards v until their cosine is at least 0.2.

        Every parameter value is safe, so an optimiser may move v and w freely. At a larger cosine,
        of either sign since -w gives the same map, it is the paper's block of (v, w).

        Args:
            v: a vector that is not zero.
            w: a vector of the same size that is not zero.
        """
        return MatrixBlock(v, w, turns=True)

    @staticmethod
    def random(key: KeyLike, n: int) -> "MatrixBlock":
        """Draw v uniformly on the sphere and w at a moderate angle to it; the block is trainable.

        Args:
            key: an int seed or a JAX key.
            n: the number of coordinates.

        Raises:
            InputError: if n is not a whole number of at least 1.
        """
        check_count("n", n)
        key_v, key_w = jr.split(as_key(key))
        v = jr.normal(key_v, (n,))
        return MatrixBlock.trainable(v, v + 0.5 * jr.normal(key_w, (n,)))

    @property
    def size(self) -> int:
        return self.v.shape[0]

    @property
    def volume_preserving(self) -> bool:
        return True

    def directions(self) -> tuple[Vector, Vector]:
        """Return unit v and w; of a trainable block with `cos(v, w) ≥ 0.2`."""
        v, w = _unit(self.v), _unit(self.w)
        if not self.turns:
            return v, w
        along = v @ w
        across = w - along * v
        steepest = LEAST_COSINE / np.sqrt(1 - LEAST_COSINE**2)
        # |along| mirrors an obtuse w, so that the turn is continuous and w = -v gives w = v
        along = jnp.maximum(jnp.abs(along), steepest * _norm(across))
        return v, _unit(across + along * v)

    def __call__(self, z: Vector) -> tuple[Vector, Scalar]:
        v, w = self.directions()
        v, w = v.astype(z.dtype), w.astype(z.dtype)
        return z - v * (2 * (w @ z) / (v @ w)), jnp.zeros((), z.dtype)


def _pair(v: ArrayLike, w: ArrayLike) -> tuple[Vector, Vector]:
    """v and w as checked vectors, w with the sign that gives an acute angle."""
    v, w = jnp.asarray(v, float), jnp.asarray(w, float)
    check(
        v.ndim == 1 and v.shape == w.shape and v.size > 0,
        f"v and w must be vectors of one size, got shapes {v.shape} and {w.shape}",
    )
    for name, vector in (("v", v), ("w", w)):
        if not isinstance(vector, Tracer):
            check(
                bool(jnp.all(jnp.isfinite(vector))) and bool(jnp.any(vector != 0)),
                f"{name} must be finite and not zero, got {np.asarray(vector).tolist()[:8]}",
            )
    return v, jnp.where(v @ w < 0, -w, w)


def _norm(x: Vector) -> Scalar:
    """`|x|`, with a gradient of zero at zero."""
    square = jnp.sum(x**2)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def _unit(x: Vector) -> Vector:
    """`x/|x|` without overflow; the first axis where x is zero."""
    largest = jnp.max(jnp.abs(x))
    scaled = x / jnp.where(largest > 0, largest, 1.0)
    fallback = jnp.zeros_like(x).at[0].set(1.0)
    scaled = jnp.where(largest > 0, scaled, fallback)
    return scaled / _norm(scaled)

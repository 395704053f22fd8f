"""Invertible networks: cascaded additive couplings (NICE), as FlowJAX bijections.

An additive coupling keeps one part of its input and shifts the other by any function of the kept
part, `(a, b) ↦ (a, b + m(a))`. Its inverse subtracts the same shift and its determinant is one.

On a lattice of spacing h = 2^-k the shift is rounded to a multiple of h. Sums of multiples of h
are exact in floating point while they stay below 2^mantissa·h, so a coupling then undoes itself
bit for bit. Values that leave that range are reported as a log-determinant of -inf, which makes a
Metropolis-Hastings step reject them; the reverse path meets the same values, so this is symmetric.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Float, Key

from involutive.core.errors import check

Network = Callable[[Array], Array]
MakeNetwork = Callable[[Key[Array, ""], int, int], Network]


@jax.custom_jvp
def round_to(x: Array, grid: float | Array) -> Array:
    """Round to the nearest multiple of `grid`; the derivative is that of the identity."""
    return jnp.round(x / grid) * grid


@round_to.defjvp
def _round_to_jvp(primals, tangents):
    return round_to(*primals), tangents[0]


def lattice_range(dtype: jnp.dtype, grid: float) -> float:
    """Magnitude below which sums of two multiples of `grid` are exact in `dtype`."""
    return grid * 2.0 ** (jnp.finfo(dtype).nmant - 1)


def outside(x: Array, grid: float) -> Float[Array, ""]:
    """`0` while every value is inside the exact range of the lattice, else `-inf`."""
    inside = jnp.all(jnp.abs(x) < lattice_range(x.dtype, grid))
    return jnp.where(inside, 0.0, -jnp.inf).astype(x.dtype)


class AdditiveCoupling(AbstractBijection):
    """`(a, b) ↦ (a, b + m(a))`, where a is the first `split` coordinates, or the rest if `flip`.

    Args:
        net: the shift m, any function of the kept part.
        dim: number of coordinates.
        split: where the two parts meet.
        flip: keep the second part and shift the first.
        grid: spacing of the lattice the shift is rounded to, or None.

    Raises:
        InputError: if one of the parts is empty.

    Example:
        >>> import involutive as inv, jax.numpy as jnp
        >>> g = inv.AdditiveCoupling(jnp.square, dim=2, split=1)
        >>> g.transform(jnp.array([3.0, 1.0])).tolist()
        [3.0, 10.0]
    """

    net: Network
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: None = eqx.field(static=True)
    split: int = eqx.field(static=True)
    flip: bool = eqx.field(static=True)
    grid: float | None = eqx.field(static=True)

    def __init__(
        self, net: Network, dim: int, split: int, flip: bool = False, grid: float | None = None
    ):
        check(
            0 < split < dim,
            f"an additive coupling needs both parts non-empty, got dim={dim} cut at {split}; "
            "use dim of at least 2",
        )
        self.net, self.split, self.flip, self.grid = net, split, flip, grid
        self.shape, self.cond_shape = (dim,), None

    def _shifted(self, x: Array, sign: float) -> tuple[Array, Array]:
        a, b = x[: self.split], x[self.split :]
        keep, move = (b, a) if self.flip else (a, b)
        if self.grid is None:
            move, log_det = move + sign * self.net(keep), jnp.zeros((), x.dtype)
        else:
            # the barriers keep the compiler from fusing the two directions differently
            shift = jax.lax.optimization_barrier(self.net(jax.lax.optimization_barrier(keep)))
            move = move + sign * round_to(shift, self.grid)
            log_det = outside(move, self.grid) + outside(x, self.grid)
        return jnp.concatenate([move, keep] if self.flip else [keep, move]), log_det

    def transform_and_log_det(
        self, x: Array, condition: Array | None = None
    ) -> tuple[Array, Array]:
        return self._shifted(x, 1.0)

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        return self._shifted(y, -1.0)


class AffineCoupling(AbstractBijection):
    """`(a, b) ↦ (a, b·exp(s(a)) + t(a))`, with `(s, t)` a linear map plus a network of a.

    The linear part lets a log-scale follow a coordinate without bound, as in a funnel; s is kept
    within ±`limit` by a tanh. Starts at the identity.
    """

    net: Network
    linear: Float[Array, "out keep"]
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: None = eqx.field(static=True)
    split: int = eqx.field(static=True)
    limit: float = eqx.field(static=True)

    def __init__(
        self, key: Key[Array, ""], dim: int, split: int, width: int = 32, limit: float = 8.0
    ):
        check(0 < split < dim, f"both parts must be non-empty, got dim={dim} cut at {split}")
        out = 2 * (dim - split)
        self.net = mlp(width, 2, last_scale=0.0, activation=jax.nn.tanh)(key, split, out)
        self.linear = jnp.zeros((out, split))
        self.shape, self.cond_shape, self.split, self.limit = (dim,), None, split, limit

    def _scale_and_shift(self, keep: Array) -> tuple[Array, Array]:
        raw, shift = jnp.split(self.net(keep) + self.linear @ keep, 2)
        return self.limit * jnp.tanh(raw / self.limit), shift

    def transform_and_log_det(
        self, x: Array, condition: Array | None = None
    ) -> tuple[Array, Array]:
        log_scale, shift = self._scale_and_shift(x[: self.split])
        moved = x[self.split :] * jnp.exp(log_scale) + shift
        return jnp.concatenate([x[: self.split], moved]), jnp.sum(log_scale)

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        log_scale, shift = self._scale_and_shift(y[: self.split])
        moved = (y[self.split :] - shift) * jnp.exp(-log_scale)
        return jnp.concatenate([y[: self.split], moved]), -jnp.sum(log_scale)


def mlp(width: int, depth: int = 1, last_scale: float = 0.5, activation=jax.nn.relu) -> MakeNetwork:
    """A maker of dense networks; the last layer starts at `last_scale` of its usual size."""

    def make(key: Key[Array, ""], in_size: int, out_size: int) -> Network:
        net = eqx.nn.MLP(in_size, out_size, width, depth, activation, key=key)
        last = jax.tree.map(
            lambda leaf: last_scale * leaf if eqx.is_inexact_array(leaf) else leaf, net.layers[-1]
        )
        return eqx.tree_at(lambda n: n.layers[-1], net, last)

    return make

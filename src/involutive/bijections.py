"""Invertible networks: cascaded additive couplings (NICE), as FlowJAX bijections.

An additive coupling keeps one part of its input and shifts the other by any function of the kept
part, `(a, b) ↦ (a, b + m(a))`. Its inverse subtracts the same shift and its determinant is one.

On a lattice of spacing h = 2^-k the shift is rounded to a multiple of h. Sums of multiples of h
are exact in floating point while they stay below 2^mantissa·h, so a coupling then undoes itself
bit for bit. Values that leave that range are reported as a log-determinant of -inf, which makes a
Metropolis-Hastings step reject them; the reverse path meets the same values, so this is symmetric.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax import bijections as fb
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Float, Key
from paramax import NonTrainable

from involutive.compiled import on_device
from involutive.errors import check, check_count

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

    def transform_and_log_det(self, x: Any, condition: Any = None) -> tuple[Array, Array]:
        return self._shifted(x, 1.0)

    def inverse_and_log_det(self, y: Any, condition: Any = None) -> tuple[Array, Array]:
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

    def transform_and_log_det(self, x: Any, condition: Any = None) -> tuple[Array, Array]:
        log_scale, shift = self._scale_and_shift(x[: self.split])
        moved = x[self.split :] * jnp.exp(log_scale) + shift
        return jnp.concatenate([x[: self.split], moved]), jnp.sum(log_scale)

    def inverse_and_log_det(self, y: Any, condition: Any = None) -> tuple[Array, Array]:
        log_scale, shift = self._scale_and_shift(y[: self.split])
        moved = (y[self.split :] - shift) * jnp.exp(-log_scale)
        return jnp.concatenate([y[: self.split], moved]), -jnp.sum(log_scale)


class Whitening(AbstractBijection):
    """`x ↦ L⁻¹(x - m)`, fixed, for draws with mean m and covariance L Lᵀ."""

    mean: Any
    factor: Any
    inverse_factor: Any
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: None = eqx.field(static=True)

    def __init__(self, mean: Any, factor: Any):
        # on the host: nothing is compiled
        dtype = jnp.result_type(mean)
        factor = np.asarray(factor, np.float64)
        parts = (np.asarray(mean), factor, np.linalg.inv(factor))
        self.mean, self.factor, self.inverse_factor = (
            NonTrainable(on_device(part.astype(dtype))) for part in parts
        )
        self.shape, self.cond_shape = (len(mean),), None

    def transform_and_log_det(self, x: Any, condition: Any = None) -> tuple[Array, Array]:
        log_det = -jnp.sum(jnp.log(jnp.diagonal(self.factor)))
        return self.inverse_factor @ (x - self.mean), log_det

    def inverse_and_log_det(self, y: Any, condition: Any = None) -> tuple[Array, Array]:
        return self.factor @ y + self.mean, jnp.sum(jnp.log(jnp.diagonal(self.factor)))


def affine_cascade(key: Key[Array, ""], dim: int, layers: int = 8, width: int = 32) -> fb.Scan:
    """`layers` affine couplings, each followed by a random permutation.

    They start at the identity up to the permutations. All have one shape and are scanned over, so
    that many layers take no longer to compile than one.
    """

    def layer(key: Key[Array, ""]) -> fb.Chain:
        key_net, key_order = jr.split(key)
        coupling = AffineCoupling(key_net, dim, dim // 2, width)
        order = jr.permutation(key_order, dim) if dim > 2 else jnp.arange(dim)[::-1]
        return fb.Chain([coupling, fb.Permute(order)])

    return fb.Scan(eqx.filter_vmap(layer)(jr.split(key, check_count("layers", layers))))


def mlp(width: int, depth: int = 1, last_scale: float = 0.5, activation=jax.nn.relu) -> MakeNetwork:
    """A maker of dense networks; the last layer starts at `last_scale` of its usual size."""

    def make(key: Key[Array, ""], in_size: int, out_size: int) -> Network:
        net = eqx.nn.MLP(in_size, out_size, width, depth, activation, key=key)
        last = jax.tree.map(
            lambda leaf: last_scale * leaf if eqx.is_inexact_array(leaf) else leaf, net.layers[-1]
        )
        return eqx.tree_at(lambda n: n.layers[-1], net, last)

    return make


def invertible_block(key: Key[Array, ""], dim: int, make: MakeNetwork) -> fb.Chain:
    """Two complementary additive couplings, so that every coordinate is shifted once."""
    key_first, key_second = jr.split(key)
    split = dim // 2
    first = AdditiveCoupling(make(key_first, split, dim - split), dim, split)
    second = AdditiveCoupling(make(key_second, dim - split, split), dim, split, flip=True)
    return fb.Chain([first, second])


def additive_cascade(
    key: Key[Array, ""], dim: int, blocks: int = 3, make: MakeNetwork | None = None
) -> fb.Chain:
    """`blocks` invertible blocks of additive couplings with a random permutation between each."""
    check_count("blocks", blocks)
    make = mlp(8 * max(dim // 2, 1)) if make is None else make
    parts: list[AbstractBijection] = []
    for i, key_block in enumerate(jr.split(key, blocks)):
        key_net, key_order = jr.split(key_block)
        if i > 0:
            parts.append(fb.Permute(jr.permutation(key_order, dim)))
        parts.append(invertible_block(key_net, dim, make))
    return fb.Chain(parts).merge_chains()


def constant_log_det(g: Any) -> bool:
    """Whether `log|det Dg|` is known to be the same everywhere, so that g⁻¹ and g cancel it."""
    if isinstance(g, AdditiveCoupling):
        return g.grid is None
    if isinstance(g, fb.Chain):
        return all(map(constant_log_det, g.bijections))
    if isinstance(g, fb.Concatenate | fb.Stack):
        return all(map(constant_log_det, g.bijections))
    if isinstance(g, fb.Invert | fb.Vmap | fb.Scan | fb.Indexed | fb.Reshape):
        return constant_log_det(g.bijection)
    constant = (
        fb.Affine, fb.Loc, fb.Scale, fb.TriangularAffine, fb.Permute, fb.Flip, fb.Identity,
        fb.Householder, fb.DiscreteCosine, Whitening,
    )  # fmt: skip
    return isinstance(g, constant)

"""Cascades: couplings one after the other, with permutations between them."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from flowjax import bijections as fb
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Key

from involutive.bijections.couplings import AdditiveCoupling, AffineCoupling, MakeNetwork, mlp
from involutive.bijections.whitening import Whitening
from involutive.core.errors import check_count


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
    """`blocks` invertible blocks of additive couplings, with random permutations between them.

    Args:
        key: a JAX key.
        dim: the number of coordinates.
        blocks: the number of invertible blocks, at least 1.
        make: makes the networks of the couplings, `(key, in_size, out_size) -> network`; by default
            one hidden layer of four times the dimension.

    Returns:
        The bijection, with a determinant of one.

    Raises:
        InputError: if `blocks` is below 1 or `dim` below 2.

    Example:
        >>> import involutive as inv, jax.random as jr
        >>> g = inv.additive_cascade(jr.key(0), dim=4, blocks=2)
        >>> inv.Conjugate(g, inv.PermutationBlock.swap(4)).size
        4
    """
    check_count("blocks", blocks)
    make = mlp(8 * max(dim // 2, 1)) if make is None else make
    parts: list[AbstractBijection] = []
    for i, key_block in enumerate(jr.split(key, blocks)):
        key_net, key_order = jr.split(key_block)
        if i > 0:
            parts.append(fb.Permute(jr.permutation(key_order, dim)))
        parts.append(invertible_block(key_net, dim, make))
    return fb.Chain(parts).merge_chains()


def constant_log_det(g: object) -> bool:
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

"""How blocks are usually put together: the paper's network, swap networks, whitened blocks."""

import jax.numpy as jnp
import jax.random as jr
from flowjax import bijections as fb
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Key
from paramax import non_trainable

from involutive.bijections.cascades import additive_cascade, invertible_block
from involutive.bijections.couplings import MakeNetwork, mlp
from involutive.core.errors import check, check_count
from involutive.core.keys import KeyLike, as_key
from involutive.involutions.blocks import (
    AbstractInvolution,
    Conjugate,
    FunctionBlock,
    PermutationBlock,
    Sandwich,
)


def paper_network(
    key: KeyLike,
    state_dim: int = 2,
    aux_dim: int = 30,
    width: int = 8,
    last_scale: float = 0.5,
    scale: float = 1.0,
) -> AbstractInvolution:
    """The paper's generator `I_F^g ∘ I_P^σ ∘ I_F^h ∘ I_P^σ ∘ I_F^g`.

    σ is one uniform random involution of all coordinates; g and h are each an invertible block, a
    random permutation and another invertible block, whose shifts are networks with one hidden
    ReLU layer of `width` times their input dimension.

    Args:
        key: an int seed or a JAX key.
        state_dim: dimension of φ.
        aux_dim: dimension of π; state and auxiliary together must be even and at least 4.
        width: hidden width in multiples of a network's input.
        last_scale: size of the last layers at the start; smaller is closer to the identity.
        scale: states are divided by this before the network and multiplied after it.

    Returns:
        The involution, of `state_dim + aux_dim` coordinates.

    Raises:
        InputError: if the sizes are not positive, or their sum is odd or below 4.

    Example:
        >>> import involutive as inv
        >>> network = inv.paper_network(0, state_dim=2, aux_dim=30)
        >>> network.size, network.volume_preserving
        (32, True)
    """
    size = check_count("state_dim", state_dim) + check_count("aux_dim", aux_dim)
    check_count("width", width)
    check(
        size % 2 == 0,
        f"state_dim + aux_dim must be even, so that a function block can halve it, got "
        f"{state_dim} + {aux_dim} = {size}; use aux_dim={aux_dim + 1}",
    )
    check(size >= 4, f"state_dim + aux_dim must be at least 4, got {size}; use a larger aux_dim")
    key_g, key_h, key_sigma = jr.split(as_key(key), 3)
    half, make = size // 2, _wide(width, last_scale)
    sigma = PermutationBlock.random(key_sigma, size)
    outer = FunctionBlock(_three_part(key_g, half, make))
    inner = FunctionBlock(_three_part(key_h, half, make))
    network = Sandwich(outer, Sandwich(sigma, inner))
    if scale == 1.0:
        return network
    return Conjugate(state_scaling(scale, state_dim, aux_dim), network)


def swap_network(
    key: KeyLike,
    state_dim: int,
    aux_dim: int,
    blocks: int = 4,
    make: MakeNetwork | None = None,
) -> Conjugate:
    """`g⁻¹ ∘ Swap ∘ g` with g a cascade of additive couplings on all coordinates.

    Args:
        key: an int seed or a JAX key.
        state_dim: dimension of φ.
        aux_dim: dimension of π; state and auxiliary together must be even.
        blocks: how many invertible blocks g has.
        make: makes the networks of the couplings, `(key, in_size, out_size) -> network`.

    Returns:
        The involution, of `state_dim + aux_dim` coordinates.

    Raises:
        InputError: if the sizes are not positive or their sum is odd.

    Example:
        >>> import involutive as inv
        >>> inv.swap_network(0, state_dim=2, aux_dim=2).size
        4
    """
    size = check_count("state_dim", state_dim) + check_count("aux_dim", aux_dim)
    check(
        size % 2 == 0,
        f"state_dim + aux_dim must be even, so that halves can be swapped, got {size}; "
        f"use aux_dim={aux_dim + 1}",
    )
    g = additive_cascade(as_key(key), size, blocks, make)
    return Conjugate(g, PermutationBlock.swap(size))


def state_scaling(scale: float, state_dim: int, aux_dim: int) -> AbstractBijection:
    """Divide the state's coordinates by `scale` and leave the auxiliary ones."""
    check(scale > 0, f"scale must be positive, got {scale}")
    factors = jnp.concatenate([jnp.full(state_dim, 1.0 / scale), jnp.ones(aux_dim)])
    return non_trainable(fb.Scale(factors))


def _wide(width: int, last_scale: float) -> MakeNetwork:
    return lambda key, n_in, n_out: mlp(width * n_in, last_scale=last_scale)(key, n_in, n_out)


def _three_part(key: Key[Array, ""], dim: int, make: MakeNetwork) -> fb.Chain:
    key_first, key_order, key_third = jr.split(key, 3)
    order = fb.Permute(jr.permutation(key_order, dim))
    first, third = invertible_block(key_first, dim, make), invertible_block(key_third, dim, make)
    return fb.Chain([first, order, third]).merge_chains()

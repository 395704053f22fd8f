"""JAX's own random bits, compiled for throughput.

On a CPU JAX compiles the hash Threefry-2x32 as a loop over its rounds, which writes every
intermediate array to memory. Written out, its twenty rounds and what is made of the bits become one
pass. The bits are those of `jax.random` (with its default, partitionable counters), and so are the
normal variates.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.extend.random import define_prng_impl
from jaxtyping import Array, Float, Key

from involutive.many import many_at_once

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)


def _hash(key: Array, high: Array, low: Array) -> tuple[Array, Array]:
    """Threefry-2x32 of the counters `(high, low)`, twenty rounds."""
    first, second = (jnp.broadcast_to(word, low.shape) for word in (key[0], key[1]))
    return _rounds(first, second, high, low)


@jax.jit
def _rounds(first: Array, second: Array, high: Array, low: Array) -> tuple[Array, Array]:
    """The hash by words of one shape, in JAX's plainest operations: they are traced often."""
    add, xor, bits = jax.lax.add, jax.lax.bitwise_xor, lambda n: np.full(low.shape, n, np.uint32)
    words = (first, second, xor(xor(first, second), bits(PARITY)))
    a, b = add(high, words[0]), add(low, words[1])
    for i in range(5):
        for turn in ROTATIONS[i % 2]:
            a = add(a, b)
            left = jax.lax.shift_left(b, bits(turn))
            right = jax.lax.shift_right_logical(b, bits(32 - turn))
            b = xor(a, jax.lax.bitwise_or(left, right))
        a = add(a, words[(i + 1) % 3])
        b = add(add(b, words[(i + 2) % 3]), bits(i + 1))
    return a, b


def _count(shape: tuple[int, ...]) -> tuple[Array, Array]:
    low = jax.lax.iota(np.uint32, math.prod(shape)).reshape(shape)
    return jnp.zeros_like(low), low


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return jnp.stack(_hash(key, *_count(shape)), axis=-1)


def _fold_in(key: Array, data: Any) -> Array:
    low = jnp.asarray(data, np.uint32)
    return jnp.stack(_hash(key, jnp.zeros_like(low), low))


def _random_bits(key: Array, width: int, shape: tuple[int, ...]) -> Array:
    return _joined(*_hash(key, *_count(shape)), width)


def _joined(a: Array, b: Array, width: int) -> Array:
    """The bits of one hash as an integer of `width` bits."""
    if width == 64:
        return (a.astype(np.uint64) << np.uint64(32)) | b.astype(np.uint64)
    return (a ^ b).astype(f"uint{width}")


def _seed(seed: Array) -> Array:
    return jr.key_data(jr.key(seed, impl="threefry2x32"))


UNROLLED = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="threefry2x32_unrolled",
    tag="fru",
)


def unrolled(keys: Key[Array, "..."]) -> Key[Array, "..."]:
    """The same keys, whose bits come by the written-out hash; other kinds of keys as they are."""
    kind = jr.key_impl(keys)
    if kind != "threefry2x32" or not getattr(jax.config, "jax_threefry_partitionable", True):
        return keys
    return jr.wrap_key_data(jr.key_data(keys), impl=UNROLLED)


def normal(key: Key[Array, ""], dim: int) -> Float[Array, " dim"]:
    """`jax.random.normal(key, (dim,))`; where it is mapped over keys, many at once."""
    if jr.key_impl(key) != UNROLLED:
        return jr.normal(key, (dim,))
    return _normals(jnp.arange(dim, dtype=np.uint32), jr.key_data(key))


@many_at_once
def _normals(counters: Array, keys: Array) -> Float[Array, "dim n"]:
    """Normal variates of keys `(2, n)`, one row a counter.

    The loop keeps each row a pass over all keys; without it XLA makes passes over the few counters.
    """
    dtype = jnp.result_type(float)
    lowest = np.nextafter(dtype.type(-1), dtype.type(0))
    mantissa, width = jnp.finfo(dtype).nmant, jnp.finfo(dtype).bits

    def row(counter: Array) -> Array:
        low = jnp.broadcast_to(counter, keys.shape[1:])
        a, b = _hash(keys, jnp.zeros_like(low), low)
        word = _joined(a, b, width) >> (width - mantissa)
        one = np.asarray(1, dtype).view(word.dtype)
        unit = jax.lax.bitcast_convert_type(word | one, dtype) - 1
        uniform = jnp.maximum(lowest, unit * (1 - lowest) + lowest)
        return np.sqrt(2).astype(dtype) * jax.lax.erf_inv(uniform)

    return jax.lax.map(row, counters)

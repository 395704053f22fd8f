"""JAX's own random bits, compiled for throughput.

On a CPU JAX compiles the hash Threefry-2x32 as a loop over its rounds, which writes every
intermediate array to memory. Written out, its twenty rounds and what is made of the bits become one
pass. Its keys and bits are those of `jax.random` (with its default, partitionable counters);
`normal` makes twice as many variates of them.
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
    """Standard normal variates; where it is mapped over keys, many at once.

    A hash gives two words of 32 bits. Like `jax.random.normal`, double precision makes one variate
    of both; here single precision makes one of each.
    """
    if jr.key_impl(key) != UNROLLED:
        return jr.normal(key, (dim,))
    if jnp.result_type(float) != np.float32:
        return _doubles(jnp.arange(dim, dtype=np.uint32), jr.key_data(key))
    counters = jnp.arange(-(-dim // 2), dtype=np.uint32)
    return _singles(counters, jr.key_data(key))[:dim]


@many_at_once
def _doubles(counters: Array, keys: Array) -> Float[Array, "counters n"]:
    """Normal variates of keys `(2, n)`, one row a counter.

    The loop keeps each row a pass over all keys; without it XLA makes passes over the few counters.
    """

    def row(counter: Array) -> Array:
        bits = (_joined(*_words(keys, counter), 64) >> 12) | np.uint64(0x3FF << 52)
        u = _uniform(jax.lax.bitcast_convert_type(bits, np.float64))
        return np.sqrt(2) * jax.lax.erf_inv(u)

    return jax.lax.map(row, counters)


@many_at_once
def _singles(counters: Array, keys: Array) -> Float[Array, "variates n"]:
    """Two rows a counter.

    XLA would hash once for each word. A pass has one result, so that the words of a pair leave it
    as the halves of a complex number.
    """

    def row(counter: Array) -> Array:
        words = _words(keys, counter)
        return jax.lax.complex(*(jax.lax.bitcast_convert_type(w, np.float32) for w in words))

    pairs = jax.lax.map(row, counters)
    words = jnp.concatenate([jax.lax.real(pairs), jax.lax.imag(pairs)])
    return jax.lax.map(_from_word, jax.lax.bitcast_convert_type(words, np.uint32))


def _words(keys: Array, counter: Array) -> tuple[Array, Array]:
    low = jnp.broadcast_to(counter, keys.shape[1:])
    return _hash(keys, jnp.zeros_like(low), low)


def _uniform(x: Array) -> Array:
    """From x uniform in [1, 2), u uniform in (-1, 1)."""
    lowest = np.nextafter(np.asarray(-1, x.dtype), np.asarray(0, x.dtype))
    return jnp.maximum(lowest, (x - 1) * (1 - lowest) + lowest)


# Giles, "Approximating the erfinv function" (2010): polynomials in w - 5/2 and in √w - 3
CENTRE = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
    *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
TAIL = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
    *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)


def _from_word(word: Array) -> Array:
    """Normal variates √2·erf⁻¹(u) in single precision, u uniform in (-1, 1) by words of 32 bits.

    With w = -log(1 - u²), as a product of 1 - u and 1 + u: no digits are lost near ±1.
    """
    u = _uniform(jax.lax.bitcast_convert_type((word >> 9) | np.uint32(0x7F << 23), np.float32))
    w = -jnp.log((1 - u) * (1 + u))
    central = w < 5
    v = jnp.where(central, w - 2.5, jnp.sqrt(w) - 3)
    total = jnp.zeros_like(v)
    for pair in np.sqrt(2) * np.array([CENTRE, TAIL]).T:
        total = total * v + jnp.where(central, *pair.astype(np.float32))
    return total * u

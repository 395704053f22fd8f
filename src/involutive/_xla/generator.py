"""JAX's own random bits, compiled for throughput.

Symptom: on a CPU JAX compiles the hash Threefry-2x32 as a loop over its rounds, which writes every
intermediate array to memory. Seen with jax 0.10.2: `python -m involutive.bench.xla variates` draws
30 normal variates for each of 1024 keys in 403 µs by `jax.random` and in 97 µs here (256 keys: 301
and 38 µs; 32 keys: 23 and 13 µs).

Written out, its twenty rounds and what is made of the bits become one pass. Its keys and bits are
those of `jax.random` (with its default, partitionable counters); `normal` makes twice as many
variates of them in single precision, by Box and Muller's formula.
"""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.extend.random import define_prng_impl
from jaxtyping import Array, Float, Key

from involutive._xla.batch_last import many_at_once

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


def _fold_in(key: Array, data: Array | int) -> Array:
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
    of both; here single precision makes two.
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
    """Two rows a counter. A pass has one result, so that a pair leaves it as a complex number."""
    pairs = jax.lax.map(lambda counter: _pair(*_words(keys, counter)), counters)
    return jnp.concatenate([jax.lax.real(pairs), jax.lax.imag(pairs)])


def _words(keys: Array, counter: Array) -> tuple[Array, Array]:
    low = jnp.broadcast_to(counter, keys.shape[1:])
    return _hash(keys, jnp.zeros_like(low), low)


def _uniform(x: Array) -> Array:
    """From x uniform in [1, 2), u uniform in (-1, 1)."""
    lowest = np.nextafter(np.asarray(-1, x.dtype), np.asarray(0, x.dtype))
    return jnp.maximum(lowest, (x - 1) * (1 - lowest) + lowest)


# Cephes, single precision: sin and cos on [-π/4, π/4] as polynomials in x²
SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)


def _pair(a: Array, b: Array) -> Array:
    """Two independent normal variates by Box and Muller, `√(-2 log u) (cos θ, sin θ)`.

    u is uniform in (0, 1] by 30 bits of one word, in the middle of its cell, so that variates reach
    6.5. Of the other word two bits choose a quarter of the circle, and thirty the angle in
    [-π/4, π/4] from its middle.
    """
    signed = lambda word: jax.lax.bitcast_convert_type(word, np.int32).astype(np.float32)  # noqa: E731
    u = signed((a >> 1) | np.uint32(1)) * np.float32(2.0**-31)
    radius = jnp.sqrt(np.float32(-2) * jnp.log(u))
    x = signed(b << 2) * np.float32(np.pi / 2 * 2.0**-32)
    y = x * x
    sine = x + x * y * _polynomial(SIN, y)
    cosine = 1 - np.float32(0.5) * y + y * y * _polynomial(COS, y)
    sign = (b >> 31) << 31
    cosine = jax.lax.bitcast_convert_type(
        jax.lax.bitcast_convert_type(cosine, np.uint32) ^ sign, np.float32
    )
    turned = (b & np.uint32(1 << 30)) != 0
    first, second = jnp.where(turned, sine, cosine), jnp.where(turned, cosine, sine)
    return jax.lax.complex(radius * first, radius * second)


def _polynomial(coefficients: tuple[float, ...], y: Array) -> Array:
    total = jnp.full_like(y, coefficients[0])
    for c in coefficients[1:]:
        total = total * y + np.float32(c)
    return total

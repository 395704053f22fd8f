"""Random keys: an int seed or any JAX key becomes one typed key."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive.core.errors import InputError

KeyLike = int | Array


def as_key(key: object) -> Key[Array, ""]:
    """Return a typed JAX key from an int seed, a typed key, or a raw `uint32` key."""
    if isinstance(key, bool) or key is None:
        raise InputError(f"key must be an int seed or a JAX key, got {key!r}; pass key=0")
    if hasattr(key, "__index__") and not isinstance(key, jax.Array):
        return jr.key(int(key))  # type: ignore[call-overload]
    if isinstance(key, jax.Array) and key.shape == () and jnp.issubdtype(key.dtype, jnp.integer):
        return jr.key(int(key))
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        if key.shape != ():
            raise InputError(f"key must be one key, got keys of shape {key.shape}; pass keys[0]")
        return key
    if isinstance(key, jax.Array) and key.dtype == jnp.uint32 and key.shape == (2,):
        return jr.wrap_key_data(key)
    kind = getattr(key, "dtype", type(key).__name__)
    raise InputError(f"key must be an int seed or a JAX key, got {kind}; pass key=0")


def split(key: Key[Array, ""], count: int) -> list[Key[Array, ""]]:
    """`count` new keys, one compilation for every count: for what is not compiled itself."""
    _spend(key)
    return [jr.fold_in(key, i) for i in range(count)]


def generator(key: Key[Array, ""]) -> np.random.Generator:
    """A NumPy generator seeded by a key, for what is shuffled on the host."""
    _spend(key)
    return np.random.default_rng(np.asarray(jr.key_data(key)).tolist())


def _spend(key: Key[Array, ""]) -> None:
    """Use a key up in the eyes of JAX's checker, if that is on.

    The checker takes `fold_in` and `key_data` for sources, so a key that is split by the one or
    read by the other twice would go unseen. A draw from it counts as its one use.
    """
    if jax.config.jax_debug_key_reuse:  # type: ignore[attr-defined]
        jr.bits(key, (), "uint8")

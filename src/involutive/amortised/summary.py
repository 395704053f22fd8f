"""What a network sees of a data set: sums over its observations, whatever their order.

    r_i    standardised features of observation i
    φ(r)   numbers that a network makes of one observation
    a(r)   log weights under attention, one per head

    s = (mean_i r_i, mean_i φ(r_i), Σ_i e^{a(r_i)} φ(r_i) / Σ_i e^{a(r_i)} per head, log n)

Each entry is made of sums over observations, so that s is invariant under permutations, rows
outside the mask count for nothing, and the sums of two data sets add up to those of both: attention
with a bounded score needs no maximum over the observations. A data set of a fixed shape is one row,
and s is the row itself.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key
from paramax import NonTrainable, unwrap

from involutive._xla.compilation import on_device
from involutive.amortised.settings import AmortiseSettings
from involutive.core.types import Number
from involutive.storage.codec import register

CONSTANT = 1e-9  # relative sd below which a feature is constant: rounding


class Sums(NamedTuple):
    """What a data set is to the network: sums over its observations, and how many there are."""

    total: Float[Array, " summary"]
    count: Float[Array, ""]

    def __add__(self, other: object) -> "Sums":  # the sums over all observations of two data sets
        if not isinstance(other, Sums):
            return NotImplemented
        return Sums(self.total + other.total, self.count + other.count)


register(Sums)


@register
class Summary(eqx.Module):
    """The summary s of a data set; see the module."""

    mean: NonTrainable | Array
    scale: NonTrainable | Array
    phi: eqx.nn.MLP | None
    score: eqx.nn.MLP | None
    columns: int = eqx.field(static=True)
    values: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)
    exchangeable: bool = eqx.field(static=True)
    largest_feature: Number = eqx.field(static=True)
    largest_score: Number = eqx.field(static=True)

    def __init__(
        self, rows: np.ndarray, exchangeable: bool, settings: AmortiseSettings, key: Key[Array, ""]
    ):
        """From feature rows `(n, columns)` that the network will see."""
        dtype = jnp.result_type(float)
        spread = rows.std(axis=0)
        spread = np.where(spread > CONSTANT * (1 + np.abs(rows).max(axis=0)), spread, 1.0)
        self.mean = NonTrainable(on_device(rows.mean(axis=0).astype(dtype)))
        self.scale = NonTrainable(on_device(spread.astype(dtype)))
        self.exchangeable, self.columns = exchangeable, rows.shape[1]
        self.values = settings.summary if exchangeable else 0
        self.heads = settings.heads if exchangeable else 0
        self.largest_feature = settings.largest_feature
        self.largest_score = settings.largest_score
        # once per observation, where the head is used once per data set: half as wide
        width = -(-settings.width // 2)
        key_phi, key_score = key, jr.fold_in(key, 1)
        make = eqx.nn.MLP
        self.phi = self.score = None
        if self.values:
            self.phi = make(self.columns, self.values, width, 1, jax.nn.silu, key=key_phi)
        if self.heads:
            self.score = make(self.columns, self.heads, width, 1, jax.nn.silu, key=key_score)

    @property
    def size(self) -> int:
        """How many numbers s has."""
        more = self.values * (1 + self.heads) + 1
        return self.columns + (more if self.exchangeable else 0)

    def __call__(self, rows: Float[Array, "... columns"], mask: Bool[Array, " n"] | None) -> Sums:
        """The sums over the observations in the mask; without a mask, the standardised row."""
        mean, scale = unwrap(self.mean), unwrap(self.scale)
        most = self.largest_feature
        if mask is None:
            white = jnp.clip((rows - mean) / scale, -most, most)
            return Sums(white, jnp.ones((), white.dtype))
        white = jnp.clip((rows - mean[None]) / scale[None], -most, most)
        parts = [white]
        if self.phi is not None:
            parts.append(jax.vmap(self.phi)(white))
        if self.score is not None:
            raw = jax.vmap(self.score)(white) / self.largest_score
            weights = jnp.exp(self.largest_score * jnp.tanh(raw))
            weighted = weights[:, :, None] * parts[1][:, None, :]
            parts += [weights, weighted.reshape(len(weighted), -1)]
        both = jnp.concatenate(parts, axis=1)
        total = jnp.sum(jnp.where(mask[:, None], both, 0.0), axis=0)
        return Sums(total, jnp.sum(mask).astype(total.dtype))

    def pooled(self, sums: Sums) -> Float[Array, " size"]:
        """s, from the sums."""
        if not self.exchangeable:
            return sums.total
        count = jnp.maximum(sums.count, 1.0)
        cut = self.columns + self.values
        means, weights, weighted = jnp.split(sums.total, [cut, cut + self.heads])
        # bounded scores keep every weight above e^{-largest_score}, so that no sum is zero
        attended = weighted.reshape(self.heads, self.values) / weights[:, None]
        return jnp.concatenate([means / count, attended.ravel(), jnp.log(count)[None]])

"""The network of a family: a summary of the data, and from it the proposal of one posterior.

    rows r_i of a data set  ─►  s = (mean_i r_i, mean_i φ(r_i), log n)  ─►  MLP  ─►  mixture

φ is an MLP of one observation; means over the mask make s invariant under permutations, and
additive: the sums of two data sets are the sums of their observations. A data set of a fixed shape
is one row, and s is the row itself. The mixture has K full covariances, in coordinates in which the
positions that training has seen are white.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Key
from paramax import NonTrainable, unwrap

from involutive._xla.compilation import on_device
from involutive.amortised.settings import AmortiseSettings
from involutive.auxiliary.defensive import SHARE, DefensiveMixture
from involutive.bijections.whitening import Whitening
from involutive.storage.codec import register

LARGEST = 10.0  # standard deviations at which a feature is cut off: nothing was trained beyond
SHARPEST, BROADEST = 12.0, -6.0  # log of a precision factor in white coordinates; a guess


class Sums(NamedTuple):
    """What a data set is to the network: sums over its observations, and how many there are."""

    total: Float[Array, " summary"]
    count: Float[Array, ""]

    def __add__(self, other: Any) -> "Sums":  # of two data sets: of all observations
        return Sums(self.total + other.total, self.count + other.count)


register(Sums)


@register
class Summary(eqx.Module):
    """Sums over observations of standardised features and of φ; see the module."""

    mean: Any
    scale: Any
    phi: eqx.nn.MLP | None
    pooled: bool = eqx.field(static=True)

    def __init__(
        self, rows: np.ndarray, exchangeable: bool, settings: AmortiseSettings, key: Key[Array, ""]
    ):
        """From feature rows `(n, columns)` that the network will see."""
        dtype = jnp.result_type(float)
        spread = rows.std(axis=0)
        spread = np.where(spread > 1e-9 * (1 + np.abs(rows).max(axis=0)), spread, 1.0)
        self.mean = NonTrainable(on_device(rows.mean(axis=0).astype(dtype)))
        self.scale = NonTrainable(on_device(spread.astype(dtype)))
        # once per observation, where the head is used once per data set: half as wide
        width = -(-settings.width // 2)
        self.phi, self.pooled = None, exchangeable
        if exchangeable and settings.summary:
            self.phi = eqx.nn.MLP(rows.shape[1], settings.summary, width, 1, jax.nn.silu, key=key)

    def __call__(self, rows: Float[Array, "... columns"], mask: Bool[Array, " n"] | None) -> Sums:
        mean, scale = unwrap(self.mean), unwrap(self.scale)
        if mask is None:
            white = jnp.clip((rows - mean) / scale, -LARGEST, LARGEST)
            return Sums(white, jnp.ones((), white.dtype))
        white = jnp.clip((rows - mean[None]) / scale[None], -LARGEST, LARGEST)
        parts = [white] if self.phi is None else [white, jax.vmap(self.phi)(white)]
        both = jnp.concatenate(parts, axis=1)
        total = jnp.sum(jnp.where(mask[:, None], both, 0.0), axis=0)
        return Sums(total, jnp.sum(mask).astype(total.dtype))


@register
class Estimator(eqx.Module):
    """From a data set to the parameters of its proposal."""

    summary: Summary
    head: eqx.nn.MLP
    white: Whitening
    components: int = eqx.field(static=True)
    dim: int = eqx.field(static=True)

    def __init__(
        self,
        rows: np.ndarray,
        exchangeable: bool,
        white: Whitening,
        settings: AmortiseSettings,
        key: Key[Array, ""],
    ):
        """From feature rows and the whitening of positions that training will see."""
        key_summary, key_head = jr.split(key)
        self.summary = Summary(rows, exchangeable, settings, key_summary)
        self.white, self.components, self.dim = white, settings.components, white.shape[0]
        size = rows.shape[1] + (settings.summary + 1 if exchangeable else 0)
        out = self.components * (1 + self.dim + self.dim * (self.dim + 1) // 2)
        self.head = eqx.nn.MLP(size, out, settings.width, settings.depth, jax.nn.silu, key=key_head)

    def sums(self, rows: Float[Array, "... columns"], mask: Bool[Array, " n"] | None) -> Sums:
        """The summary of a data set."""
        return self.summary(rows, mask)

    def mixture(self, sums: Sums, share: float = SHARE) -> DefensiveMixture:
        """The proposal in white coordinates, with a heavy-tailed cover of that share."""
        pooled = sums.total
        if self.summary.pooled:
            count = jnp.maximum(sums.count, 1.0)
            pooled = jnp.concatenate([pooled / count, jnp.log(count)[None]])
        out = self.head(pooled)
        k, dim = self.components, self.dim
        logits, means, diagonal, below = jnp.split(out, np.cumsum([k, k * dim, k * dim]))
        row, column = np.tril_indices(dim, -1)
        diagonal = jnp.exp(jnp.clip(diagonal.reshape(k, dim), BROADEST, SHARPEST))
        factors = jnp.zeros((k, dim, dim), out.dtype)
        factors = factors.at[:, np.arange(dim), np.arange(dim)].set(diagonal)
        # relative to the diagonal, so that narrow components need no large outputs
        lower = below.reshape(k, -1) * diagonal[:, row]
        factors = factors.at[:, row, column].set(lower)
        # components start apart: a mixture of equal components has no reason to differ
        spread = _spread(k, dim).astype(out.dtype)
        return DefensiveMixture(logits, means.reshape(k, dim) + spread, factors, share)


def _spread(count: int, dim: int) -> np.ndarray:
    """Fixed standard normal offsets of the components."""
    return np.random.default_rng(0).normal(size=(count, dim))

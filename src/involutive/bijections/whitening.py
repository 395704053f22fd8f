"""Whitening by robust location and scale, the first step of every recipe."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax import bijections as fb
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Float
from paramax import NonTrainable

from involutive._xla.compilation import jit_once, on_device


class Whitening(AbstractBijection):
    """`x ↦ L⁻¹(x - m)`, fixed, for draws with mean m and covariance L Lᵀ."""

    mean: Any
    factor: Any
    inverse_factor: Any
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: None = eqx.field(static=True)

    def __init__(self, mean: Array | np.ndarray, factor: Array | np.ndarray):
        # on the host: nothing is compiled
        dtype = jnp.result_type(mean)
        factor = np.asarray(factor, np.float64)
        parts = (np.asarray(mean), factor, np.linalg.inv(factor))
        self.mean, self.factor, self.inverse_factor = (
            NonTrainable(on_device(part.astype(dtype))) for part in parts
        )
        self.shape, self.cond_shape = (len(mean),), None

    def transform_and_log_det(
        self, x: Array, condition: Array | None = None
    ) -> tuple[Array, Array]:
        log_det = -jnp.sum(jnp.log(jnp.diagonal(self.factor)))
        return self.inverse_factor @ (x - self.mean), log_det

    def inverse_and_log_det(self, y: Array, condition: Array | None = None) -> tuple[Array, Array]:
        return self.factor @ y + self.mean, jnp.sum(jnp.log(jnp.diagonal(self.factor)))


def whitening(points: Float[Array, "n dim"] | np.ndarray) -> Whitening:
    """Whiten by mean and covariance, with points beyond six robust sds drawn in first.

    On the host: sorting takes longer to compile than to do.
    """
    rows = np.asarray(points).astype(np.float64)
    dim, dtype = rows.shape[1], np.asarray(points).dtype
    low, centre, high = np.quantile(rows, [0.16, 0.5, 0.84], axis=0)
    scale = np.maximum((high - low) / 2, np.std(rows, axis=0) * 1e-3)
    scale = np.maximum(scale, 1e-30)  # of a coordinate that does not vary
    drawn_in = np.clip((rows - centre) / scale, -6.0, 6.0)
    covariance = np.cov(drawn_in.T).reshape(dim, dim) + 1e-6 * np.eye(dim)
    factor = scale[:, None] * np.linalg.cholesky(covariance)
    mean = centre + scale * np.mean(drawn_in, axis=0)
    return Whitening(mean.astype(dtype), factor.astype(dtype))


def whitened(points: Float[Array, "n dim"]) -> tuple[Whitening, Float[Array, "n dim"]]:
    """The whitening of points, and the points whitened."""
    g = whitening(points)
    mean, inverse = (np.asarray(part.unwrap()) for part in (g.mean, g.inverse_factor))
    return g, on_device((np.asarray(points) - mean) @ inverse.T)


@jit_once
def transform_all(g: fb.AbstractBijection, points: Float[Array, "n dim"]) -> Float[Array, "n dim"]:
    """`g` of every row."""
    return jax.vmap(g.transform)(points)

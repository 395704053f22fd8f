"""Whitening by robust location and scale, the first step of every recipe."""

import jax
import jax.numpy as jnp
from flowjax import bijections as fb
from jaxtyping import Array, Float

from involutive.bijections import Whitening
from involutive.compiled import jit_once


@jit_once
def whitening(points: Float[Array, "n dim"]) -> Whitening:
    """Whiten by mean and covariance, with points beyond six robust sds drawn in first."""
    dim = points.shape[1]
    centre = jnp.median(points, axis=0)
    low, high = jnp.quantile(points, jnp.array([0.16, 0.84]), axis=0)
    scale = jnp.maximum((high - low) / 2, jnp.std(points, axis=0) * 1e-3)
    drawn_in = jnp.clip((points - centre[None, :]) / scale[None, :], -6.0, 6.0)
    covariance = jnp.cov(drawn_in.T).reshape(dim, dim) + 1e-6 * jnp.eye(dim)
    factor = scale[:, None] * jnp.linalg.cholesky(covariance)
    return Whitening(centre + scale * jnp.mean(drawn_in, axis=0), factor)


@jit_once
def transform_all(g: fb.AbstractBijection, points: Float[Array, "n dim"]) -> Float[Array, "n dim"]:
    """`g` of every row."""
    return jax.vmap(g.transform)(points)

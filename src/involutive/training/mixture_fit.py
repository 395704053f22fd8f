"""A Gaussian mixture fitted to points by expectation-maximisation.

EM finds in seconds what gradient descent finds in minutes, and is where a learned auxiliary law
starts. Seeds are spread by k-means++; a component's covariance is shrunk towards the pooled one by
as many pseudo-points as there are dimensions, so that few points cannot make it singular.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Key

from involutive.auxiliary import GaussianMixture
from involutive.compiled import jit_often, jit_once, on_device
from involutive.keys import generator

PRODUCTS = 12  # dimensions up to which all products of coordinates are kept
ITERATIONS = 60
RISE = 1e-4  # nats a point; below it the rest is left to tuning
FLOOR = 1e-7  # variance added to every coordinate, in whitened units


class Components(NamedTuple):
    """Weights (log), means and covariances of a mixture."""

    log_weights: Float[Array, " k"]
    means: Float[Array, "k dim"]
    covariances: Float[Array, "k dim dim"]

    def law(self) -> GaussianMixture:
        """The mixture as an auxiliary law."""
        return law(self)


def law_of(parts: Components) -> GaussianMixture:
    """The mixture as an auxiliary law, inside of what is compiled."""
    return GaussianMixture(jnp.exp(parts.log_weights), parts.means, parts.covariances)


law = jit_once(law_of)


def fit_mixture(
    points: Float[Array, "n dim"],
    count: int,
    key: Key[Array, ""],
    log_importance: Float[Array, " n"] | None = None,
) -> Components:
    """Fit `count` components to points, each weighted by `exp(log_importance)` (equal if None).

    Components that are left without points keep a negligible weight, so that shapes stay the same
    and nothing is compiled twice; `pruned` removes them.
    """
    n = len(points)
    count = most_components(count, points)
    weights = np.ones(n) if log_importance is None else np.exp(np.asarray(log_importance))
    rows = np.asarray(points)
    weights = (n * weights / weights.sum()).astype(rows.dtype)
    seeds = on_device(rows[_spread_seeds(rows, weights, count, key)])
    return expectation_maximisation(points, on_device(weights), seeds)


def most_components(count: int, points: Float[Array, "n dim"]) -> int:
    """`count`, or as many as there are points for."""
    return max(1, min(count, points.shape[0] // (points.shape[1] + 1)))


def _first_guess(points: Array, weights: Array, seeds: Array) -> Components:
    count, dim = seeds.shape
    spread = jnp.cov(points.T, aweights=weights).reshape(dim, dim) / count ** (2 / dim)
    wide = jnp.tile(spread + FLOOR * jnp.eye(dim), (count, 1, 1))
    return Components(jnp.full(count, -np.log(count)), seeds, wide)


def _spread_seeds(
    points: np.ndarray, weights: np.ndarray, count: int, key: Key[Array, ""]
) -> np.ndarray:
    """k-means++: each seed is drawn in proportion to its squared distance from the others."""
    rng, weights = generator(key), weights.astype(np.float64)
    chosen = [int(rng.choice(len(points), p=weights / weights.sum()))]
    distance = np.sum((points - points[chosen[0]]) ** 2, axis=1)
    for _ in range(count - 1):
        chance = weights * distance
        total = chance.sum()
        pick = rng.choice(len(points), p=chance / total) if total > 0 else chosen[0]
        chosen.append(int(pick))
        distance = np.minimum(distance, np.sum((points - points[pick]) ** 2, axis=1))
    return np.asarray(chosen)


@jit_often
def expectation_maximisation(points: Array, weights: Array, seeds: Array) -> Components:
    """Iterate from means at `seeds` until the mean log-likelihood hardly rises any more.

    A component whose covariance has no factor, which points very far out can do to rounding, is
    as it was at the start.
    """
    dim, start = points.shape[1], _first_guess(points, weights, seeds)

    def again(carry: tuple[Array, Components, Array, Array]) -> Any:
        count, current, before, _ = carry
        log_density = component_log_densities(current, points)
        total = logsumexp(log_density, 1, keepdims=True)
        share = weights[:, None] * jnp.exp(log_density - total)
        size = jnp.sum(share, axis=0) + 1e-10
        means = (share.T @ points) / size[:, None]
        squares = _second_moments(share, points)
        scatter = squares - size[:, None, None] * means[:, :, None] * means[:, None, :]
        pooled = jnp.sum(scatter, axis=0) / jnp.sum(size)
        scatter = scatter + dim * pooled[None]
        covariances = scatter / (size + dim)[:, None, None] + FLOOR * jnp.eye(dim)[None]
        following = Components(jnp.log(size / jnp.sum(size)), means, covariances)
        level = jnp.mean(weights * total[:, 0])
        return count + 1, following, level, level - before

    def unfinished(carry: tuple[Array, Components, Array, Array]) -> Array:
        return (carry[0] < ITERATIONS) & (carry[3] > RISE)

    low = jnp.asarray(-jnp.inf, points.dtype)
    found = jax.lax.while_loop(unfinished, again, (jnp.asarray(0), start, low, -low))[1]
    sound = jnp.isfinite(found.log_weights) & jnp.all(
        jnp.isfinite(jnp.linalg.cholesky(found.covariances)), axis=(1, 2)
    )
    return jax.tree.map(
        lambda new, old: jnp.where(sound.reshape(-1, *[1] * (new.ndim - 1)), new, old),
        found,
        start,
    )


def _second_moments(share: Array, points: Array) -> Float[Array, "k dim dim"]:
    """`Σ_n s_nk x_n x_nᵀ` for every component k."""
    n, dim = points.shape
    if dim > PRODUCTS:
        return jax.vmap(lambda s: (points * s[:, None]).T @ points, 1)(share)
    products = (points[:, :, None] * points[:, None, :]).reshape(n, dim * dim)
    return (share.T @ products).reshape(-1, dim, dim)


def component_log_densities(mixture: Components, points: Array) -> Float[Array, "n k"]:
    """`log(w_k N(x; μ_k, Σ_k))` for every point and component."""
    dim = points.shape[1]
    factor = jnp.linalg.cholesky(mixture.covariances)
    inverse = jax.vmap(
        lambda low: jax.scipy.linalg.solve_triangular(low, jnp.eye(dim), lower=True)
    )(factor)
    log_diagonal = jnp.sum(jnp.log(jax.vmap(jnp.diagonal)(inverse)), axis=1)

    # one matrix product for all components, where `A_k (x - μ_k)` would be k small ones
    shift = jnp.einsum("kij,kj->ki", inverse, mixture.means)
    white = points @ inverse.reshape(-1, dim).T
    white = white.reshape(len(points), -1, dim) - shift[None]
    squares = jnp.sum(white**2, axis=2)
    constant = mixture.log_weights + log_diagonal - 0.5 * dim * jnp.log(2 * jnp.pi)
    return constant[None, :] - 0.5 * squares


def count_clusters(mixture: Components, apart: float = 3.0) -> int:
    """How many groups of overlapping components there are.

    Two components overlap if the Bhattacharyya distance of their shapes at the distance of their
    means, `(μ_i - μ_j)ᵀ (Σ_i + Σ_j)⁻¹ (μ_i - μ_j)/4`, is below `apart`.
    """
    means, covariances = np.asarray(mixture.means), np.asarray(mixture.covariances)
    group = np.arange(len(means))
    for i in range(len(means)):
        for j in range(i):
            gap = means[i] - means[j]
            if gap @ np.linalg.solve(covariances[i] + covariances[j], gap) / 4 < apart:
                group[group == group[i]] = group[j]
    return len(np.unique(group))

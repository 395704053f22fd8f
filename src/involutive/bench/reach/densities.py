"""Log densities of the reach table; their sources are named in `docs/benchmarks.md`."""

from collections.abc import Callable
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

Vector = Float[Array, " dim"]
LogDensity = Callable[[Vector], Float[Array, ""]]


def many_well(dim: int) -> LogDensity:
    """`Σ -x⁴ + 6x² + x/2 - y²/2` over pairs (x, y) of coordinates (fab-jax)."""

    def log_density(x: Vector) -> Float[Array, ""]:
        a, b = x[::2], x[1::2]
        return jnp.sum(-(a**4) + 6 * a**2 + 0.5 * a - 0.5 * b**2)

    assert dim % 2 == 0
    return log_density


def normals(means: np.ndarray, sds: np.ndarray, weights: np.ndarray) -> LogDensity:
    """`log Σ w_k N(x; μ_k, sd_k² I)`."""
    dim = means.shape[1]
    level = np.log(weights) - 0.5 * dim * np.log(2 * np.pi * sds**2)

    def log_density(x: Vector) -> Float[Array, ""]:
        squares = jnp.sum((x[None] - jnp.asarray(means, x.dtype)) ** 2, axis=1)
        variances = jnp.asarray(sds**2, x.dtype)
        return logsumexp(jnp.asarray(level, x.dtype) - 0.5 * squares / variances)

    return log_density


def student_products(means: np.ndarray) -> LogDensity:
    """An equal mixture of products of t₂, `Π (1 + (x_i - μ_ki)²/2)^(-3/2)`."""

    def log_density(x: Vector) -> Float[Array, ""]:
        gaps = x[None] - jnp.asarray(means, x.dtype)
        return logsumexp(jnp.sum(-1.5 * jnp.log1p(0.5 * gaps**2), axis=1))

    return log_density


def free_labels(data: np.ndarray, count: int) -> LogDensity:
    """A mixture of `count` normals fitted to data: means, log sds and logits, labels not ordered.

    Priors: means N(0, 5²), log sds N(0, 1), weights softmax of logits N(0, 1).
    """

    def log_density(x: Vector) -> Float[Array, ""]:
        means, log_sds, logits = x[:count], x[count : 2 * count], x[2 * count :]
        values = jnp.asarray(data, x.dtype)[:, None]
        normal = -0.5 * ((values - means[None]) / jnp.exp(log_sds)[None]) ** 2 - log_sds[None]
        prior = -0.5 * (jnp.sum((means / 5) ** 2) + jnp.sum(log_sds**2) + jnp.sum(logits**2))
        return prior + jnp.sum(logsumexp(jax.nn.log_softmax(logits)[None] + normal, axis=1))

    return log_density


def phi4(
    rows: int, columns: int | None = None, kappa: float = 0.3, coupling: float = 0.022
) -> LogDensity:
    """φ⁴ on a periodic lattice, square by default, in the broken phase (SCLD's action)."""

    def log_density(x: Vector) -> Float[Array, ""]:
        field = x.reshape(rows, columns or rows)
        near = jnp.roll(field, 1, 0) + jnp.roll(field, 1, 1)
        square = field**2
        action = -2 * kappa * field * near + (1 - 2 * coupling) * square + coupling * square**2
        return -jnp.sum(action)

    return log_density


def _distances(positions: Array) -> Array:
    pairs = np.array(list(combinations(range(positions.shape[0]), 2)))
    gaps = positions[pairs[:, 0]] - positions[pairs[:, 1]]
    return jnp.sqrt(jnp.sum(gaps**2, axis=1) + 1e-12)


def double_well_particles(x: Vector) -> Float[Array, ""]:
    """DW4: four particles in the plane, pair energy `0.9 (d-4)⁴ - 4 (d-4)²`; N(0, 1) on the centre.

    The sign and scale are those of DEM: `log p = -½ Σ_pairs …`, each pair counted twice there.
    """
    positions = x.reshape(4, 2)
    off = _distances(positions) - 4.0
    centre = jnp.sum(jnp.mean(positions, axis=0) ** 2)
    return -jnp.sum(0.9 * off**4 - 4.0 * off**2) - 0.5 * 4 * centre


def lennard_jones(pair_weight: float = 1.0) -> LogDensity:
    """LJ13: 13 particles in space, ε = r_m = 1, a harmonic pull of strength 1 to the centre.

    `log p = -w Σ_pairs (d⁻¹² - 2 d⁻⁶) - ½ Σ |x - centre|² - ½ 13 |centre|²`; the last term fixes
    the centre of mass, which the rest leaves free. `w = pair_weight` is 1 where a pair counts
    once (bgflow) and 2 where it counts twice (DEM).
    """

    def log_density(x: Vector) -> Float[Array, ""]:
        positions = x.reshape(13, 3)
        inverse = _distances(positions) ** -6
        energy = jnp.sum(inverse**2 - 2 * inverse)
        return -pair_weight * energy - 0.5 * jnp.sum(positions**2)

    return log_density


SCHOOLS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def eight_schools(x: Vector) -> Float[Array, ""]:
    """The centred eight schools: μ ~ N(0, 5²), log τ with τ ~ half-Cauchy(5), θ ~ N(μ, τ²)."""
    mean, log_tau, effects = x[0], x[1], x[2:]
    tau = jnp.exp(log_tau)
    prior = -0.5 * (mean / 5) ** 2 - jnp.log1p((tau / 5) ** 2) + log_tau
    groups = jnp.sum(-0.5 * ((effects - mean) / tau) ** 2 - log_tau)
    gaps = (jnp.asarray(SCHOOLS, x.dtype) - effects) / jnp.asarray(ERRORS, x.dtype)
    return prior + groups - 0.5 * jnp.sum(gaps**2)


def valley(x: Vector) -> Float[Array, ""]:
    """A curved valley whose arms branch: x₀ ~ N(0, 2²), then sums over both signs of every bend.

    `x_i | x_0 ~ ½ N(x_0²/2 - 1, 0.3²) + ½ N(-x_0²/2 + 1, 0.3²)` for i ≥ 1: 16 arms that meet where
    x_0² = 2.
    """
    bend = 0.5 * x[0] ** 2 - 1
    both = jnp.stack([x[1:] - bend, x[1:] + bend])
    return -0.125 * x[0] ** 2 + jnp.sum(logsumexp(-0.5 * (both / 0.3) ** 2, axis=0))

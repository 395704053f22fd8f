"""Posteriors of the literature with data: regressions, plates, Brownian motion, a Cox process.

Data that no package ships are read from the folder of `--data`. Densities keep every constant of
the prior and the likelihood, as their sources do, so that log Z is the published quantity.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Key

from involutive.bench.entry import data_file
from involutive.core.errors import check
from involutive.core.keys import generator
from involutive.targets.target import Target, Vector

HALF_LOG_2PI = 0.5 * float(np.log(2 * np.pi))


def _normal(x: Array, mean: Array | float, sd: Array | float) -> Array:
    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) - HALF_LOG_2PI


# ── Logistic regressions ────────────────────────────────────────────────────────────────────────


def logistic(features: np.ndarray, labels: np.ndarray, name: str) -> Target:
    """Standardised features and a constant, weights N(0, 1), both normalised."""
    sd = features.std(axis=0)
    check((labels == 0).any() and (labels == 1).any(), f"labels of {name} must be of two kinds")
    scaled = (features - features.mean(axis=0)) / np.where(sd > 0, sd, 1.0)
    design = np.concatenate([np.ones((len(scaled), 1)), scaled], axis=1)
    rows = design * (2.0 * labels - 1.0)[:, None]  # p(y | w) = sigmoid(sign · design @ w)

    def log_density(w: Vector) -> Float[Array, ""]:
        fits = jax.nn.log_sigmoid(jnp.asarray(rows, w.dtype) @ w)
        return jnp.sum(fits) - 0.5 * jnp.sum(w**2) - rows.shape[1] * HALF_LOG_2PI

    return Target(log_density, rows.shape[1], name=name)


def credit(data: Path | None) -> Target:
    """German credit, 24 numeric features: 25 weights."""
    table = np.loadtxt(data_file(data, "german.data-numeric"))
    return logistic(table[:, :-1], (table[:, -1] == 1).astype(float), "credit")


def cancer() -> Target:
    """Wisconsin breast cancer, 30 features, as scikit-learn ships it: 31 weights."""
    from sklearn.datasets import load_breast_cancer

    found: Any = load_breast_cancer()
    return logistic(found.data, found.target.astype(float), "cancer")


def _letters(path: Path, positive: str, name: str) -> Target:
    rows = np.genfromtxt(path, delimiter=",", dtype=str)
    return logistic(rows[:, :-1].astype(float), (rows[:, -1] == positive).astype(float), name)


def ionosphere(data: Path | None) -> Target:
    """UCI ionosphere, 34 features: 35 weights."""
    return _letters(data_file(data, "ionosphere.data"), "g", "ionosphere")


def sonar(data: Path | None) -> Target:
    """UCI sonar, 60 features: 61 weights."""
    return _letters(data_file(data, "sonar.all-data", "sonar.data"), "M", "sonar")


# ── Seeds ───────────────────────────────────────────────────────────────────────────────────────

SEEDS = np.array([10, 23, 23, 26, 17, 5, 53, 55, 32, 46, 10, 8, 10, 8, 23, 0, 3, 22, 15, 32, 3.0])
SOWN = np.array([39, 62, 81, 51, 39, 6, 74, 72, 51, 79, 13, 16, 30, 28, 45, 4, 12, 41, 30, 51, 7.0])
PLANT = np.array([0] * 11 + [1] * 10, float)
ROOT = np.array([0] * 5 + [1] * 6 + [0] * 5 + [1] * 5, float)


def seeds() -> Target:
    """Random effects of 21 plates (BUGS, vol. 1): 26 unconstrained coordinates.

    `τ ~ Gamma(0.01, 0.01)`, four coefficients N(0, 10²), `b_j ~ N(0, 1/τ)`,
    `r_j ~ Binomial(n_j, sigmoid(…))`; coordinates: coefficients, b, log τ.
    """

    def log_density(x: Vector) -> Float[Array, ""]:
        (plain, plant, root, both), effects, log_tau = x[:4], x[4:25], x[25]
        seeds, sown = jnp.asarray(SEEDS, x.dtype), jnp.asarray(SOWN, x.dtype)
        one, two = jnp.asarray(PLANT, x.dtype), jnp.asarray(ROOT, x.dtype)
        logits = plain + plant * one + root * two + both * one * two + effects
        ways = gammaln(sown + 1) - gammaln(seeds + 1) - gammaln(sown - seeds + 1)
        likelihood = ways + seeds * logits - sown * jax.nn.softplus(logits)
        gamma = 0.01 * jnp.log(0.01) - gammaln(0.01) + 0.01 * log_tau - 0.01 * jnp.exp(log_tau)
        prior = jnp.sum(_normal(x[:4], 0.0, 10.0)) + gamma
        spread = jnp.sum(0.5 * log_tau - 0.5 * jnp.exp(log_tau) * effects**2 - HALF_LOG_2PI)
        return prior + spread + jnp.sum(likelihood)

    return Target(log_density, 26, name="seeds")


# ── Brownian motion ─────────────────────────────────────────────────────────────────────────────

# observations of TensorFlow Probability's inference gym (Apache-2.0); ten in the middle are missing
EARLY = (0.21592641, 0.118771404, -0.07945447, 0.037677474, -0.27885845, -0.1484156, -0.3250906,
         -0.22957903, -0.44110894, -0.09830782)  # fmt: skip
LATE = (-0.8786016, -0.83736074, -0.7384849, -0.8939254, -0.7774566, -0.70238715, -0.87771565,
        -0.51853573, -0.6948214, -0.6202789)  # fmt: skip
STEPS = 30
SEEN = np.array([*range(10), *range(20, 30)])
OBSERVED = np.array([*EARLY, *LATE])
SCALE_SD = 2.0  # of the log of both scales


def brownian() -> Target:
    """`BrownianMotionUnknownScalesMissingMiddleObservations`: two scales and 30 places.

    Both scales are LogNormal(0, 2) and softplus of their coordinates. Given the scales everything
    is normal, so that exact draws and log Z need a grid over two numbers only.
    """

    def log_density(x: Vector) -> Float[Array, ""]:
        scales, places = jax.nn.softplus(x[:2]), x[2:]
        logs = jnp.log(scales)
        prior = jnp.sum(_normal(logs, 0.0, SCALE_SD) - logs + jax.nn.log_sigmoid(x[:2]))
        steps = jnp.diff(places, prepend=0.0)
        walk = jnp.sum(_normal(steps, 0.0, scales[0]))
        seen = _normal(jnp.asarray(OBSERVED, x.dtype), places[SEEN], scales[1])
        return prior + walk + jnp.sum(seen)

    return Target(log_density, 32, name="brownian", sample=_brownian_draws)


def brownian_grid(size: int = 201) -> tuple[np.ndarray, np.ndarray]:
    """Log scales on a square grid, and the log of prior times marginal likelihood there."""
    ends = np.linspace(-7.0, 2.0, size)
    inner, outer = np.meshgrid(ends, ends, indexing="ij")
    logs = np.stack([inner.ravel(), outer.ravel()], axis=1)
    walk = np.minimum.outer(SEEN + 1.0, SEEN + 1.0)
    values, basis = np.linalg.eigh(walk)  # walk·a² + b² I has the same eigenvectors for all a, b
    squares = (basis.T @ OBSERVED) ** 2
    variance = np.exp(2 * logs[:, :1]) * values + np.exp(2 * logs[:, 1:])
    likelihood = -0.5 * np.sum(squares / variance + np.log(2 * np.pi * variance), axis=1)
    prior = -0.5 * np.sum((logs / SCALE_SD) ** 2, axis=1) - np.log(2 * np.pi * SCALE_SD**2)
    return logs, likelihood + prior


def brownian_log_z() -> float:
    """log Z by the trapezoidal rule on the grid."""
    logs, values = brownian_grid()
    cell = (logs[1, 1] - logs[0, 1]) ** 2
    return float(values.max() + np.log(np.exp(values - values.max()).sum() * cell))


def _brownian_draws(key: Key[Array, ""], n: int) -> Float[Array, "n dim"]:
    """Scales from the grid, jittered within a cell; places from their conditional normal."""
    rng = generator(key)
    logs, values = brownian_grid()
    weights = np.exp(values - values.max())
    chosen = rng.choice(len(logs), n, p=weights / weights.sum())
    width = logs[1, 1] - logs[0, 1]
    log_scales = logs[chosen] + width * (rng.random((n, 2)) - 0.5)
    a, b = np.exp(log_scales[:, :1]), np.exp(log_scales[:, 1:])
    time = np.arange(1.0, STEPS + 1)
    walk = a * np.cumsum(rng.normal(size=(n, STEPS)), axis=1)  # Matheron: correct a prior path
    noise = b * rng.normal(size=(n, len(SEEN)))
    values, basis = np.linalg.eigh(np.minimum.outer(time[SEEN], time[SEEN]))
    gap = (OBSERVED - walk[:, SEEN] - noise) @ basis / (a**2 * values + b**2)
    places = walk + a**2 * (gap @ basis.T) @ np.minimum.outer(time[SEEN], time)
    scales = np.exp(log_scales)
    unconstrained = scales + np.log(-np.expm1(-scales))  # the inverse of softplus
    return jnp.asarray(np.concatenate([unconstrained, places], axis=1))


# ── Log Gaussian Cox process ────────────────────────────────────────────────────────────────────

VARIANCE, LENGTH = 1.91, 1 / 33


def cox(data: Path | None, side: int) -> Target:
    """126 pines on a grid: `f ~ N(log 126 - σ²/2, K)`, `Π exp(f n - exp(f)/side²)` over cells.

    `K = σ² exp(-distance / (side β))` with distances in cells (annealed_flow_transport, not
    whitened). Its reference log Z is of a long SMC run: 501.806 for 40×40, 503.39 for 32×32.
    """
    points = np.genfromtxt(data_file(data, "pines.csv"), delimiter=",", skip_header=1)[:, -2:]
    cells = np.minimum((points * side).astype(int), side - 1)
    counts = np.bincount(cells[:, 0] * side + cells[:, 1], minlength=side**2).astype(float)
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), -1)
    places = grid.reshape(-1, 2)
    gaps = np.linalg.norm(places[:, None] - places[None], axis=-1)
    covariance = VARIANCE * np.exp(-gaps / (side * LENGTH))
    mean = float(np.log(126.0) - VARIANCE / 2)
    inverse, log_det = np.linalg.inv(covariance), float(np.linalg.slogdet(covariance)[1])
    constant = -(side**2) * HALF_LOG_2PI - 0.5 * log_det

    def log_density(f: Vector) -> Float[Array, ""]:
        gap = f - mean
        prior = constant - 0.5 * gap @ (jnp.asarray(inverse, f.dtype) @ gap)
        return prior + jnp.sum(f * jnp.asarray(counts, f.dtype) - jnp.exp(f) / side**2)

    return Target(log_density, side**2, name=f"cox({side})")

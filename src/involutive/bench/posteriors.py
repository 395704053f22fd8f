"""The suite `posteriors`: real models whose data ship with a package or are printed here.

The reference is exact where the model can be integrated on a grid, else a long run of NUTS. With a
local clone of posteriordb its own models and reference draws are run instead (`posteriordb.py`).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from involutive.bench.entry import Entry
from involutive.bench.field.suite import FIELD
from involutive.bench.reach import densities
from involutive.core.keys import generator
from involutive.targets.target import Target, Vector

GRID = (701, 401)  # points of log τ and μ


def eight_schools() -> Target:
    """The centred eight schools with exact draws: given μ and log τ the effects are normal."""
    return Target(densities.eight_schools, 10, name="eight_schools", sample=_schools_draws)


def _schools_draws(key: Key[Array, ""], n: int) -> Float[Array, "n dim"]:
    rng = generator(key)
    log_taus, means = np.linspace(-10, 6, GRID[0]), np.linspace(-40, 40, GRID[1])
    log_tau, mean = (part.ravel() for part in np.meshgrid(log_taus, means, indexing="ij"))
    tau = np.exp(log_tau)
    value = -0.5 * (mean / 5) ** 2 - np.log1p((tau / 5) ** 2) + log_tau
    for y, s in zip(densities.SCHOOLS, densities.ERRORS, strict=True):
        value += -0.5 * np.log(tau**2 + s**2) - 0.5 * (y - mean) ** 2 / (tau**2 + s**2)
    weight = np.exp(value - value.max())
    rows = rng.choice(len(weight), n, p=weight / weight.sum())
    jitter = rng.random((2, n)) - 0.5
    log_tau = log_tau[rows] + jitter[0] * (log_taus[1] - log_taus[0])
    mean = mean[rows] + jitter[1] * (means[1] - means[0])
    precision = np.exp(-2 * log_tau)[:, None] + densities.ERRORS**-2.0
    pull = np.exp(-2 * log_tau)[:, None] * mean[:, None] + densities.SCHOOLS / densities.ERRORS**2
    effects = pull / precision + rng.normal(size=(n, 8)) / np.sqrt(precision)
    return jnp.asarray(np.column_stack([mean, log_tau, effects]))


def diabetes() -> Target:
    """Regression of 442 patients on ten standardised features (scikit-learn), noise unknown.

    `β_i ~ N(0, 50²)`, `α ~ N(150, 100²)`, `log σ ~ N(4, 1)`.
    """
    from sklearn.datasets import load_diabetes

    found: Any = load_diabetes()
    x = (found.data - found.data.mean(axis=0)) / found.data.std(axis=0)
    y = found.target

    def log_density(w: Vector) -> Float[Array, ""]:
        slopes, level, log_sd = w[:10], w[10], w[11]
        gaps = (jnp.asarray(y, w.dtype) - level - jnp.asarray(x, w.dtype) @ slopes) / jnp.exp(
            log_sd
        )
        prior = jnp.sum((slopes / 50) ** 2) + ((level - 150) / 100) ** 2 + (log_sd - 4) ** 2
        return -0.5 * (jnp.sum(gaps**2) + prior) - len(y) * log_sd

    return Target(log_density, 12, name="diabetes")


def iris() -> Target:
    """Softmax regression of three species on four standardised features, weights N(0, 1)."""
    from sklearn.datasets import load_iris

    found: Any = load_iris()
    x = (found.data - found.data.mean(axis=0)) / found.data.std(axis=0)
    design, labels = np.concatenate([np.ones((len(x), 1)), x], axis=1), found.target

    def log_density(w: Vector) -> Float[Array, ""]:
        logits = jax.nn.log_softmax(jnp.asarray(design, w.dtype) @ w.reshape(5, 3), axis=1)
        return jnp.sum(logits[jnp.arange(len(labels)), labels]) - 0.5 * jnp.sum(w**2)

    return Target(log_density, 15, name="iris")


POSTERIORS: dict[str, Entry] = {
    "eight_schools": Entry(lambda data: eight_schools()),
    "diabetes": Entry(lambda data: diabetes(), spread=150.0),
    "iris": Entry(lambda data: iris()),
    **{name: FIELD[name] for name in ("cancer_31", "seeds_26", "brownian_32", "credit_25")},
}

"""Gaussian-process regression with unknown hyperparameters, against a sum over a grid.

Few noisy points leave two explanations: a short length scale with little noise, or a long one with
much noise. The posterior of (length scale, amplitude, noise) has a ridge between the two.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import involutive as inv

PRIOR = dist.LogNormal(0.0, 1.0)


def data() -> tuple[np.ndarray, np.ndarray]:
    """Fourteen noisy values of a sine."""
    random = np.random.default_rng(3)
    x = np.sort(random.uniform(0, 6, 14))
    return x, np.sin(2 * x) + 0.4 * random.normal(size=14)


def covariance(x, length, amplitude, noise):
    """`amplitude² exp(-(x - x')²/(2 length²)) + noise² I`."""
    gap = x[:, None] - x[None, :]
    smooth = amplitude**2 * jnp.exp(-0.5 * (gap / length) ** 2)
    return smooth + (noise**2 + 1e-6) * jnp.eye(x.shape[0])


def model(x, y):
    """A zero-mean process observed with noise; the function itself is integrated out."""
    length = numpyro.sample("length", PRIOR)
    amplitude = numpyro.sample("amplitude", PRIOR)
    noise = numpyro.sample("noise", PRIOR)
    law = dist.MultivariateNormal(0.0, covariance(x, length, amplitude, noise))
    numpyro.sample("y", law, obs=y)


def exact(x: jax.Array, y: jax.Array, size: int = 48) -> dict[str, float]:
    """Posterior means of the logarithms, and the mass of short length scales, over a grid."""
    axis = jnp.linspace(-4.5, 4.5, size)
    grid = jnp.stack(jnp.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)

    def log_density(z: jax.Array) -> jax.Array:
        law = dist.MultivariateNormal(0.0, covariance(x, *jnp.exp(z)))
        return law.log_prob(y) - 0.5 * jnp.sum(z**2)

    log_weight = np.asarray(jax.lax.map(log_density, grid, batch_size=4096), np.float64)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    points = np.asarray(grid)
    return _figures(points, weight)


def _figures(points: np.ndarray, weight: np.ndarray) -> dict[str, float]:
    names = ("log length", "log amplitude", "log noise")
    means = dict(zip(names, (weight @ points).tolist(), strict=True))
    return means | {"P(length < 1)": float(weight[points[:, 0] < 0].sum())}


def main(budget: Any = None, num_samples: int = 1000) -> dict[str, dict[str, float]]:
    """Return sampled and exact figures."""
    x, y = (jnp.asarray(column) for column in data())
    kernel = inv.learn(inv.interop.numpyro.target(model, x, y), key=0, budget=budget)
    draws = inv.sample(kernel, key=1, num_chains=64, num_samples=num_samples)
    posterior = draws.to_arviz()["posterior"]
    columns = [np.log(posterior[name].to_numpy()) for name in ("length", "amplitude", "noise")]
    points = np.stack([column.ravel() for column in columns], axis=1)
    weight = np.full(len(points), 1 / len(points))
    return {"sampled": _figures(points, weight), "exact": exact(x, y)}


if __name__ == "__main__":
    for name, row in main().items():
        print(f"{name:>8}", {key: round(value, 3) for key, value in row.items()})

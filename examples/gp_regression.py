"""Gaussian-process regression with unknown hyperparameters, against a sum over a grid.

Few noisy points leave two explanations: a short length scale with little noise, or a long one with
much noise. The function itself is integrated out; three positive parameters are left.
"""

from typing import Any

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


def exact(x: np.ndarray, y: np.ndarray, size: int = 80) -> dict[str, float]:
    """The same figures by a sum over a grid of the logarithms, in the basis of eigenvectors."""
    axis = np.linspace(-5, 5, size)
    gap = x[:, None] - x[None, :]
    amplitude, noise = np.exp(2 * axis)[:, None, None], np.exp(2 * axis)[None, :, None]
    prior = -0.5 * (axis[:, None] ** 2 + axis[None, :] ** 2)
    log_weight = []
    for z in axis:
        values, vectors = np.linalg.eigh(np.exp(-0.5 * (gap / np.exp(z)) ** 2))
        variance = amplitude * np.maximum(values, 0) + noise + 1e-6
        likelihood = -0.5 * (np.log(variance) + (vectors.T @ y) ** 2 / variance).sum(axis=-1)
        log_weight.append(likelihood + prior - 0.5 * z**2)
    weight = np.exp(np.array(log_weight) - np.max(log_weight)).ravel()
    grid = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
    return _figures(grid, weight / weight.sum())


def _figures(points: np.ndarray, weight: np.ndarray) -> dict[str, float]:
    names = ("log length", "log amplitude", "log noise")
    means = dict(zip(names, (weight @ points).tolist(), strict=True))
    return means | {"P(length < 1)": float(weight[points[:, 0] < 0].sum())}


def main(budget: Any = None, num_samples: int = 1000) -> dict[str, dict[str, float]]:
    """Return sampled and exact figures."""
    x, y = data()
    target = inv.interop.numpyro.target(model, jnp.asarray(x), jnp.asarray(y))
    kernel = inv.learn(target, key=0, budget=budget)
    draws = inv.sample(kernel, key=1, num_chains=64, num_samples=num_samples)
    posterior = draws.to_arviz()["posterior"]
    columns = [np.log(posterior[name].to_numpy()) for name in ("length", "amplitude", "noise")]
    points = np.stack([column.ravel() for column in columns], axis=1)
    weight = np.full(len(points), 1 / len(points))
    return {"sampled": _figures(points, weight), "exact": exact(x, y)}


if __name__ == "__main__":
    for name, row in main().items():
        print(f"{name:>8}", {key: round(value, 3) for key, value in row.items()})

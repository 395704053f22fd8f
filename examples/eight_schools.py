"""Eight schools, centred and non-centred, against the exact posterior.

Centred, the posterior is a funnel: `theta_j ~ N(mu, tau)` closes as tau goes to 0, and NUTS has
divergences in it. Integrating mu and theta out leaves one dimension, so the exact values are a sum
over a grid of tau.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import involutive as inv

EFFECT = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERROR = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def centred():
    """`theta_j ~ N(mu, tau)`, as the model is usually written."""
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", 8):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("effect", dist.Normal(theta, jnp.asarray(ERROR)), obs=jnp.asarray(EFFECT))


def non_centred():
    """`theta_j = mu + tau z_j` with `z_j ~ N(0, 1)`: the same model without the funnel."""
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", 8):
        z = numpyro.sample("z", dist.Normal(0, 1))
        theta = numpyro.deterministic("theta", mu + tau * z)
        numpyro.sample("effect", dist.Normal(theta, jnp.asarray(ERROR)), obs=jnp.asarray(EFFECT))


def exact() -> dict[str, float]:
    """Posterior figures by quadrature: y_j ~ N(mu, ERROR_j² + tau²), and mu is normal given tau."""
    tau = np.exp(np.linspace(np.log(1e-4), np.log(1e4), 20_000))
    variance = ERROR**2 + tau[:, None] ** 2
    precision = 1 / 25 + (1 / variance).sum(axis=1)
    mean = (EFFECT / variance).sum(axis=1) / precision
    log_weight = -0.5 * np.log(variance).sum(axis=1) - 0.5 * np.log(precision)
    log_weight += 0.5 * precision * mean**2 - 0.5 * (EFFECT**2 / variance).sum(axis=1)
    log_weight += np.log(tau) - np.log1p((tau / 5) ** 2)  # grid is even in log tau
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    shrink = tau**2 / (tau**2 + ERROR[0] ** 2)
    theta = shrink * EFFECT[0] + (1 - shrink) * mean
    return {
        "mu": float(weight @ mean),
        "theta[0]": float(weight @ theta),
        "P(tau < 1)": float(weight[tau < 1].sum()),
        "P(tau < 5)": float(weight[tau < 5].sum()),
    }


def figures(model: Any, budget: Any, num_samples: int) -> dict[str, float]:
    """Learn, sample, and return the same figures from the draws."""
    kernel = inv.learn(inv.interop.numpyro.target(model), key=0, budget=budget)
    draws = inv.sample(kernel, key=1, num_chains=64, num_samples=num_samples)
    posterior = draws.to_arviz()["posterior"]
    tau = posterior["tau"].to_numpy()
    return {
        "mu": float(posterior["mu"].mean()),
        "theta[0]": float(posterior["theta"].isel(school=0).mean()),
        "P(tau < 1)": float((tau < 1).mean()),
        "P(tau < 5)": float((tau < 5).mean()),
    }


def main(budget: Any = None, num_samples: int = 1000) -> dict[str, dict[str, float]]:
    """Return the figures of both ways to write the model, and the exact ones."""
    return {
        "exact": exact(),
        "centred": figures(centred, budget, num_samples),
        "non-centred": figures(non_centred, budget, num_samples),
    }


if __name__ == "__main__":
    for name, row in main().items():
        print(f"{name:>12}", "  ".join(f"{key} {value:.3f}" for key, value in row.items()))

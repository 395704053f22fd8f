"""Simplex, positive, bounded and correlation-matrix parameters, each against its exact posterior.

The four parts are independent, so that each has a posterior in closed form, or (the correlation)
a sum over a grid: Dirichlet, Gamma, Beta, and p(rho | data) on (-1, 1).
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import involutive as inv

VOTES = np.array([12, 30, 8])
COUNTS = np.array([3, 5, 4, 2, 6])
TRIALS, SUCCESSES = 20, 17


def pairs() -> np.ndarray:
    """Forty pairs from a normal law with unit variances and correlation 0.7."""
    z = np.random.default_rng(1).normal(size=(40, 2))
    return np.stack([z[:, 0], 0.7 * z[:, 0] + np.sqrt(1 - 0.7**2) * z[:, 1]], axis=1)


def model(votes, counts, successes, points):
    """Shares of votes, a rate of counts, a chance of success, a correlation."""
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(3)))
    numpyro.sample("votes", dist.Multinomial(votes.sum(), shares), obs=votes)
    rate = numpyro.sample("rate", dist.Gamma(2.0, 0.5))
    with numpyro.plate("day", len(counts)):
        numpyro.sample("counts", dist.Poisson(rate), obs=counts)
    chance = numpyro.sample("chance", dist.Uniform(0, 1))
    numpyro.sample("successes", dist.Binomial(TRIALS, chance), obs=successes)
    factor = numpyro.sample("factor", dist.LKJCholesky(2, 2.0))
    numpyro.deterministic("correlation", factor @ factor.T)
    with numpyro.plate("pair", len(points)):
        numpyro.sample("points", dist.MultivariateNormal(scale_tril=factor), obs=points)


def exact() -> dict[str, tuple[float, float]]:
    """Posterior means and standard deviations."""
    a = 1 + VOTES
    share = a[1] / a.sum()
    shape, scale = 2.0 + COUNTS.sum(), 1 / (0.5 + len(COUNTS))
    up, down = 1 + SUCCESSES, 1 + TRIALS - SUCCESSES
    rho = np.linspace(-0.9999, 0.9999, 100_001)
    x, y = pairs().T
    left = 1 - rho**2
    log_p = (2.0 - 1) * np.log(left)  # LKJ(2): |R| to the power eta - 1
    log_p += -0.5 * len(x) * np.log(left) - 0.5 * (x @ x - 2 * rho * (x @ y) + y @ y) / left
    weight = np.exp(log_p - log_p.max())
    weight /= weight.sum()
    mean = float(weight @ rho)
    return {
        "share of the second": (share, np.sqrt(share * (1 - share) / (a.sum() + 1))),
        "rate": (shape * scale, np.sqrt(shape) * scale),
        "chance": (up / (up + down), np.sqrt(up * down / (up + down + 1)) / (up + down)),
        "correlation": (mean, float(np.sqrt(weight @ (rho - mean) ** 2))),
    }


def main(budget: Any = None, num_samples: int = 1000) -> dict[str, dict[str, tuple[float, float]]]:
    """Return means and standard deviations, sampled and exact."""
    target = inv.interop.numpyro.target(
        model, jnp.asarray(VOTES), jnp.asarray(COUNTS), SUCCESSES, jnp.asarray(pairs())
    )
    kernel = inv.learn(target, key=0, budget=budget)
    draws = inv.sample(kernel, key=1, num_chains=64, num_samples=num_samples)
    posterior = draws.to_arviz()["posterior"]
    values = {
        "share of the second": posterior["shares"].to_numpy()[..., 1],
        "rate": posterior["rate"].to_numpy(),
        "chance": posterior["chance"].to_numpy(),
        "correlation": posterior["correlation"].to_numpy()[..., 0, 1],
    }
    sampled = {name: (float(x.mean()), float(x.std())) for name, x in values.items()}
    return {"sampled": sampled, "exact": exact()}


if __name__ == "__main__":
    for kind, rows in main().items():
        print(kind, {name: tuple(np.round(row, 4).tolist()) for name, row in rows.items()})

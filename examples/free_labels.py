"""A Gaussian mixture whose labels are free: all 3! orders of the components are equally probable.

Exactly, each order of the means has posterior probability 1/6. A learned proposal visits all six;
NUTS stays in the order in which it started, and nothing in its own chain shows it.
"""

from itertools import permutations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

import involutive as inv

ORDERS = np.array(list(permutations(range(3))))


def data() -> np.ndarray:
    """Ninety points in three groups of 45, 27 and 18, around -4, 0 and 5."""
    random = np.random.default_rng(0)
    groups = [random.normal(mean, 0.8, n) for mean, n in ((-4, 45), (0, 27), (5, 18))]
    return np.concatenate(groups)


def model(y):
    """Three components with free means and weights and one spread; labels summed out."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    means = numpyro.sample("means", dist.Normal(0, 5).expand([3]).to_event(1))
    spread = numpyro.sample("spread", dist.HalfNormal(2))
    parts = dist.Normal(means, spread)
    with numpyro.plate("point", y.shape[0]):
        numpyro.sample("y", dist.MixtureSameFamily(dist.Categorical(weights), parts), obs=y)


def order(means: np.ndarray) -> np.ndarray:
    """Which of the six orders the means are in; shape `(chains, draws)`."""
    ranks = np.argsort(means, axis=-1)
    return (ranks[..., None, :] == ORDERS).all(axis=-1).argmax(axis=-1)


def main(budget: Any = None, num_samples: int = 1000) -> dict[str, Any]:
    """Return the share of each order, and how many orders single chains visit, beside NUTS."""
    y = jnp.asarray(data())
    kernel = inv.learn(inv.interop.numpyro.target(model, y), key=0, budget=budget)
    draws = inv.sample(kernel, key=1, num_chains=64, num_samples=num_samples)
    ours = order(draws.to_arviz()["posterior"]["means"].to_numpy())

    nuts = MCMC(
        NUTS(model), num_warmup=300, num_samples=500, num_chains=4, chain_method="vectorized",
        progress_bar=False,
    )  # fmt: skip
    nuts.run(jax.random.key(2), y)
    theirs = order(np.asarray(nuts.get_samples(group_by_chain=True)["means"]))
    return {
        "share of each order": (np.bincount(ours.ravel(), minlength=6) / ours.size).tolist(),
        "exact share": 1 / 6,
        "orders a chain visits": float(np.mean([np.unique(row).size for row in ours])),
        "orders a NUTS chain visits": float(np.mean([np.unique(row).size for row in theirs])),
    }


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name:>28}", np.round(value, 3))

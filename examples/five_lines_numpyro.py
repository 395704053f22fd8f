"""From a NumPyro model to a summary in five lines; `five_lines_pymc.py` has the same five."""

from typing import Any

import arviz as az
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pandas as pd

import involutive as inv
from involutive.interop import numpyro as bridge

EFFECT = jnp.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERROR = jnp.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def model():
    """Eight schools, non-centred."""
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfNormal(5))
    with numpyro.plate("school", 8):
        z = numpyro.sample("z", dist.Normal(0, 1))
        theta = numpyro.deterministic("theta", mu + tau * z)
        numpyro.sample("effect", dist.Normal(theta, ERROR), obs=EFFECT)


def main(budget: Any = None, num_samples: int = 500) -> pd.DataFrame:
    """Return ArviZ's table."""
    target = bridge.target(model)
    kernel = inv.learn(target, key=0, budget=budget)
    draws = inv.sample(kernel, key=1, num_samples=num_samples)
    data = draws.to_arviz()
    return az.summary(data)


if __name__ == "__main__":
    print(main())

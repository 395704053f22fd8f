"""Hierarchical logistic regression on the diabetes data of scikit-learn, against a long NUTS run.

Did the disease progress more than in the median patient? Intercepts vary by age band around a
common mean, with a spread that is learned; slopes for body mass index, blood pressure and a serum
measure (log triglycerides) are shared. 442 patients, 11 parameters, one mode.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS
from sklearn.datasets import load_diabetes

import involutive as inv

FEATURES = ("bmi", "bp", "s5")
BANDS = 6


def data() -> tuple[jax.Array, jax.Array, jax.Array]:
    """Standardised features `(442, 3)`, age bands and outcomes."""
    table = load_diabetes()
    column = dict(zip(table.feature_names, table.data.T, strict=True))
    x = np.stack([column[name] / column[name].std() for name in FEATURES], axis=1)
    edges = np.quantile(column["age"], np.linspace(0, 1, BANDS + 1)[1:-1])
    band = np.searchsorted(edges, column["age"])
    worse = (table.target > np.median(table.target)).astype(int)
    return jnp.asarray(x), jnp.asarray(band), jnp.asarray(worse)


def model(x, band, worse):
    """Intercepts by age band, non-centred; shared slopes."""
    centre = numpyro.sample("centre", dist.Normal(0, 1))
    spread = numpyro.sample("spread", dist.HalfNormal(1))
    with numpyro.plate("age_band", BANDS):
        z = numpyro.sample("z", dist.Normal(0, 1))
        intercept = numpyro.deterministic("intercept", centre + spread * z)
    with numpyro.plate("feature", len(FEATURES)):
        slope = numpyro.sample("slope", dist.Normal(0, 2))
    with numpyro.plate("patient", x.shape[0]):
        numpyro.sample("worse", dist.Bernoulli(logits=intercept[band] + x @ slope), obs=worse)


def moments(draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Means and standard deviations of the slopes, the centre and the spread, `(2, 5)`."""
    columns = [*np.moveaxis(draws["slope"], -1, 0), draws["centre"], draws["spread"]]
    flat = np.stack([np.asarray(column).ravel() for column in columns], axis=1)
    return {"mean": flat.mean(axis=0), "sd": flat.std(axis=0)}


def main(
    budget: Any = None, num_samples: int = 1000, reference_samples: int = 4000
) -> dict[str, dict[str, np.ndarray]]:
    """Return the moments from a learned proposal and from NUTS."""
    patients = data()
    kernel = inv.learn(inv.interop.numpyro.target(model, *patients), key=0, budget=budget)
    draws = inv.sample(kernel, key=1, num_chains=64, num_samples=num_samples)
    posterior = draws.to_arviz()["posterior"]
    nuts = MCMC(
        NUTS(model), num_warmup=500, num_samples=reference_samples, num_chains=2,
        chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    nuts.run(jax.random.key(2), *patients)
    return {
        "involutive": moments({name: posterior[name].to_numpy() for name in posterior.data_vars}),
        "nuts": moments({name: np.asarray(x) for name, x in nuts.get_samples().items()}),
    }


if __name__ == "__main__":
    for name, rows in main().items():
        print(f"{name:>12}", {key: np.round(row, 3).tolist() for key, row in rows.items()})

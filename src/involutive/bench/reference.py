"""The long run that logistic regression is judged by: `python -m involutive.bench.reference`.

NumPyro's NUTS, dense mass matrix, so that it shares nothing with this library.
"""

import json
import sys
from pathlib import Path
from typing import Any

import jax.random as jr
import numpy as np

from involutive.bench.targets import SPREAD, make, summary, with_square
from involutive.core.statistics import ess, rhat

CHAINS, DRAWS, WARMUP = 16, 8000, 1000


def long_run(name: str, draws: int = DRAWS, warmup: int = WARMUP) -> dict[str, Any]:
    """Sample a target by NUTS and keep quantiles, moments and how many draws they rest on."""
    from numpyro.infer import MCMC, NUTS

    target = make(name)
    mcmc = MCMC(
        NUTS(potential_fn=lambda x: -target.log_density(x), dense_mass=True),
        num_warmup=warmup,
        num_samples=draws,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    starts = SPREAD * jr.normal(jr.key(1), (CHAINS, target.dim))
    mcmc.run(jr.key(2), init_params=starts)
    values = with_square(np.asarray(mcmc.get_samples(group_by_chain=True)))
    kept = summary(values.reshape(-1, values.shape[-1]), float(np.min(ess(values))))
    return {
        "made_by": "python -m involutive.bench.reference",
        "r_hat": float(np.max(rhat(values))),
        "draws": kept.draws,
        "quantiles": kept.quantiles.tolist(),
        "mean": kept.mean.tolist(),
        "sd": kept.sd.tolist(),
    }


def main() -> None:
    """Write the stored reference beside this file."""
    path = Path(__file__).with_name("breast_cancer.json")
    result = long_run("breast_cancer")
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{path.name}: {result['draws']:.0f} draws, R-hat {result['r_hat']:.4f}\n")


if __name__ == "__main__":
    main()

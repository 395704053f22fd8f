"""Long runs that stand in for exact draws: `python -m involutive.bench.reference`.

NumPyro's NUTS, dense mass matrix, so that it shares nothing with this library.
"""

import json
import sys
from pathlib import Path
from typing import Any

import jax.random as jr
import numpy as np

from involutive.bench.entry import Entry
from involutive.bench.targets import DEFAULT, summary, with_square
from involutive.core.statistics import ess, rhat
from involutive.targets.target import Target

CHAINS, DRAWS, WARMUP = 16, 8000, 1000  # warm-up as Stan has it; the others are guesses
NUMBERS = 8_000_000  # at most, of all chains: fewer draws in many dimensions


def long_run(
    target: Target, known: Entry, draws: int = DRAWS, warmup: int = WARMUP, cloud: int = 0
) -> dict[str, Any]:
    """Sample a target by NUTS and keep quantiles, moments and how many draws they rest on.

    Args:
        target: the density.
        known: where chains start, and whether -x belongs to the draws as x does.
        draws: draws per chain, at most.
        warmup: steps of warm-up.
        cloud: draws to keep themselves.
    """
    from numpyro.infer import MCMC, NUTS

    draws = min(draws, NUMBERS // (CHAINS * target.dim))
    mcmc = MCMC(
        NUTS(potential_fn=lambda x: -target.log_density(x), dense_mass=target.dim <= 100),
        num_warmup=warmup,
        num_samples=draws,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    starts = known.spread * jr.normal(jr.key(1), (CHAINS, target.dim))
    mcmc.run(jr.key(2), init_params=starts)
    places = np.asarray(mcmc.get_samples(group_by_chain=True), np.float64)
    if known.symmetric:  # either sign of every draw is as likely
        signs = np.random.default_rng(0).choice((-1.0, 1.0), places.shape[:2])
        places = places * signs[:, :, None]
    values = with_square(places)
    kept = summary(values.reshape(-1, values.shape[-1]), float(np.min(ess(values))))
    found = {
        "made_by": "python -m involutive.bench.reference",
        "r_hat": float(np.max(rhat(values))),
        "draws": kept.draws,
        "quantiles": kept.quantiles.tolist(),
        "mean": kept.mean.tolist(),
        "sd": kept.sd.tolist(),
    }
    if cloud:
        flat = places.reshape(-1, target.dim)
        rows = np.random.default_rng(1).choice(len(flat), cloud, replace=False)
        found["cloud"] = np.round(flat[rows], 5).tolist()
    return found


def main() -> None:
    """Write the stored reference of logistic regression beside this file."""
    path = Path(__file__).with_name("breast_cancer.json")
    known = DEFAULT["breast_cancer"]
    result = long_run(known.make(None), known)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{path.name}: {result['draws']:.0f} draws, R-hat {result['r_hat']:.4f}\n")


if __name__ == "__main__":
    main()

"""From a PyMC model to a summary in five lines; `five_lines_numpyro.py` has the same five."""

from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm

import involutive as inv
from involutive.interop import pymc as bridge

EFFECT = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERROR = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])

with pm.Model(coords={"school": range(8)}) as model:  # eight schools, non-centred
    mu = pm.Normal("mu", 0, 5)
    tau = pm.HalfNormal("tau", 5)
    z = pm.Normal("z", 0, 1, dims="school")
    theta = pm.Deterministic("theta", mu + tau * z, dims="school")
    pm.Normal("effect", theta, ERROR, observed=EFFECT, dims="school")


def main(budget: Any = None, num_samples: int = 500) -> pd.DataFrame:
    """Return ArviZ's table."""
    target = bridge.target(model)
    kernel = inv.learn(target, key=0, budget=budget)
    draws = inv.sample(kernel, key=1, num_samples=num_samples)
    data = draws.to_arviz()
    return az.summary(data)


if __name__ == "__main__":
    print(main())

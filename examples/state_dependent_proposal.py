"""A proposal whose scale depends on the state, on a funnel: π ~ Y(·|φ) in the kernel.

In Neal's funnel the width of x_1 … x_n is exp(x_0 / 2). A Gaussian walk of one scale is too wide
in the neck and too narrow in the mouth. Here the proposal is N(φ, s(φ)²) with a scale that
depends on x_0, a simple Riemannian walk. It is not symmetric: the ratio is Y(φ|φ') / Y(φ'|φ) times
that of p.
"""

import jax
import jax.numpy as jnp
import numpy as np

import involutive as inv
from involutive.core.statistics import ess

DIM = 3


def follower(neck: float = 1.5, rest: float = 0.9) -> inv.Kernel:
    """Metropolis-Hastings with `x_0' ~ N(x_0, neck²)` and `x_i' ~ N(x_i, rest² exp(x_0))`."""

    def log_scale(x):
        width = jnp.full(DIM - 1, jnp.log(rest)) + 0.5 * x[0]
        return jnp.concatenate([jnp.full(1, jnp.log(neck)), width])

    law = inv.ConditionalNormal(lambda x: x, log_scale, DIM)
    return inv.metropolis_hastings(inv.targets.funnel(DIM), law)


def compare(num_samples: int = 4000, num_chains: int = 32) -> dict[str, dict[str, float]]:
    """Mean and standard deviation of x_0 (exact: 0 and 3) and its ESS per draw, for both walks."""
    target = inv.targets.funnel(DIM)
    start = np.asarray(target.sample(jax.random.key(1), num_chains))
    found = {}
    for name, kernel in {
        "one scale": inv.random_walk(target, 1.5),
        "scale of the state": follower(),
    }.items():
        draws = inv.sample(
            kernel, key=0, num_chains=num_chains, num_samples=num_samples, num_warmup=0,
            initial=start, progress=False,
        )  # fmt: skip
        neck = draws.positions[..., 0]
        found[name] = {
            "mean": float(neck.mean()),
            "sd": float(neck.std()),
            "ESS per draw": float(ess(neck)) / neck.size,
        }
    return found


if __name__ == "__main__":
    for name, row in compare().items():
        print(name, {key: round(value, 4) for key, value in row.items()})

"""How good an independence proposal is, judged on draws before any chain is run with it."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive.compiled import jit_once
from involutive.kernel import Kernel
from involutive.training.likelihood import log_weight, proposal_draw

ROWS = 2000  # draws weighed at once, so that one compilation serves any number of them


@jit_once
def log_weights_at(kernel: Kernel, points: Array) -> Array:
    return jax.vmap(lambda x: log_weight(kernel, x))(points)


@jit_once
def log_weights_of_draws(kernel: Kernel, key: Array) -> Array:
    draws = jax.vmap(lambda k: proposal_draw(kernel, k))(jr.split(key, ROWS))
    return jax.vmap(lambda x: log_weight(kernel, x))(draws)


def _weights_at(kernel: Kernel, points: np.ndarray) -> np.ndarray:
    count = len(points)
    padded = points[np.resize(np.arange(count), -(-count // ROWS) * ROWS)]
    blocks = padded.reshape(-1, ROWS, points.shape[1])
    parts = [log_weights_at(kernel, jnp.asarray(block)) for block in blocks]
    return np.concatenate([np.asarray(part, np.float64) for part in parts])[:count]


def independence_figures(
    kernel: Kernel, held: Array, key: Key[Array, ""], most: int = ROWS
) -> dict[str, float]:
    """Acceptance and effective draws per draw of a proposal that does not depend on the state.

    At x the chain stays with probability `r(x) = 1 - E_y min(1, w(y)/w(x))`, y ~ q, so that
    `1/E_p[(1 + r)/(1 - r)]` estimates the effective draws per draw. It sees the rare sticky states
    that an average acceptance hides.
    """
    at_x = _weights_at(kernel, np.asarray(held)[:most])
    at_y = np.asarray(log_weights_of_draws(kernel, key), np.float64)
    at_y = np.sort(np.where(np.isnan(at_y), -np.inf, at_y))
    at_x = at_x[np.isfinite(at_x)]
    # E_y min(1, w(y)/w(x)): the draws above w(x) count one each, those below by their ratio
    above = np.searchsorted(at_y, at_x)
    sums = np.logaddexp.accumulate(np.concatenate([[-np.inf], at_y]))[above]
    with np.errstate(over="ignore", invalid="ignore"):
        leave = (at_y.size - above + np.exp(np.minimum(sums - at_x, 50.0))) / at_y.size
    leave = np.clip(np.nan_to_num(leave), 1e-6, 1.0)
    ess = 1.0 / np.mean((2.0 - leave) / leave) if leave.size else 0.0
    return {"acceptance": float(leave.mean()) if leave.size else 0.0, "ess": float(ess)}

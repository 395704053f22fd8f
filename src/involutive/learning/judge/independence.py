"""Metrics of an independence proposal, computed from draws without running a chain."""

from functools import partial

import jax
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.batched import in_blocks
from involutive._xla.compilation import jit_once
from involutive.kernel.kernel import Kernel
from involutive.training.likelihood import log_weight, proposal_law


def chain_metrics(
    at_x: np.ndarray, log_weight_x: np.ndarray, at_y: np.ndarray, log_weight_y: np.ndarray
) -> dict[str, float]:
    """Acceptance rate and effective draws per draw of chains that propose from q.

    `at_x` holds `log w = log p - log q` at points x that represent p with the given log importance
    weights (up to a constant), `at_y` at points y that represent q. At x the chain stays with
    probability `r(x) = 1 - E_y min(1, w(y)/w(x))`, so that `1/E_p[(1 + r)/(1 - r)]` estimates the
    effective draws per draw. Unlike the acceptance rate, it shows rare states that chains hardly
    leave.
    """
    at_x, weight_x = _normalised(at_x, log_weight_x)
    at_y, weight_y = _normalised(np.where(np.isnan(at_y), -np.inf, at_y), log_weight_y)
    if not at_x.size or not at_y.size:
        return {"acceptance": 0.0, "ess": 0.0}
    order = np.argsort(at_y)
    at_y, weight_y = at_y[order], weight_y[order]
    # E_y min(1, w(y)/w(x)): the ratio is one for draws above w(x), and w(y)/w(x) for the others
    above = np.searchsorted(at_y, at_x)
    higher = 1 - np.concatenate([[0.0], np.cumsum(weight_y)])[above]
    with np.errstate(divide="ignore"):
        parts = np.concatenate([[-np.inf], at_y + np.log(weight_y)])
    sums = np.logaddexp.accumulate(parts)[above]
    with np.errstate(over="ignore", invalid="ignore"):
        leave = higher + np.exp(np.minimum(sums - at_x, 50.0))
    leave = np.clip(np.nan_to_num(leave), 1e-6, 1.0)
    ess = 1.0 / np.sum(weight_x * (2.0 - leave) / leave)
    return {"acceptance": float(np.sum(weight_x * leave)), "ess": float(ess)}


def _normalised(at: np.ndarray, log_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values at points with a positive weight, and those weights normalised."""
    top = np.max(log_weights, initial=-np.inf)
    kept = log_weights > top - 100.0 if np.isfinite(top) else np.zeros(len(at), bool)
    kept &= ~np.isnan(at) & (at < np.inf)
    weight = np.exp(log_weights[kept] - top)
    return at[kept], weight / max(weight.sum(), 1e-300)


@jit_once
def log_weights_at(kernel: Kernel, points: Array) -> Array:
    return jax.vmap(lambda x: log_weight(kernel, x))(points)


@jit_once
def many_draws(law: AbstractDistribution, key: Array, count: int) -> Array:
    return jax.vmap(law.sample)(jr.split(key, count))


def weights_at(kernel: Kernel, points: np.ndarray, block: int) -> np.ndarray:
    """`log p - log q` of a kernel's proposal at every row, in compiled calls of `block` rows."""
    return in_blocks(partial(log_weights_at, kernel), points, block).astype(np.float64)


def independence_metrics(
    kernel: Kernel, held: Array, key: Key[Array, ""], count: int
) -> dict[str, float]:
    """`chain_metrics` of a kernel's proposal, on at most `count` draws of the target.

    As many draws of the proposal are compared with them. One compilation serves any number of draws
    of the target.
    """
    at_x = weights_at(kernel, np.asarray(held)[:count], count)
    at_y = weights_at(kernel, np.asarray(many_draws(proposal_law(kernel), key, count)), count)
    at_x = at_x[np.isfinite(at_x)]
    return chain_metrics(at_x, np.zeros(len(at_x)), at_y, np.zeros(len(at_y)))

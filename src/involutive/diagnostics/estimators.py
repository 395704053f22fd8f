"""Estimators of log Z from log weights log p/q, of draws of q and of draws of p."""

import numpy as np

from involutive.core.statistics import effective_size, ess, log_mean_exp, mcse, pareto_k
from involutive.diagnostics.measured import Estimate

ITERATIONS = 200  # of the bridge; it converges in about ten


def importance(forward: np.ndarray) -> Estimate:
    """`log mean w` of draws of q, with the standard error of the mean on the log scale."""
    log_z = log_mean_exp(forward)
    weights = np.exp(forward - log_z)
    return Estimate(log_z, float(weights.std(ddof=1) / np.sqrt(weights.size)))


def bridge(forward: np.ndarray, backward: np.ndarray) -> Estimate:
    """The optimal bridge between draws of q and of chains `(chains, draws)`.

    Args:
        forward: log p/q at draws of q.
        backward: log p/q at the chains' draws.
    """
    count = forward.size
    centre = log_mean_exp(forward)
    ahead, back = forward - centre, backward - centre
    size = float(np.nan_to_num(ess(back), nan=0.0)) or 1.0
    share = min(size, back.size) / (min(size, back.size) + count)
    log_r = 0.0
    for _ in range(ITERATIONS):
        low = np.log1p(-share) + log_r
        new = log_mean_exp(ahead - np.logaddexp(np.log(share) + ahead, low))
        new -= log_mean_exp(-np.logaddexp(np.log(share) + back, low))
        if abs(new - log_r) < 1e-10:
            break
        log_r = new
    low = np.log1p(-share) + log_r
    top = np.exp(ahead - np.logaddexp(np.log(share) + ahead, low))
    bottom = np.exp(-np.logaddexp(np.log(share) + back, low))
    of_q = top.std(ddof=1) / top.mean() / np.sqrt(count)
    of_p = float(np.nan_to_num(mcse(bottom))) / bottom.mean()
    return Estimate(float(centre + log_r), float(np.hypot(of_q, of_p)))


def beyond(forward: np.ndarray) -> float:
    """The share of Z expected above the largest weight seen, which no mean of weights holds.

    A Pareto tail of shape k that has a chance of 1/n beyond the largest of n weights has the mean
    `w_max / (1 - k)` there. It counts for little unless k is large.
    """
    k = float(np.clip(pareto_k(forward), 0.0, 0.95))
    return float(np.exp(forward.max() - log_mean_exp(forward)) / (forward.size * (1 - k)))


def effective_share(forward: np.ndarray) -> float:
    """`(Σw)² / (n Σw²)`: the share of draws of q that are effective."""
    return effective_size(np.exp(forward - np.max(forward))) / forward.size

"""Importance weights on the host: effective sample size, log mean, weights over the largest."""

import numpy as np


def relative(log_weights: np.ndarray) -> np.ndarray:
    """Weights relative to the largest; all zero if none is positive."""
    top = np.max(log_weights, initial=-np.inf)
    if not np.isfinite(top):
        return np.zeros(len(log_weights))
    return np.exp(log_weights.astype(np.float64) - top)


def log_mean(log_weights: np.ndarray) -> float:
    """The logarithm of the mean weight."""
    weights = relative(log_weights)
    if not weights.any():
        return -np.inf
    return float(np.max(log_weights) + np.log(np.mean(weights)))


def effective(log_weights: np.ndarray) -> float:
    """The effective sample size of importance weights, `(Σw)²/Σw²`."""
    weights = relative(log_weights)
    return float(weights.sum() ** 2 / max(np.sum(weights**2), 1e-300))

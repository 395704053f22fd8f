"""Importance weights on the host: effective sample size, log mean, weights over the largest."""

import numpy as np

from involutive.core.statistics import effective_size, log_mean_exp


def relative(log_weights: np.ndarray) -> np.ndarray:
    """Weights relative to the largest; all zero if none is positive."""
    top = np.max(log_weights, initial=-np.inf)
    if not np.isfinite(top):
        return np.zeros(len(log_weights))
    return np.exp(log_weights.astype(np.float64) - top)


def log_mean(log_weights: np.ndarray) -> float:
    """The logarithm of the mean weight; -inf also if the largest is infinite or not a number."""
    top = np.max(log_weights, initial=-np.inf)
    return log_mean_exp(log_weights) if np.isfinite(top) else -np.inf


def effective(log_weights: np.ndarray) -> float:
    """The effective sample size of importance weights, `(Σw)²/Σw²`."""
    return effective_size(relative(log_weights))

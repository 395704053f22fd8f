"""Responsibilities of normal components for many points, and the moments EM needs.

There are two implementations; which one is faster depends on the dimension. Measured on one thread,
in nanoseconds per point and component: 22 by whitening and 7 by products in 2-D with 128
components, 32 and 16 in 10-D with 48. Points are processed in blocks that fit in a core's cache.
"""

import numpy as np

FEW = 20  # dimensions up to which products of coordinates are faster
ROOM = 2**17  # numbers in the largest array of a block
ROWS = 2048  # points per block of `Whitened`
FAR = np.float32(1e15)  # largest distance, in sds: its square is still finite
FAINT = np.float32(-75.0)  # smallest log responsibility: below it numbers are denormal, and slow


class Products:
    """By `t(x) = (1, x_i, x_i x_j for i ≤ j)`.

    Every `log(w_k N(x; μ_k, Σ_k))` is linear in t(x), and all moments are sums of t(x): either is
    one matrix product. In double precision, since a small covariance is a difference of large sums.
    """

    def __init__(self, log_weights: np.ndarray, means: np.ndarray, covariances: np.ndarray):
        dim = means.shape[1]
        self._pairs = np.triu_indices(dim)
        inverse = np.linalg.inv(covariances)
        linear = np.einsum("kij,kj->ki", inverse, means)
        volume = 0.5 * (np.linalg.slogdet(covariances)[1] + dim * np.log(2 * np.pi))
        level = log_weights - volume - 0.5 * np.einsum("ki,ki->k", linear, means)
        i, j = self._pairs
        quadratic = np.where(i == j, -0.5, -1.0) * inverse[:, i, j]
        self._linear = np.concatenate([level[:, None], linear, quadratic], axis=1)
        self.rows = max(ROOM // max(self._linear.shape), 1)

    def terms(self, points: np.ndarray) -> np.ndarray:
        """t(x) of every row, one column per point."""
        across, (i, j) = np.ascontiguousarray(points.T, np.float64), self._pairs
        return np.concatenate([np.ones((1, len(points))), across, across[i] * across[j]])

    def log_densities(self, terms: np.ndarray) -> np.ndarray:
        """`log(w_k N(x; μ_k, Σ_k))`, `(k, n)`."""
        return self._linear @ terms

    def moments(self, share: np.ndarray, terms: np.ndarray) -> tuple[np.ndarray, ...]:
        """Sums over points of `share`, `share x` and `share x xᵀ`, of every component."""
        sums, (i, j), dim = share @ terms.T, self._pairs, int(self._pairs[0][-1]) + 1
        second = np.empty((len(sums), dim, dim))
        second[:, i, j] = second[:, j, i] = sums[:, 1 + dim :]
        return sums[:, 0], sums[:, 1 : 1 + dim], second


class Whitened:
    """By `A_k (x - μ_k)` with A_k the inverse factor of Σ_k, where there are many dimensions.

    In single precision, which is enough for points that are whitened.
    """

    rows = ROWS

    def __init__(self, log_weights: np.ndarray, means: np.ndarray, covariances: np.ndarray):
        self._shape, dim = means.shape, means.shape[1]
        factors = np.linalg.inv(np.linalg.cholesky(covariances))
        self._factors = factors.reshape(-1, dim).astype(np.float32)
        offsets = np.einsum("kij,kj->ki", factors, means)
        self._offsets = offsets.astype(np.float32).reshape(-1, 1)
        diagonals = np.log(np.einsum("kii->ki", factors)).sum(axis=1)
        level = log_weights + diagonals - 0.5 * dim * np.log(2 * np.pi)
        self._level = level.astype(np.float32)[:, None]

    def terms(self, points: np.ndarray) -> np.ndarray:
        """The points themselves."""
        return points

    def log_densities(self, terms: np.ndarray) -> np.ndarray:
        """`log(w_k N(x; μ_k, Σ_k))`, `(k, n)`."""
        # one matrix product for all components, where `A_k (x - μ_k)` would be k small ones
        white = self._factors @ terms.T.astype(np.float32)
        white -= self._offsets
        np.clip(white, -FAR, FAR, out=white)  # a point that far out belongs to no component
        squares = np.sum(np.square(white, out=white).reshape(*self._shape, -1), axis=1)
        return self._level - 0.5 * squares

    def moments(self, share: np.ndarray, terms: np.ndarray) -> tuple[np.ndarray, ...]:
        """Sums over points of `share`, `share x` and `share x xᵀ`, of every component."""
        second = np.stack([(terms * row[:, None]).T @ terms for row in share])
        return share.sum(axis=1), share @ terms, second


def form_of(
    log_weights: np.ndarray, means: np.ndarray, covariances: np.ndarray
) -> Products | Whitened:
    """Components in the implementation that is faster in their dimension."""
    kind = Products if means.shape[1] <= FEW else Whitened
    return kind(log_weights, means, covariances)


def responsibilities(log_densities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The responsibility `(k, n)` of every component for every point, and the log density.

    Responsibilities are in single precision, whose exponential is four times as fast.
    """
    top = log_densities.max(axis=0)
    share = log_densities - top  # subtracted before rounding: both may exceed single precision
    share = np.maximum(share, FAINT, out=share).astype(np.float32, copy=False)
    np.exp(share, out=share)
    total = share.sum(axis=0)
    share /= total
    return share, top.astype(np.float64) + np.log(total)

"""Every evaluation ever made, with the density of the mixture of all proposals.

Point i was drawn from one of the proposals q_s, n_s draws each, N in all. Its deterministic-mixture
importance weight (Owen and Zhou 2000; adaptive multiple importance sampling, Cornuet et al. 2012)
is

    w_i = p(x_i) / s(x_i),    s(x) = Σ_s n_s q_s(x) / N,

whichever proposal it came from: a point that one proposal reached by luck and another covers well
has a moderate weight. Every q_s is X or a mixture of normals, so the mixture s consists of X and
one list of normals, each with its number of draws.
"""

from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np

from involutive._xla.batched import BatchedDensity, BatchedDistribution
from involutive.learning.fit.mixture import Components
from involutive.learning.fit.weighted import WeightedSample
from involutive.learning.weights import effective
from involutive.storage.codec import register

register(Components)


@register
@dataclass(frozen=True)
class Archive:
    """Evaluations and the proposals that they were drawn from.

    Attributes:
        points: `(n, dim)`.
        log_p: the log density of every point; -inf where it is NaN.
        log_x: the log density of X at every point.
        log_normals: `log Σ_k n_k N(x; μ_k, Σ_k)` at every point.
        of_x: how many of the points are draws of X.
        normals: all other proposals; `log_weights` holds the log number of draws of each.
    """

    points: np.ndarray
    log_p: np.ndarray
    log_x: np.ndarray
    log_normals: np.ndarray
    of_x: int
    normals: Components

    @classmethod
    def empty(cls, dim: int) -> "Archive":
        """An archive without evaluations."""
        none = Components(np.zeros(0), np.zeros((0, dim)), np.zeros((0, dim, dim)))
        return cls(np.zeros((0, dim)), np.zeros(0), np.zeros(0), np.zeros(0), 0, none)

    def __len__(self) -> int:
        return len(self.points)

    @property
    def log_s(self) -> np.ndarray:
        """The log density of the mixture of all proposals at every point."""
        with np.errstate(divide="ignore"):
            of_x = np.log(float(self.of_x)) + self.log_x
        return np.logaddexp(of_x, self.log_normals) - np.log(max(len(self), 1))

    @property
    def log_weights(self) -> np.ndarray:
        """`log p - log s` at every point."""
        return self.log_p - self.log_s

    @property
    def effective(self) -> float:
        """The effective sample size of the weighted points."""
        return effective(self.log_weights)

    def tempered(self, beta: float) -> WeightedSample:
        """The points as a weighted sample of `s^(1-β) p^β`."""
        log_s = self.log_s
        with np.errstate(invalid="ignore"):
            log_p = np.where(self.log_p > -np.inf, log_s + beta * (self.log_p - log_s), -np.inf)
        return WeightedSample(self.points, log_p, log_s)

    def with_draws(
        self,
        points: np.ndarray,
        log_p: np.ndarray,
        x: BatchedDistribution,
        of_x: int = 0,
        normals: Components | None = None,
    ) -> "Archive":
        """The archive with more points: `of_x` of them draws of X, the others of `normals`.

        The log weights of `normals` are log numbers of draws. The weights of old points change too,
        since the new proposals join the mixture s.
        """
        log_x = x.values(points.astype(jnp.result_type(float))).astype(np.float64)
        old, new = self.log_normals, _log_sum(self.normals, points)
        if normals is not None and len(normals.means):
            old = np.logaddexp(old, _log_sum(normals, self.points))
            new = np.logaddexp(new, _log_sum(normals, points))
        together = [self.normals] if normals is None else [self.normals, normals]
        return replace(
            self,
            points=np.concatenate([self.points, points.astype(np.float64)]),
            log_p=np.concatenate([self.log_p, log_p.astype(np.float64)]),
            log_x=np.concatenate([self.log_x, log_x]),
            log_normals=np.concatenate([old, new]),
            of_x=self.of_x + of_x,
            normals=Components(*(np.concatenate(part) for part in zip(*together, strict=True))),
        )


def _log_sum(normals: Components, points: np.ndarray) -> np.ndarray:
    if not len(normals.means) or not len(points):
        return np.full(len(points), -np.inf)
    return normals.log_density(points)


def evaluated(density: BatchedDensity, points: np.ndarray) -> np.ndarray:
    """The log density at every row; NaN and +inf count as outside the support."""
    with np.errstate(over="ignore"):
        values = density.values(points.astype(density.dtype)).astype(np.float64)
    return np.where(np.isnan(values) | (values == np.inf), -np.inf, values)

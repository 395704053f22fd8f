"""Weighted samples of a density in whitened coordinates, and mixtures judged on them.

Draw x ~ s, where s is mostly q, partly q with wider components and partly one wide normal over X,
with importance weights w = p/s. The wide parts of s reach where q is too small. So the same
weighted draws also judge q: how often a chain that proposes from q moves, and how long it stays in
its rarest states.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from involutive.core.types import Number
from involutive.learning.fit.mixture import Components, joined
from involutive.learning.judge.independence import chain_metrics
from involutive.learning.settings import FitSettings, LearnSettings
from involutive.learning.weights import log_mean, relative


class WeightedSample(NamedTuple):
    """Points in whitened coordinates, with log p and with log s of the density they come from."""

    points: np.ndarray
    log_p: np.ndarray
    log_s: np.ndarray

    @classmethod
    def of(cls, samples: list["WeightedSample"]) -> "WeightedSample":
        """Join several samples: all weights p/s are on the same scale."""
        return cls(*(np.concatenate(parts) for parts in zip(*samples, strict=True)))

    @property
    def weights(self) -> np.ndarray:
        """Importance weights up to a constant, truncated at √n times their mean (Ionides 2008)."""
        weights = relative(self.log_p - self.log_s)
        return np.minimum(weights, np.sqrt(len(weights)) * weights.mean())

    @property
    def log_z(self) -> float:
        """The log of the integral of p, `log mean p/s`."""
        return log_mean(self.log_p - self.log_s) if len(self.log_p) else -np.inf

    def picked(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Points resampled by weight: approximate draws of the target."""
        weights = self.weights
        chances = weights / weights.sum() if weights.any() else None
        return self.points[rng.choice(len(weights), count, p=chances)]


@runtime_checkable
class Weighable(Protocol):
    """A density that a mixture can be fitted to: the target, one block, or one domain of it."""

    dim: int
    dtype: Any

    @property
    def left(self) -> float: ...

    def values(self, points: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class FittedMixture:
    """A mixture, a weighted sample that it was not fitted to, and its metrics on that sample."""

    mixture: Components
    sample: WeightedSample
    acceptance: Number
    ess: Number


@dataclass(frozen=True)
class Space:
    """The density in whitened coordinates `z = L⁻¹(x - m)`, with a normal that covers X there."""

    density: Weighable
    mean: np.ndarray
    factor: np.ndarray
    wide: Components
    settings: LearnSettings

    @classmethod
    def around(
        cls,
        density: Weighable,
        mean: np.ndarray,
        factor: np.ndarray,
        settings: LearnSettings,
        *far: np.ndarray,
    ) -> "Space":
        """The space with a normal that covers groups of points, of which outliers are clipped."""
        mean, factor = mean.astype(np.float64), factor.astype(np.float64)
        nowhere = normal_around(settings.fit, np.zeros((2, len(mean))))
        space = cls(density, mean, factor, nowhere, settings)
        return replace(space, wide=normal_around(settings.fit, *map(space.whiten, far)))

    def whiten(self, points: np.ndarray) -> np.ndarray:
        """`z` of every row x."""
        return np.linalg.solve(self.factor, (points - self.mean).T.astype(np.float64)).T

    def colour(self, points: np.ndarray) -> np.ndarray:
        """`x` of every row z."""
        return points @ self.factor.T + self.mean

    def log_p(self, points: np.ndarray) -> np.ndarray:
        """The log density of z at every row; NaN and +inf count as outside the support."""
        dtype = np.result_type(self.density.dtype)
        with np.errstate(over="ignore"):
            values = self.density.values(self.colour(points).astype(dtype)).astype(np.float64)
        values += np.linalg.slogdet(self.factor)[1]
        return np.where(np.isnan(values) | (values == np.inf), -np.inf, values)

    def with_wide_normal(self, mixture: Components) -> Components:
        """q with the wide normal, so that a chain that starts far out moves at once."""
        wide = self.settings.wide_share
        return joined([mixture, self.wide], (1 - wide, wide))

    def sample(self, mixture: Components, count: int, rng: np.random.Generator) -> WeightedSample:
        """Draw a weighted sample from q, q stretched and the wide normal."""
        stretch = 1 + self.settings.fit.stretch / np.sqrt(self.density.dim)
        parts = [mixture, mixture.inflated(stretch), self.wide]
        proposal = joined(parts, self.settings.defensive)
        count = int(max(min(count, self.density.left), 1))
        points = proposal.draws(count, rng)
        return WeightedSample(points, self.log_p(points), proposal.log_density(points))

    def judged(self, mixture: Components, sample: WeightedSample) -> FittedMixture:
        """Estimate the metrics of chains that propose from q by a weighted sample."""
        log_q = self.with_wide_normal(mixture).log_density(sample.points)
        at = sample.log_p - log_q
        metrics = chain_metrics(at, sample.log_p - sample.log_s, at, log_q - sample.log_s)
        return FittedMixture(mixture, sample, metrics["acceptance"], metrics["ess"])

    def lacking(self, mixture: Components, points: np.ndarray) -> np.ndarray:
        """By what factor q is too small at each point, relative to their median, within bounds."""
        log_w = self.log_p(points) - self.with_wide_normal(mixture).log_density(points)
        finite = np.where(np.isfinite(log_w), log_w, -np.inf)
        centre = np.median(finite[np.isfinite(finite)]) if np.isfinite(finite).any() else 0.0
        most = np.log(self.settings.fit.lack)
        return np.exp(np.clip(finite - centre, -most, most))

    def uncovered(self, fitted: FittedMixture, points: np.ndarray) -> np.ndarray:
        """Whether p/q at each point is far larger than its maximum on the weighted sample."""
        mixture, sample = self.with_wide_normal(fitted.mixture), fitted.sample
        seen = sample.log_p - mixture.log_density(sample.points)
        top = np.max(seen[sample.weights > 0], initial=-np.inf)
        beyond = top + np.log(self.settings.fit.beyond)
        return self.log_p(points) - mixture.log_density(points) > beyond


def normal_around(settings: FitSettings, *groups: np.ndarray) -> Components:
    """One normal with a multiple of the covariance of all points, of which outliers are clipped.

    Outliers are those of a group: a proposal much narrower than X must not make X one.
    """
    points = np.concatenate([_clipped(group, settings.wide_clip) for group in groups])
    dim = points.shape[1]
    wider = settings.wide_covariance * np.cov(points.T).reshape(dim, dim)
    covariance = wider + 1e-6 * np.eye(dim)
    return Components(np.zeros(1), points.mean(axis=0)[None], covariance[None])


def _clipped(points: np.ndarray, times: Number) -> np.ndarray:
    """Points within that many median absolute deviations of the median, others moved there."""
    points = np.where(np.isfinite(points), points, 0.0).astype(np.float64)
    centre = np.median(points, axis=0)
    most = times * np.median(np.abs(points - centre), axis=0)
    return centre + np.clip(points - centre, -most, most)

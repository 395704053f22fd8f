"""Annealing: adaptive tempered SMC carries draws of X to the target.

Particles pass through the distributions `X^(1-β) p^β`, β from 0 to 1. Annealing finds curved and
flat shapes, needs no gradient, and is not drawn into narrow spikes without mass. Where the
importance weights of the draws of X are even enough, the draws are resampled by weight instead,
which costs no evaluation.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Key

from involutive._xla.batched import BatchedDensity, BatchedDistribution, OutOfBudget
from involutive.core.keys import generator, split
from involutive.core.types import Number
from involutive.learning.find.moves import Particles, move
from involutive.learning.settings import LearnSettings, SearchSettings
from involutive.learning.weights import effective, log_mean, relative


class Annealed(NamedTuple):
    """Particles, and their estimate of log Z, Z the density's integral (-inf if cut short)."""

    points: np.ndarray
    log_z: Number


class FiniteDraws(NamedTuple):
    """Draws of X at which the density is finite.

    Attributes:
        points: the draws.
        log_weights: their log importance weights `log p(x) - log X(x)`.
        log_share: log of the share of X at which the density is finite. Estimates of log Z by
            these draws alone are of `∫ p / X(finite)`: it is added to them.
    """

    points: np.ndarray
    log_weights: np.ndarray
    log_share: float


def finite_draws(
    density: BatchedDensity,
    x: BatchedDistribution,
    key: Key[Array, ""],
    count: int,
    settings: SearchSettings,
) -> FiniteDraws:
    """Draw `count` points of X at which the density is finite, in at most `attempts` batches.

    If fewer are found, they are repeated.
    """
    kept, heights, drawn = list[np.ndarray](), list[np.ndarray](), 0
    for key_attempt in split(key, settings.attempts):
        points = x.draws(key_attempt, count)
        try:
            weights = density.values(points) - x.values(points)
        except OutOfBudget:
            break
        finite = np.isfinite(weights)
        drawn += count
        kept.append(points[finite])
        heights.append(weights[finite])
        if sum(map(len, kept)) >= count:
            break
    if not sum(map(len, kept)):
        return FiniteDraws(np.zeros((0, density.dim), density.dtype), np.zeros(0), -np.inf)
    found, weights = np.concatenate(kept), np.concatenate(heights)
    rows = np.resize(np.arange(len(found)), count)
    return FiniteDraws(found[rows], weights[rows], float(np.log(len(found) / drawn)))


def finite_points(density: BatchedDensity, points: np.ndarray) -> np.ndarray:
    """The points that are finite and have a finite log density."""
    return points[np.isfinite(points).all(axis=1) & np.isfinite(density.values(points))]


def resampled(
    points: np.ndarray, log_weights: np.ndarray, count: int, key: Key[Array, ""], least: Number
) -> Annealed | None:
    """Draws of X resampled by weight, or None if fewer than `least` of them are effective."""
    if effective(log_weights) < least:
        return None
    weights = relative(log_weights)
    picked = points[generator(key).choice(len(points), count, p=weights / weights.sum())]
    return Annealed(picked, log_mean(log_weights))


class TemperedDensity(NamedTuple):
    """`log X(x) + β (log p(x) - log X(x))` at rows, and its gradients."""

    density: BatchedDensity
    x: BatchedDistribution
    beta: Number

    def values(self, points: np.ndarray) -> np.ndarray:
        return self._interpolate(self.x.values(points), self.density.values(points))

    def gradients(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        (prior, prior_gradient), (value, gradient) = (
            self.x.gradients(points),
            self.density.gradients(points),
        )
        return self._interpolate(prior, value), prior_gradient + self.beta * (
            gradient - prior_gradient
        )

    def _interpolate(self, prior: np.ndarray, value: np.ndarray) -> np.ndarray:
        return np.where(np.isfinite(value), prior + self.beta * (value - prior), -np.inf)


def anneal(
    density: BatchedDensity,
    x: BatchedDistribution,
    points: np.ndarray,
    log_weights: np.ndarray,
    key: Key[Array, ""],
    settings: LearnSettings,
    *,
    gradients: bool,
) -> Annealed:
    """Carry draws of X to the target by adaptive tempered SMC.

    Each temperature keeps a share `settings.anneal_ess` of the particles effective. There they are
    resampled and moved, by HMC with the particles' scales as its metric or by a random walk with
    their covariance. If the budget ends on the way, the particles stay at their temperature.

    Args:
        density: the target.
        x: the initial distribution X.
        points: draws of X.
        log_weights: `log p - log X` at the points.
        key: randomness.
        settings: sizes.
        gradients: whether to move by HMC.
    """
    rng, log_z, beta, search = generator(key), 0.0, 0.0, settings.search
    size = search.anneal_hmc if gradients else search.anneal_walk / np.sqrt(density.dim)
    for _ in range(settings.temperatures):
        rise = _next_rise(log_weights, 1.0 - beta, settings.anneal_ess)
        log_z += log_mean(rise * log_weights)
        points = points[_systematic(rise * log_weights, rng)]
        beta = min(beta + rise, 1.0)
        try:
            points, size = _move_particles(
                TemperedDensity(density, x, beta), points, size, rng, settings, gradients
            )
            if beta >= 1.0:
                return Annealed(points, log_z)
            log_weights = density.values(points) - x.values(points)
        except OutOfBudget:
            break
        log_weights = np.where(np.isfinite(log_weights), log_weights, -np.inf)
    return Annealed(points, -np.inf)


def _move_particles(
    tempered: TemperedDensity,
    points: np.ndarray,
    size: Number,
    rng: np.random.Generator,
    settings: LearnSettings,
    gradients: bool,
) -> tuple[np.ndarray, float]:
    """Points after some moves, and the step size adapted to the acceptance rate."""
    factor, particles = (
        _proposal_factor(points, gradients),
        Particles.at(tempered, points, gradients),
    )
    search = settings.search
    goal, most = (
        search.hmc_acceptance if gradients else search.walk_acceptance,
        search.anneal_change,
    )
    for _ in range(settings.anneal_moves):
        particles, rate = move(tempered, particles, factor, size, rng, search.leaps)
        change = float(np.exp(np.clip(rate.mean() - goal, -most, most)))
        size = min(size * change, search.anneal_most)
    return particles.points, size


def _next_rise(log_weights: np.ndarray, most: Number, keep: Number) -> float:
    """The largest rise of β, at most `most`, that keeps a share `keep` of particles effective."""
    goal = keep * len(log_weights)
    if effective(most * log_weights) >= goal:
        return most
    low, high = 0.0, most
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective(middle * log_weights) >= goal else (low, middle)
    return max(low, 1e-6)


def _systematic(log_weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Systematic resampling: indices drawn by weight with one random number for all of them."""
    weights = relative(log_weights)
    levels, count = np.cumsum(weights / weights.sum()), len(weights)
    return np.minimum(
        np.searchsorted(levels, (np.arange(count) + rng.uniform()) / count), count - 1
    )


def _proposal_factor(points: np.ndarray, gradients: bool) -> np.ndarray:
    """A factor of the particles' covariance: diagonal for HMC, full for a random walk."""
    wide = points.astype(np.float64)
    variances = np.var(wide, axis=0) + 1e-12
    if gradients:
        return np.diag(np.sqrt(variances)).astype(points.dtype)
    covariance = np.cov(wide.T).reshape(variances.size, variances.size)
    return np.linalg.cholesky(covariance + 1e-9 * np.diag(variances)).astype(points.dtype)

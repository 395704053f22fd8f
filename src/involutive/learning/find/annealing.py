"""Annealing: adaptive tempered SMC carries draws of X to the target.

Particles pass through the distributions `X^(1-β) p^β`, β from 0 to 1. Annealing finds curved and
flat shapes, needs no gradient, and is not drawn into narrow spikes of no mass. Where the draws of X
weigh evenly enough they are resampled by weight instead, which costs nothing.
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
    """Particles, and the log of the density's integral as they saw it (-inf if they stopped)."""

    points: np.ndarray
    log_z: Number


def finite_draws(
    density: BatchedDensity,
    law: BatchedDistribution,
    key: Key[Array, ""],
    count: int,
    settings: SearchSettings,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw `count` points of X at which the density is finite, from `attempts` times as many.

    Returns them with their log weights `log p(x) - log X(x)`.
    """
    kept, heights = list[np.ndarray](), list[np.ndarray]()
    for key_attempt in split(key, settings.attempts):
        points = law.draws(key_attempt, count)
        try:
            weights = density.values(points) - law.values(points)
        except OutOfBudget:
            break
        finite = np.isfinite(weights)
        kept.append(points[finite])
        heights.append(weights[finite])
        if sum(map(len, kept)) >= count:
            break
    if not kept:
        return np.zeros((0, density.dim), density.dtype), np.zeros(0)
    found, weights = np.concatenate(kept), np.concatenate(heights)
    rows = np.resize(np.arange(len(found)), count if len(found) else 0)
    return found[rows], weights[rows]


def finite_points(density: BatchedDensity, points: np.ndarray) -> np.ndarray:
    """The points that are finite and at which the density is."""
    return points[np.isfinite(points).all(axis=1) & np.isfinite(density.values(points))]


def resampled(
    points: np.ndarray, log_weights: np.ndarray, count: int, key: Key[Array, ""], least: Number
) -> Annealed | None:
    """Draws of X picked by weight, if at least `least` of them are effective, else None."""
    if effective(log_weights) < least:
        return None
    weights = relative(log_weights)
    picked = points[generator(key).choice(len(points), count, p=weights / weights.sum())]
    return Annealed(picked, log_mean(log_weights))


class Tempered(NamedTuple):
    """`log X(x) + β (log p(x) - log X(x))` at rows, with gradients where they are asked for."""

    density: BatchedDensity
    law: BatchedDistribution
    beta: Number

    def values(self, points: np.ndarray) -> np.ndarray:
        return self._interpolate(self.law.values(points), self.density.values(points))

    def gradients(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        (prior, prior_gradient), (value, gradient) = (
            self.law.gradients(points),
            self.density.gradients(points),
        )
        return self._interpolate(prior, value), prior_gradient + self.beta * (
            gradient - prior_gradient
        )

    def _interpolate(self, prior: np.ndarray, value: np.ndarray) -> np.ndarray:
        return np.where(np.isfinite(value), prior + self.beta * (value - prior), -np.inf)


def anneal(
    density: BatchedDensity,
    law: BatchedDistribution,
    points: np.ndarray,
    log_weights: np.ndarray,
    key: Key[Array, ""],
    settings: LearnSettings,
    *,
    gradients: bool,
) -> Annealed:
    """Carry draws of X to the target by adaptive tempered SMC.

    Each temperature keeps `settings.anneal_ess` of the particles effective; they are resampled and
    moved there, by HMC with the particles' scales as its metric or by a random walk with their
    covariance. Where the budget ends on the way, the particles stop there.

    Args:
        density: the target.
        law: X.
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
                Tempered(density, law, beta), points, size, rng, settings, gradients
            )
            if beta >= 1.0:
                return Annealed(points, log_z)
            log_weights = density.values(points) - law.values(points)
        except OutOfBudget:
            break
        log_weights = np.where(np.isfinite(log_weights), log_weights, -np.inf)
    return Annealed(points, -np.inf)


def _move_particles(
    tempered: Tempered,
    points: np.ndarray,
    size: Number,
    rng: np.random.Generator,
    settings: LearnSettings,
    gradients: bool,
) -> tuple[np.ndarray, float]:
    """Points after some moves, and the step size adapted to their acceptance."""
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
    """The largest rise of β, at most `most`, with a share `keep` of the particles effective."""
    goal = keep * len(log_weights)
    if effective(most * log_weights) >= goal:
        return most
    low, high = 0.0, most
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective(middle * log_weights) >= goal else (low, middle)
    return max(low, 1e-6)


def _systematic(log_weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Systematic resampling: indices picked by weight with one random number for all of them."""
    weights = relative(log_weights)
    levels, count = np.cumsum(weights / weights.sum()), len(weights)
    return np.minimum(
        np.searchsorted(levels, (np.arange(count) + rng.uniform()) / count), count - 1
    )


def _proposal_factor(points: np.ndarray, gradients: bool) -> np.ndarray:
    """Scales of the particles: of every coordinate, or a factor of their covariance."""
    wide = points.astype(np.float64)
    variances = np.var(wide, axis=0) + 1e-12
    if gradients:
        return np.diag(np.sqrt(variances)).astype(points.dtype)
    covariance = np.cov(wide.T).reshape(variances.size, variances.size)
    return np.linalg.cholesky(covariance + 1e-9 * np.diag(variances)).astype(points.dtype)

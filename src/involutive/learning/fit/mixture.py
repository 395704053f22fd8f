"""Gaussian mixtures on the host: densities, draws, and which components overlap."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np

from involutive._xla.threads import one_thread
from involutive.auxiliary import GaussianMixture
from involutive.core.types import Number
from involutive.learning.fit.responsibilities import form_of, responsibilities

Result = TypeVar("Result")


class Components(NamedTuple):
    """Weights (log), means and covariances of a mixture, on the host."""

    log_weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    def distribution(self) -> GaussianMixture:
        """The mixture as an auxiliary distribution."""
        return GaussianMixture(np.exp(self.log_weights), self.means, self.covariances)

    def log_density(self, points: np.ndarray) -> np.ndarray:
        """The log density at every row."""
        form = form_of(*self)

        def part(rows: slice) -> np.ndarray:
            return responsibilities(form.log_densities(form.terms(points[rows])))[1]

        return np.concatenate(by_blocks(part, len(points), form.rows))

    def draws(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """`count` draws."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        k = rng.choice(len(weights), count, p=weights / weights.sum())
        noise = rng.normal(size=(count, self.means.shape[1]))
        factors = np.linalg.cholesky(self.covariances)
        draws, order = np.empty_like(noise), np.argsort(k, kind="stable")
        ends = np.cumsum(np.bincount(k, minlength=len(weights)))[:-1]
        # one product per component, where one per draw would copy its factor
        for j, rows in enumerate(np.split(order, ends)):
            draws[rows] = self.means[j] + noise[rows] @ factors[j].T
        return draws

    def inflated(self, factor: Number) -> "Components":
        """The mixture with every covariance multiplied by `factor`."""
        return self._replace(covariances=factor * self.covariances)


def components_of(mixture: GaussianMixture) -> Components:
    """An auxiliary mixture as components on the host."""
    logits, means, log_diagonal, lower = (
        np.asarray(part, np.float64)
        for part in (mixture.logits, mixture.means, mixture.log_diagonal, mixture.lower)
    )
    factors = np.tril(lower, -1) + np.eye(means.shape[1]) * np.exp(log_diagonal)[:, :, None]
    inverse = np.linalg.inv(factors)
    top = logits.max()
    log_weights = logits - top - np.log(np.sum(np.exp(logits - top)))
    return Components(log_weights, means, inverse @ np.swapaxes(inverse, 1, 2))


def joined(parts: list[Components], shares: Sequence[float] | np.ndarray) -> Components:
    """The mixture of several mixtures, each with its share."""
    levels = [part.log_weights + np.log(share) for part, share in zip(parts, shares, strict=True)]
    return Components(
        np.concatenate(levels),
        np.concatenate([part.means for part in parts]),
        np.concatenate([part.covariances for part in parts]),
    )


def by_blocks(part: Callable[[slice], Result], count: int, size: int) -> list[Result]:
    """Apply `part` to every block of `size` rows, on all cores."""
    blocks = [slice(low, low + size) for low in range(0, count, size)]
    workers = min(len(blocks), os.cpu_count() or 1)
    if workers < 2:
        return [part(rows) for rows in blocks]
    with one_thread(), ThreadPoolExecutor(workers) as pool:
        return list(pool.map(part, blocks))


def clusters(mixture: Components, apart: Number, light: Number = 0.0) -> np.ndarray:
    """The group of overlapping components, as a number, that each component belongs to.

    Two components overlap if `(μ_i - μ_j)ᵀ Σ⁻¹ (μ_i - μ_j)/8`, the Bhattacharyya distance of equal
    shapes, is below `apart` for the Σ of both: a wide component does not join narrow ones under it.
    The lightest components, with total weight `light`, join the group nearest to them but do not
    link two groups.
    """
    order = np.argsort(-mixture.log_weights, kind="stable")
    means, covariances = mixture.means[order], mixture.covariances[order]
    weights = np.exp(mixture.log_weights[order])
    links = np.cumsum(weights[::-1])[::-1] > light * weights.sum()
    group = np.arange(len(means))
    for i in range(1, len(means)):
        gaps = means[i] - means[:i]
        own = np.linalg.solve(covariances[i], gaps.T).T
        others = np.linalg.solve(covariances[:i], gaps[:, :, None])[:, :, 0]
        far = np.maximum(np.sum(gaps * own, axis=1), np.sum(gaps * others, axis=1)) / 8
        near = np.flatnonzero(far < apart)
        for j in near if links[i] else near[np.argsort(far[near])[:1]]:
            group[group == group[i]] = group[j]
    found = np.empty_like(group)
    found[order] = group
    return np.unique(found, return_inverse=True)[1]


def count_clusters(mixture: Components, apart: Number) -> int:
    """How many groups of overlapping components there are."""
    return int(clusters(mixture, apart).max()) + 1


def merged(mixture: Components, apart: Number, light: Number = 0.0) -> Components:
    """One component per group of overlapping ones, with the group's weight, mean and covariance."""
    group, weights = clusters(mixture, apart, light), np.exp(mixture.log_weights)
    members = (np.arange(group.max() + 1)[:, None] == group[None]) * weights
    size = members.sum(axis=1)
    means = members @ mixture.means / size[:, None]
    own = mixture.covariances + mixture.means[:, :, None] * mixture.means[:, None, :]
    second = np.einsum("gk,kij->gij", members, own) / size[:, None, None]
    covariances = second - means[:, :, None] * means[:, None, :]
    return Components(np.log(size / size.sum()), means, covariances)

"""A Gaussian mixture fitted to points by expectation-maximisation.

EM finds in a second what gradient descent finds in minutes; a learned auxiliary distribution starts
from its result. k-means++ spreads the seeds. A component's covariance is shrunk towards the pooled
one by as many pseudo-points as there are dimensions, so that few points cannot make it singular. EM
runs on the host: a compiled one would be compiled anew for every number of points and components,
which takes longer than a fit.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Key

from involutive.core.keys import generator
from involutive.core.types import Number
from involutive.learning.fit.mixture import Components, by_blocks
from involutive.learning.fit.responsibilities import form_of, responsibilities
from involutive.learning.settings import FitSettings


def fit_components(
    points: np.ndarray | Array,
    count: int,
    key: Key[Array, ""],
    settings: FitSettings,
    weights: np.ndarray | None = None,
    iterations: int | None = None,
    seeding: np.ndarray | None = None,
) -> Components:
    """Fit `count` components to points, weighted by `weights` (equal if None).

    More components start where `seeding` is large. By default EM makes at most
    `settings.em_iterations` iterations.

    A component without points keeps a negligible weight, so that shapes stay the same and nothing
    is compiled twice; `pruned` removes it.
    """
    rows = np.asarray(points, np.float64)
    count = max(1, min(count, len(rows) // (rows.shape[1] + 1)))
    weights = _normalised(weights, len(rows))
    seeds = rows[spread_seeds(rows, weights if seeding is None else seeding, count, key)]
    most = settings.em_iterations if iterations is None else iterations
    start = _first_guess(rows, weights, seeds, settings.em_floor)
    return run_em(start, rows, weights, most, settings)


def _normalised(weights: np.ndarray | None, count: int) -> np.ndarray:
    return np.ones(count) if weights is None else count * weights / weights.sum()


def _first_guess(
    points: np.ndarray, weights: np.ndarray, seeds: np.ndarray, floor: Number
) -> Components:
    count, dim = seeds.shape
    spread = np.cov(points.T, aweights=weights).reshape(dim, dim) / count ** (2 / dim)
    wide = np.tile(spread + floor * np.eye(dim), (count, 1, 1))
    return Components(np.full(count, -np.log(count)), seeds, wide)


def spread_seeds(
    points: np.ndarray, weights: np.ndarray, count: int, key: Key[Array, ""]
) -> np.ndarray:
    """k-means++: each seed is drawn in proportion to its squared distance from the others."""
    rng = generator(key)
    chosen = [int(rng.choice(len(points), p=weights / weights.sum()))]
    distance = np.sum((points - points[chosen[0]]) ** 2, axis=1)
    for _ in range(count - 1):
        levels = np.cumsum(weights * distance)
        pick = chosen[0]
        if levels[-1] > 0:
            pick = int(np.searchsorted(levels, rng.uniform() * levels[-1]))
        chosen.append(min(pick, len(points) - 1))
        distance = np.minimum(distance, np.sum((points - points[chosen[-1]]) ** 2, axis=1))
    return np.asarray(chosen)


def run_em(
    start: Components,
    points: np.ndarray,
    weights: np.ndarray | None,
    iterations: int,
    settings: FitSettings,
    prior: float = 0.0,
) -> Components:
    """Run EM until the mean log-likelihood hardly rises any more.

    Args:
        start: the components to begin with.
        points: `(n, dim)`.
        weights: weights of the points, equal if None.
        iterations: maximum number of iterations.
        settings: when EM stops, and the smallest variance.
        prior: pseudo-points that each component of `start` counts as: a component with few
            effective points hardly changes. At 0 covariances are shrunk towards the pooled one.
    """
    weights = _normalised(weights, len(points))
    kept = weights > 0
    points, weights = points[kept], weights[kept]
    current, before = start, -np.inf
    for _ in range(iterations):
        moments = Moments.of(current, points, weights)
        current = _sound(moments.maximised(start, prior, settings.em_floor), current)
        if not moments.level - before > settings.em_rise * weights.sum():
            break
        before = moments.level
    return current


class Moments(NamedTuple):
    """Sums over points weighted by responsibilities, from which the M-step makes components."""

    size: np.ndarray  # (k,)
    squared: np.ndarray  # (k,), sums of squared responsibilities
    first: np.ndarray  # (k, dim), sums of x
    second: np.ndarray  # (k, dim, dim), sums of x xᵀ
    level: float  # weighted sum of the log density

    @classmethod
    def of(cls, mixture: Components, points: np.ndarray, weights: np.ndarray) -> "Moments":
        """Moments of points under the responsibilities of a mixture."""
        form = form_of(*mixture)

        def part(rows: slice) -> Moments:
            terms, w = form.terms(points[rows]), weights[rows]
            share, total = responsibilities(form.log_densities(terms))
            # in double precision: a small covariance is a difference of large sums
            share = np.multiply(share, w, dtype=np.float64)
            size, first, second = form.moments(share, terms)
            squared = np.einsum("kn,kn->k", share, share)
            return cls(size, squared, first, second, float(w @ total))

        parts = by_blocks(part, len(points), form.rows)
        return cls(*(np.sum(np.stack(column), axis=0) for column in zip(*parts, strict=True)))

    def maximised(self, start: Components, prior: float, floor: Number) -> Components:
        """The components of maximum likelihood, shrunk towards `start` or the pooled covariance."""
        size, dim = self.size + 1e-10, self.first.shape[1]
        held = np.zeros_like(size)
        if prior:  # in units of the weights: `size²/squared` is their effective number of points
            held = prior * np.maximum(self.squared, 1e-20) / size
        whole = (size + held)[:, None]
        means = (self.first + held[:, None] * start.means) / whole
        centre = start.covariances + start.means[:, :, None] * start.means[:, None, :]
        second = self.second + held[:, None, None] * centre
        scatter = second - whole[:, :, None] * means[:, :, None] * means[:, None, :]
        if not prior:
            whole, scatter = whole + dim, scatter + dim * np.sum(scatter, axis=0) / np.sum(size)
        covariances = scatter / whole[:, :, None] + floor * np.eye(dim)
        return Components(np.log(size / np.sum(size)), means, covariances)


def _sound(new: Components, old: Components) -> Components:
    """The new components; the old one where a new one is not finite or not positive definite."""
    finite = np.isfinite(new.log_weights) & np.isfinite(new.covariances).all(axis=(1, 2))
    finite &= np.isfinite(new.means).all(axis=1)
    safe = np.where(finite[:, None, None], new.covariances, old.covariances)
    sound = finite & (np.linalg.eigvalsh(safe)[:, 0] > 0)
    if sound.all():
        return new
    return Components(
        *(
            np.where(sound.reshape(-1, *[1] * (part.ndim - 1)), part, before)
            for part, before in zip(new, old, strict=True)
        )
    )

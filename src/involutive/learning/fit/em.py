"""A Gaussian mixture fitted to points by expectation-maximisation.

EM finds in a second what gradient descent finds in minutes, and is where a learned auxiliary law
starts. Seeds are spread by k-means++; a component's covariance is shrunk towards the pooled one by
as many pseudo-points as there are dimensions, so that few points cannot make it singular. On the
host: every number of points and components would be compiled anew, which takes longer than a fit.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Key

from involutive._xla.threads import one_thread
from involutive.auxiliary import GaussianMixture
from involutive.core.keys import generator
from involutive.learning.fit.responsibilities import form_of, shares

ITERATIONS = 60
RISE = 1e-4  # nats a point; below it the rest is left to tuning
FLOOR = 1e-7  # variance added to every coordinate, in whitened units


class Components(NamedTuple):
    """Weights (log), means and covariances of a mixture, on the host."""

    log_weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    def law(self) -> GaussianMixture:
        """The mixture as an auxiliary law."""
        return GaussianMixture(np.exp(self.log_weights), self.means, self.covariances)

    def log_density(self, points: np.ndarray) -> np.ndarray:
        """The log density at every row."""
        form = form_of(*self)

        def part(rows: slice) -> np.ndarray:
            return shares(form.log_densities(form.terms(points[rows])))[1]

        return np.concatenate(_by_blocks(part, len(points), form.rows))

    def draws(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """`count` draws."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        k = rng.choice(len(weights), count, p=weights / weights.sum())
        noise = rng.normal(size=(count, self.means.shape[1]))
        factors = np.linalg.cholesky(self.covariances)
        draws, order = np.empty_like(noise), np.argsort(k, kind="stable")
        ends = np.cumsum(np.bincount(k, minlength=len(weights)))[:-1]
        # one product a component, where one a draw would copy its factor
        for j, rows in enumerate(np.split(order, ends)):
            draws[rows] = self.means[j] + noise[rows] @ factors[j].T
        return draws

    def inflated(self, factor: float) -> "Components":
        """The same with every covariance multiplied by `factor`."""
        return self._replace(covariances=factor * self.covariances)


def components_of(law: GaussianMixture) -> Components:
    """A mixture law as components on the host."""
    logits, means, log_diagonal, lower = (
        np.asarray(part, np.float64)
        for part in (law.logits, law.means, law.log_diagonal, law.lower)
    )
    factors = np.tril(lower, -1) + np.eye(means.shape[1]) * np.exp(log_diagonal)[:, :, None]
    inverse = np.linalg.inv(factors)
    top = logits.max()
    log_weights = logits - top - np.log(np.sum(np.exp(logits - top)))
    return Components(log_weights, means, inverse @ np.swapaxes(inverse, 1, 2))


def joined(parts: list[Components], shares: Any) -> Components:
    """The mixture of several, each with its share."""
    levels = [part.log_weights + np.log(share) for part, share in zip(parts, shares, strict=True)]
    return Components(
        np.concatenate(levels),
        np.concatenate([part.means for part in parts]),
        np.concatenate([part.covariances for part in parts]),
    )


def fit_mixture(
    points: Any,
    count: int,
    key: Key[Array, ""],
    weights: np.ndarray | None = None,
    iterations: int = ITERATIONS,
    seeding: np.ndarray | None = None,
) -> Components:
    """Fit `count` components to points, weighted by `weights` (equal if None).

    More of them begin where `seeding` is large.

    Components that are left without points keep a negligible weight, so that shapes stay the same
    and nothing is compiled twice; `pruned` removes them.
    """
    rows = np.asarray(points, np.float64)
    count = max(1, min(count, len(rows) // (rows.shape[1] + 1)))
    weights = _normalised(weights, len(rows))
    seeds = rows[_spread_seeds(rows, weights if seeding is None else seeding, count, key)]
    return improved(_first_guess(rows, weights, seeds), rows, weights, iterations)


def _normalised(weights: np.ndarray | None, count: int) -> np.ndarray:
    return np.ones(count) if weights is None else count * weights / weights.sum()


def _first_guess(points: np.ndarray, weights: np.ndarray, seeds: np.ndarray) -> Components:
    count, dim = seeds.shape
    spread = np.cov(points.T, aweights=weights).reshape(dim, dim) / count ** (2 / dim)
    wide = np.tile(spread + FLOOR * np.eye(dim), (count, 1, 1))
    return Components(np.full(count, -np.log(count)), seeds, wide)


def _spread_seeds(
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


def improved(
    start: Components,
    points: np.ndarray,
    weights: np.ndarray | None,
    iterations: int,
    prior: float = 0.0,
) -> Components:
    """Iterate until the mean log-likelihood hardly rises any more.

    Args:
        start: the components to begin with.
        points: `(n, dim)`.
        weights: of the points, equal if None.
        iterations: the most.
        prior: how many points each component of `start` counts as: one with few points, in effect,
            stays nearly as it was. Without it covariances are shrunk towards the pooled one.
    """
    weights = _normalised(weights, len(points))
    kept = weights > 0
    points, weights = points[kept], weights[kept]
    current, before = start, -np.inf
    for _ in range(iterations):
        moments = Moments.of(current, points, weights)
        current = _sound(moments.maximised(start, prior), current)
        if not moments.level - before > RISE * weights.sum():
            break
        before = moments.level
    return current


class Moments(NamedTuple):
    """What the next components are made of: sums over points, each shared out by a mixture."""

    size: np.ndarray  # (k,)
    squared: np.ndarray  # (k,), of squared shares
    first: np.ndarray  # (k, dim), of x
    second: np.ndarray  # (k, dim, dim), of x xᵀ
    level: float  # of the log density

    @classmethod
    def of(cls, mixture: Components, points: np.ndarray, weights: np.ndarray) -> "Moments":
        """Share points out by a mixture."""

        form = form_of(*mixture)

        def part(rows: slice) -> Moments:
            terms, w = form.terms(points[rows]), weights[rows]
            share, total = shares(form.log_densities(terms))
            # in double precision: a small covariance is a difference of large sums
            share = np.multiply(share, w, dtype=np.float64)
            size, first, second = form.moments(share, terms)
            squared = np.einsum("kn,kn->k", share, share)
            return cls(size, squared, first, second, float(w @ total))

        parts = _by_blocks(part, len(points), form.rows)
        sums: Any = (sum(rest, first) for first, *rest in zip(*parts, strict=True))
        return cls(*sums)

    def maximised(self, start: Components, prior: float) -> Components:
        """The components of largest likelihood, held to those of `start` or to the pooled one."""
        size, dim = self.size + 1e-10, self.first.shape[1]
        held = np.zeros_like(size)
        if prior:  # in units of the weights: they count as `size²/squared` equal points
            held = prior * np.maximum(self.squared, 1e-20) / size
        whole = (size + held)[:, None]
        means = (self.first + held[:, None] * start.means) / whole
        centre = start.covariances + start.means[:, :, None] * start.means[:, None, :]
        second = self.second + held[:, None, None] * centre
        scatter = second - whole[:, :, None] * means[:, :, None] * means[:, None, :]
        if not prior:
            whole, scatter = whole + dim, scatter + dim * np.sum(scatter, axis=0) / np.sum(size)
        covariances = scatter / whole[:, :, None] + FLOOR * np.eye(dim)
        return Components(np.log(size / np.sum(size)), means, covariances)


def _by_blocks(part: Callable[[slice], Any], count: int, size: int) -> list[Any]:
    """`part` of every block of so many rows, on all cores."""
    blocks = [slice(low, low + size) for low in range(0, count, size)]
    workers = min(len(blocks), os.cpu_count() or 1)
    if workers < 2:
        return [part(rows) for rows in blocks]
    with one_thread(), ThreadPoolExecutor(workers) as pool:
        return list(pool.map(part, blocks))


def _sound(new: Components, old: Components) -> Components:
    """The new components, but the old ones where a new one is not finite or has no factor."""
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


def clusters(mixture: Components, apart: float = 3.0, light: float = 0.0) -> np.ndarray:
    """The number of the group of overlapping components that each one belongs to.

    Two components overlap if `(μ_i - μ_j)ᵀ Σ⁻¹ (μ_i - μ_j)/8`, the Bhattacharyya distance of equal
    shapes, is below `apart` for the Σ of either: a wide one does not join the narrow ones under it.
    The lightest, which weigh `light` together, join the group nearest to them but link no others.
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


def count_clusters(mixture: Components) -> int:
    """How many groups of overlapping components there are."""
    return int(clusters(mixture).max()) + 1


def merged(mixture: Components, light: float = 0.0) -> Components:
    """One component for every group of overlapping ones, with its weight, mean and covariance."""
    group, weights = clusters(mixture, light=light), np.exp(mixture.log_weights)
    members = (np.arange(group.max() + 1)[:, None] == group[None]) * weights
    size = members.sum(axis=1)
    means = members @ mixture.means / size[:, None]
    own = mixture.covariances + mixture.means[:, :, None] * mixture.means[:, None, :]
    second = np.einsum("gk,kij->gij", members, own) / size[:, None, None]
    covariances = second - means[:, :, None] * means[:, None, :]
    return Components(np.log(size / size.sum()), means, covariances)

"""Adaptive importance sampling: a mixture q fitted to the target by its own weighted draws.

Draw x ~ s, where s is mostly q, partly q with wider components and partly one wide normal over X;
weigh by w = p/s; let EM maximise `Σ w log q`, which brings q to p in KL(p‖q); repeat with more
draws. The points that the search found need the right support only: weights repair the rest. The
wide parts of s see what q leaves out, so that the same weighted draws also judge q: how often a
chain that proposes from q moves, and how long its rarest states hold it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Key

from involutive._xla.batched import Rows
from involutive.core.keys import generator, split
from involutive.learning.find.annealing import relative
from involutive.learning.fit.em import Components, fit_mixture, improved, joined, merged
from involutive.learning.judge.independence import chain_figures

SHARES = (0.85, 0.12, 0.03)  # of s: q, q stretched, the wide normal
WIDE = 0.003  # share of the proposals that cover X
BRIEF = 6  # iterations of EM on one cloud of draws
HELPS = 1.02  # times more effective draws, for more components or draws to be worth it
REACHES = 0.3  # effective draws per draw from which weights are good enough to merge by
NEARLY = 0.93  # of what is good enough, from which draws are lacking and not components
MOST = 12  # clouds after the first ones
SETTLED = 0.8  # effective draws per draw from which only more draws help
WORTH = 1.06  # times more effective draws, for more draws to be worth it
LIGHT = 0.02  # weight of components, in all, that lie between modes and link none of them
LACK = np.log(8.0)  # the most that counts of what a mixture lacks at a point
LAST = 2  # clouds that a mixture is fitted to together
BEYOND = np.log(20.0)  # above the largest weight of a cloud, from which a point is not covered
MISSED = 0.005  # share of the points found that may be so


class Cloud(NamedTuple):
    """Weighted points in whitened coordinates: log p, and the log density they were drawn from."""

    points: np.ndarray
    log_p: np.ndarray
    log_s: np.ndarray

    @classmethod
    def of(cls, clouds: list["Cloud"]) -> "Cloud":
        """Several as one: every weight p/s is of the same scale."""
        return cls(*(np.concatenate(parts) for parts in zip(*clouds, strict=True)))

    @property
    def weights(self) -> np.ndarray:
        """`p/s`, up to a constant, cut off at √n times their mean."""
        weights = relative(self.log_p - self.log_s)
        return np.minimum(weights, np.sqrt(len(weights)) * weights.mean())

    def picked(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Points picked by weight: approximate draws of the target."""
        weights = self.weights
        chances = weights / weights.sum() if weights.any() else None
        return self.points[rng.choice(len(weights), count, p=chances)]


@dataclass(frozen=True)
class Fitted:
    """A mixture with its figures on draws it was not fitted to, and those draws."""

    mixture: Components
    cloud: Cloud
    acceptance: float
    ess: float


@dataclass(frozen=True)
class Space:
    """The density in whitened coordinates `z = L⁻¹(x - m)`, with a normal that covers X there."""

    rows: Rows
    mean: np.ndarray
    factor: np.ndarray
    wide: Components

    @classmethod
    def around(cls, rows: Rows, mean: np.ndarray, factor: np.ndarray, far: np.ndarray) -> "Space":
        """The space with a normal that covers the points `far`, those very far out drawn in."""
        mean, factor = mean.astype(np.float64), factor.astype(np.float64)
        space = cls(rows, mean, factor, normal_components(1, len(mean)))
        return replace(space, wide=normal_around(space.whiten(far)))

    def whiten(self, points: np.ndarray) -> np.ndarray:
        """`z` of every row x."""
        return np.linalg.solve(self.factor, (points - self.mean).T.astype(np.float64)).T

    def colour(self, points: np.ndarray) -> np.ndarray:
        """`x` of every row z."""
        return points @ self.factor.T + self.mean

    def log_p(self, points: np.ndarray) -> np.ndarray:
        """The log density of z at every row; NaN and +inf count as outside."""
        dtype = np.result_type(self.rows.dtype)
        with np.errstate(over="ignore"):
            values = self.rows.values(self.colour(points).astype(dtype)).astype(np.float64)
        return np.where(np.isnan(values) | (values == np.inf), -np.inf, values)

    def covered(self, mixture: Components) -> Components:
        """q with the wide normal, which accepts chains from far out at once."""
        return joined([mixture, self.wide], (1 - WIDE, WIDE))

    def cloud(self, mixture: Components, count: int, rng: np.random.Generator) -> Cloud:
        """Draw from the mixture, the mixture stretched and the wide normal, and weigh."""
        stretch = 1 + 2 / np.sqrt(self.rows.dim)
        law = joined([mixture, mixture.inflated(stretch), self.wide], SHARES)
        points = law.draws(count, rng)
        return Cloud(points, self.log_p(points), law.log_density(points))

    def judged(self, mixture: Components, cloud: Cloud) -> Fitted:
        """The figures of chains that propose from q, by draws of a cloud."""
        log_q = self.covered(mixture).log_density(cloud.points)
        at = cloud.log_p - log_q
        figures = chain_figures(at, cloud.log_p - cloud.log_s, at, log_q - cloud.log_s)
        return Fitted(mixture, cloud, **figures)

    def lacking(self, mixture: Components, points: np.ndarray) -> np.ndarray:
        """By how much q is too small at points, against their median, within bounds."""
        log_w = self.log_p(points) - self.covered(mixture).log_density(points)
        return np.exp(np.clip(log_w - np.median(log_w), -LACK, LACK))

    def missed(self, fitted: Fitted, found: np.ndarray) -> float:
        """Share of the points found where p/q is far larger than anywhere in the cloud."""
        mixture, cloud = self.covered(fitted.mixture), fitted.cloud
        seen = cloud.log_p - mixture.log_density(cloud.points)
        top = np.max(seen[cloud.weights > 0], initial=-np.inf)
        return float(np.mean(self.log_p(found) - mixture.log_density(found) > top + BEYOND))


def refine(
    space: Space,
    found: np.ndarray,
    key: Key[Array, ""],
    *,
    counts: tuple[int, ...],
    draws: int,
    good_enough: float,
    chosen: Callable[[int, float], None] = lambda count, ess: None,
) -> Fitted:
    """Fit mixtures of growing size to the target, from points that were found.

    The first has one component for every group of overlapping ones: few parameters are learned
    from few draws. More are tried while they help, and the best is fitted to more draws.

    Args:
        space: where.
        found: points in whitened coordinates that cover the target.
        key: randomness.
        counts: numbers of components to try.
        draws: a usual number of points; the largest cloud has between half and four times it.
        good_enough: effective draws per draw at which nothing more is added.
        chosen: called with the number of components, and the effective draws per draw hoped for,
            before the last, longest fits, as soon as it is likely, and again where it turns out to
            be another.
    """
    key_draws, *keys = split(key, 1 + len(counts))
    rng, best = generator(key_draws), None

    def offers() -> Iterator[Components]:
        first = fit_mixture(found, counts[0], keys[0], iterations=3 * BRIEF)
        few = merged(first, LIGHT)
        if len(few.means) < len(first.means):
            yield few
        yield first
        for count, key_count in zip(counts[1:], keys[1:], strict=True):
            assert best is not None
            if count == counts[-1]:  # likely the last, and enough
                chosen(count, good_enough)
            seeds = found  # until the weights can be trusted
            if best.ess > REACHES:
                picked = best.cloud.picked(len(found), rng)
                seeds = np.concatenate([picked, found[: len(found) // 4]])
            lacking = space.lacking(best.mixture, seeds)
            yield fit_mixture(seeds, count, key_count, None, 3 * BRIEF, seeding=lacking)

    sizes = (draws // 8, draws // 4, draws // 4)
    for mixture in offers():
        fitted = _repeated(space, mixture, found, sizes, rng)
        helped = best is None or fitted.ess > HELPS * best.ess
        best = fitted if best is None or helped else best
        # a poor one may lack modes, which only many more components show
        if best.ess > NEARLY * good_enough or (not helped and best.ess > REACHES):
            break
    assert best is not None
    if best.ess < REACHES:  # too little to tell which components are needed
        best = _polished(space, best, draws // 2, rng, REACHES)
    few = _simpler(space, best)
    for start in (best,) if few is best else (few, best):
        count, dim = start.mixture.means.shape
        chosen(count, start.ess)
        size = int(np.clip(_affordable(count, dim), draws // 2, 4 * draws))
        best = max(best, _polished(space, start, size, rng, good_enough), key=lambda f: f.ess)
        if best.ess > SETTLED:
            break
    return best


def _affordable(count: int, dim: int) -> float:
    """Points that EM shares out among components in a fraction of a second."""
    return min(1e7 / count, 7e8 / (count * dim**2))


def _simpler(space: Space, fitted: Fitted) -> Fitted:
    """One component for every group of overlapping ones, if that loses little."""
    few = merged(fitted.mixture, LIGHT)
    if len(few.means) == len(fitted.mixture.means):
        return fitted
    simpler = space.judged(few, fitted.cloud)
    return simpler if simpler.ess > fitted.ess / HELPS else fitted


def _repeated(
    space: Space,
    mixture: Components,
    found: np.ndarray,
    sizes: tuple[int, ...],
    rng: np.random.Generator,
) -> Fitted:
    """Fit to clouds of growing size, at first with the points found among them; judge the last."""
    some = found[rng.permutation(len(found))[: sizes[0] // 4]]
    clouds = [Cloud(some, space.log_p(some), mixture.log_density(some))]
    for size in sizes[:-1]:
        clouds.append(space.cloud(mixture, size, rng))
        mixture = _fitted_to(clouds[-2:], mixture)
    return space.judged(mixture, space.cloud(mixture, sizes[-1], rng))


def _fitted_to(clouds: list[Cloud], mixture: Components) -> Components:
    """The mixture after some iterations of EM on clouds; components with few points stay put."""
    joint, dim = Cloud.of(clouds), mixture.means.shape[1]
    weights = joint.weights
    if not weights.any():
        return mixture
    return improved(mixture, joint.points, weights, BRIEF, prior=2.0 * dim)


def _polished(
    space: Space, best: Fitted, size: int, rng: np.random.Generator, good_enough: float
) -> Fitted:
    """Fit to clouds of that size until more draws would help little; judge on fresh ones.

    What is lacking falls as one over the root of the number of draws, once the weights are even.
    """
    clouds, mixture, fell = list[Cloud](), best.mixture, 0
    for _ in range(MOST):
        clouds.append(space.cloud(mixture, size, rng))
        mixture = _fitted_to(clouds[-LAST:], mixture)
        fitted = space.judged(mixture, space.cloud(mixture, size // 4, rng))
        fell = 0 if fitted.ess > HELPS * best.ess else fell + 1
        best = max(best, fitted, key=lambda f: f.ess)
        gain = 1 if len(clouds) < LAST else 0  # twice as many draws, or as many as now
        hoped = 1 - (1 - best.ess) * 0.5 ** (gain / 2)
        settled = best.ess > SETTLED and hoped < WORTH * best.ess
        if best.ess > good_enough or settled or fell == 2:
            break
    return best


def normal_components(count: int, dim: int) -> Components:
    """As many equal standard normals."""
    parts = np.full(count, -np.log(count)), np.zeros((count, dim)), np.eye(dim)
    return Components(parts[0], parts[1], np.tile(parts[2], (count, 1, 1)))


def normal_around(points: np.ndarray) -> Components:
    """One normal with twice the covariance of points, those very far out drawn in."""
    points = np.where(np.isfinite(points), points, 0.0).astype(np.float64)
    centre = np.median(points, axis=0)
    spread = np.median(np.abs(points - centre), axis=0)
    points = centre + np.clip(points - centre, -10 * spread, 10 * spread)
    dim = points.shape[1]
    covariance = 2 * np.cov(points.T).reshape(dim, dim) + 1e-6 * np.eye(dim)
    return Components(np.zeros(1), points.mean(axis=0)[None], covariance[None])

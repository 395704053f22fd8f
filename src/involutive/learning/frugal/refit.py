"""A refit of the mixture to every evaluation so far, by weighted EM.

Uneven weights are tempered: EM fits `s^(1-β) p^β`, with the largest β that leaves enough effective
draws, so that one point of large weight cannot attract every component. Held-out evaluations decide
which number of components is best.
"""

import numpy as np
from jaxtyping import Array, Key

from involutive.bijections.whitening import whitening
from involutive.core.keys import generator, split
from involutive.learning.fit.em import fit_components, run_em
from involutive.learning.fit.mixture import Components, merged
from involutive.learning.fit.weighted import WeightedSample
from involutive.learning.frugal.archive import Archive
from involutive.learning.frugal.state import unwhitened_space
from involutive.learning.settings import LearnSettings
from involutive.learning.weights import effective, relative


def affine_image(mixture: Components, mean: np.ndarray, factor: np.ndarray) -> Components:
    """The distribution of `mean + factor z`, where z has a mixture distribution."""
    means = mean + mixture.means @ factor.T
    return Components(mixture.log_weights, means, factor @ mixture.covariances @ factor.T)


def tempering(log_weights: np.ndarray, goal: float) -> float:
    """The largest β, at most one, with which the weights `w^β` have ESS `goal` or more."""
    finite = log_weights[np.isfinite(log_weights)]
    if effective(finite) >= goal or len(finite) <= goal:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective(middle * finite) >= goal else (low, middle)
    return max(low, 1e-6)


def refit(
    archive: Archive, start: Components | None, wide: Components, key: Key[Array, ""],
    settings: LearnSettings,
) -> tuple[Components, float, float]:  # fmt: skip
    """Fit a mixture to all evaluations, starting from the previous one if there is one.

    Returns:
        The mixture, the tempering β of its weights, and its effective draws per draw on held-out
        evaluations. The previous mixture is returned unchanged if no candidate is better: few draws
        would spoil covariances of Hessians. Without one, a few points leave the wide normal.
    """
    key_pick, key_hold, key_more = split(key, 3)
    dim, frugal = archive.points.shape[1], settings.frugal
    beta = tempering(archive.log_weights, frugal.effective * (dim + 1))
    sample = archive.tempered(beta)
    kept = sample.weights > frugal.negligible * sample.weights.max()
    sample = WeightedSample(*(part[kept] for part in sample))
    count = max(len(sample.points), frugal.whitened)
    g = whitening(sample.picked(count, generator(key_pick)))
    mean, factor = (np.asarray(part.unwrap(), np.float64) for part in (g.mean, g.factor))
    inverse = np.linalg.inv(factor)
    white = sample._replace(points=(sample.points - mean) @ inverse.T)
    space = unwhitened_space(settings, _white(wide, mean, inverse))
    held = generator(key_hold).uniform(size=len(white.points)) < frugal.held
    if np.sum(~held) <= dim + 1:  # nothing can be fitted to so few
        return (wide if start is None else start), beta, 0.0
    seen, unseen = (WeightedSample(*(part[rows] for part in white)) for rows in (~held, held))
    before = None if start is None else _white(start, mean, inverse)
    best, most = None, -1.0
    for mixture in _candidates(before, seen, beta, key_more, settings):
        ess = space.judged(mixture, unseen).ess
        if best is None or ess > frugal.helps * most:
            best, most = mixture, ess
    assert best is not None
    if start is not None and best is before:
        return start, beta, most
    return affine_image(_continue_em(best, white, settings), mean, factor), beta, most


def _white(mixture: Components, mean: np.ndarray, inverse: np.ndarray) -> Components:
    return affine_image(mixture._replace(means=mixture.means - mean), np.zeros(len(mean)), inverse)


def _continue_em(
    mixture: Components, sample: WeightedSample, settings: LearnSettings
) -> Components:
    """The mixture after some iterations of EM; components with few points hardly change."""
    prior = settings.fit.prior_points * mixture.means.shape[1]
    fitted = run_em(mixture, sample.points, sample.weights, settings.em_steps, settings.fit, prior)
    heavy = fitted.log_weights > np.log(settings.fit.em_floor)
    levels = fitted.log_weights[heavy]
    return Components(
        levels - np.log(np.sum(np.exp(levels))), fitted.means[heavy], fitted.covariances[heavy]
    )


def _candidates(
    before: Components | None,
    sample: WeightedSample,
    beta: float,
    key: Key[Array, ""],
    settings: LearnSettings,
) -> list[Components]:
    """Candidates: the previous mixture, after more EM, with components merged, and larger ones."""
    frugal, dim = settings.frugal, sample.points.shape[1]
    found = list[Components]()
    size = 0
    if before is not None:
        same = _continue_em(before, sample, settings)
        few = merged(same, settings.fit.overlap, settings.fit.light)
        if beta == 1.0 and len(few.means) < len(same.means):
            found.append(_continue_em(few, sample, settings))
        found += [before, same]
        size = len(before.means)
    worth = effective(sample.log_p - sample.log_s)
    most = int(min(worth / (frugal.points_per * (dim + 1)), frugal.most_components))
    counts = {int(np.ceil(frugal.more * size)) + 1} if size else set(frugal.first_components)
    for key_count, count in zip(split(key, len(counts)), sorted(counts), strict=True):
        count = min(count, max(most, 1))
        if count <= size:
            continue
        weights = sample.weights
        seeding = weights
        if before is not None:  # more components start where q is too small
            lack = sample.log_p - found[-1].log_density(sample.points)
            lack = lack - np.median(lack[weights > 0])
            seeding = weights * relative(np.clip(lack, -frugal.lack, frugal.lack))
        found.append(fit_components(
            sample.points, count, key_count, settings.fit, weights, None, seeding
        ))  # fmt: skip
    return found

"""Adaptive importance sampling: a mixture q fitted to the target by its own weighted draws.

Draw a weighted sample (`weighted.py`), let EM maximise `Σ w log q`, which minimises KL(p‖q), and
repeat with more draws. The points that the search found only need to cover the support: importance
weights correct their frequencies.
"""

import numpy as np
from jaxtyping import Array, Key

from involutive._xla.batched import OutOfBudget
from involutive.core.keys import generator, split
from involutive.core.types import Number
from involutive.learning.find.second_search import MissedModes
from involutive.learning.fit.em import fit_components, run_em, spread_seeds
from involutive.learning.fit.mixture import Components, joined, merged
from involutive.learning.fit.weighted import FittedMixture, Space, WeightedSample
from involutive.learning.settings import FitSettings, LearnSettings
from involutive.learning.weights import relative


def component_counts(modes: int, points: int, dim: int, settings: LearnSettings) -> tuple[int, ...]:
    """Numbers of components to try: a few per mode found, then as many as EM can afford.

    EM costs `draws · components · (dim+1)(dim+2)/2` operations per iteration.
    """
    if settings.components is not None:
        return settings.components
    fit, terms = settings.fit, (dim + 1) * (dim + 2) / 2
    affordable = settings.em_operations / (settings.fit_draws * terms)
    most = max(points // (dim + 1), 1)
    first = int(np.clip(affordable / fit.first_fewer, *fit.first_components))
    first = min(max(first, fit.per_mode * min(modes, fit.most_modes)), most)
    second = min(int(np.clip(affordable, *fit.second_components)), most)
    return (first, second) if second > first else (first,)


def fit_by_weights(
    space: Space,
    found: np.ndarray,
    key: Key[Array, ""],
    counts: tuple[int, ...],
    settings: LearnSettings,
    first_guess: Components | None = None,
) -> FittedMixture:
    """Fit mixtures of growing size to the target, starting from the points that the search found.

    The first mixture has one component per group of overlapping ones, so that few parameters are
    learned from few draws. Larger mixtures are tried while they help, and the best one is fitted to
    more draws.

    Args:
        space: the whitened density.
        found: points in whitened coordinates that cover the target.
        key: randomness.
        counts: numbers of components to try.
        settings: sizes.
        first_guess: a mixture to try before any other, such as one component per top.

    Raises:
        OutOfBudget: if the budget did not allow a weighted sample of the first mixture.
    """
    key_draws, *keys = split(key, 1 + len(counts))
    rng = generator(key_draws)
    best: FittedMixture | None = None
    guess: FittedMixture | None = None
    try:
        enough = False
        if first_guess is not None:
            # not refitted: in many dimensions few draws would spoil covariances of Hessians
            best = guess = _judge_on_fresh_sample(space, first_guess, rng)
            enough = _nearly_good_enough(best, settings)
        if not enough:
            for mixture in _first_mixtures(found, counts[0], keys[0], settings):
                best, enough = _try_mixture(space, mixture, found, best, rng)
                if enough:
                    break
        for count, key_count in zip(counts[1:], keys[1:], strict=True):
            assert best is not None
            if _nearly_good_enough(best, settings):
                break
            mixture = _larger_mixture(space, best, found, count, key_count, rng)
            best, enough = _try_mixture(space, mixture, found, best, rng)
            if enough:
                break
        assert best is not None
        return _fit_to_more_draws(space, best, guess, rng)
    except OutOfBudget:
        if best is None:
            raise
        return best


def _judge_on_fresh_sample(
    space: Space, mixture: Components, rng: np.random.Generator
) -> FittedMixture:
    size = int(space.settings.fit.judged_share * space.settings.fit_draws)
    return space.judged(mixture, space.sample(mixture, size, rng))


def _first_mixtures(
    found: np.ndarray, count: int, key: Key[Array, ""], settings: LearnSettings
) -> list[Components]:
    """A mixture fitted to the points found; before it the same with overlapping components merged.

    The merged one is left out if no components overlap.
    """
    fit = settings.fit
    first = fit_components(found, count, key, fit, iterations=fit.first_em * settings.em_steps)
    few = merged(first, fit.overlap, fit.light)
    return [few, first] if len(few.means) < len(first.means) else [first]


def _larger_mixture(
    space: Space,
    best: FittedMixture,
    found: np.ndarray,
    count: int,
    key: Key[Array, ""],
    rng: np.random.Generator,
) -> Components:
    """A mixture of `count` components, more of which start where the best mixture is too small."""
    settings = space.settings
    seeds = _seeds(best, found, rng, settings)
    lacking = space.lacking(best.mixture, seeds)
    steps = settings.fit.first_em * settings.em_steps
    return fit_components(seeds, count, key, settings.fit, None, steps, lacking)


def with_components(
    space: Space, fitted: FittedMixture, new: Components, rng: np.random.Generator
) -> FittedMixture:
    """Add components to a mixture, and fit again."""
    settings, fit = space.settings, space.settings.fit
    share = len(new.means) / (len(new.means) + len(fitted.mixture.means))
    mixture = joined([fitted.mixture, new], (1 - share, share))
    judged = _judge_on_fresh_sample(space, mixture, rng)
    size = int(fit.polish_share * settings.fit_draws)
    return _fit_until_gains_end(space, judged, size, rng, settings.good_enough)


def components_of_missed(
    space: Space, fitted: FittedMixture, seen: MissedModes, key: Key[Array, ""]
) -> Components:
    """A component for every mode that climbs found, by its top and Hessian.

    Where nothing climbs, a few of the points that were reached take the place of tops, each with
    the covariance within the mixture's components; the fit that follows gives them their shapes.
    """
    tops, factors, log_masses = seen.climbed.laplace(space.settings.search)
    if len(tops):
        return laplace_mixture(space, tops, factors, log_masses)
    points = space.whiten(seen.points)
    count = min(space.settings.fit.first_components[0], len(points))
    seeds = points[spread_seeds(points, np.ones(len(points)), count, key)]
    shares = np.exp(fitted.mixture.log_weights)
    pooled = np.einsum("k,kij->ij", shares / shares.sum(), fitted.mixture.covariances)
    return Components(np.full(count, -np.log(count)), seeds, np.tile(pooled, (count, 1, 1)))


def laplace_mixture(
    space: Space, tops: np.ndarray, factors: np.ndarray, log_masses: np.ndarray
) -> Components:
    """One component per top, with the inverse Hessian as covariance and its share of the mass."""
    white = np.linalg.solve(space.factor, factors.astype(np.float64))
    weights = np.maximum(relative(log_masses), space.settings.fit.least_share)
    covariances = white @ np.swapaxes(white, 1, 2)
    return Components(np.log(weights / weights.sum()), space.whiten(tops), covariances)


def _nearly_good_enough(best: FittedMixture, settings: LearnSettings) -> bool:
    return best.ess > settings.fit.nearly * settings.good_enough


def _seeds(
    best: FittedMixture, found: np.ndarray, rng: np.random.Generator, settings: LearnSettings
) -> np.ndarray:
    """Points that further components start from: weighted draws, if the weights can be trusted."""
    if best.ess <= settings.trusts_weights:
        return found
    some = found[: int(settings.fit.found_share * len(found))]
    return np.concatenate([best.sample.picked(len(found), rng), some])


def _try_mixture(
    space: Space,
    mixture: Components,
    found: np.ndarray,
    best: FittedMixture | None,
    rng: np.random.Generator,
) -> tuple[FittedMixture, bool]:
    """The better of the best so far and a new mixture, and whether to stop adding components."""
    settings = space.settings
    sizes = tuple(int(share * settings.fit_draws) for share in settings.fit.tried)
    fitted = _fit_to_growing_samples(space, mixture, found, sizes, rng)
    helped = best is None or fitted.ess > settings.fit.helps * best.ess
    best = fitted if best is None or helped else best
    # a poor mixture may lack modes, which only many more components can show
    return best, _nearly_good_enough(best, settings) or (
        not helped and best.ess > settings.trusts_weights
    )


def _fit_to_more_draws(
    space: Space, best: FittedMixture, guess: FittedMixture | None, rng: np.random.Generator
) -> FittedMixture:
    """Fit the best mixture, or a simpler one that loses little, to more draws.

    The first guess is fitted too if it is accepted more often: what little it lacks can make its
    effective draws the fewer.
    """
    settings, fit, draws = space.settings, space.settings.fit, space.settings.fit_draws
    if best.ess > settings.good_enough:  # a refit would spoil covariances of Hessians
        return best
    least, most = (int(share * draws) for share in fit.polish_bounds)
    if best.ess < settings.trusts_weights:  # weights do not tell yet which components are needed
        count, dim = best.mixture.means.shape
        size = int(np.clip(_affordable_points(count, dim, fit), least, most))
        best = _fit_until_gains_end(space, best, size, rng, settings.trusts_weights)
    few = _merge_if_as_good(space, best)
    starts = [best] if few is best else [few, best]
    if guess is not None and guess.acceptance > best.acceptance:
        starts.append(guess)
    for start in starts:
        count, dim = start.mixture.means.shape
        size = int(np.clip(_affordable_points(count, dim, fit), least, most))
        polished = _fit_until_gains_end(space, start, size, rng, settings.good_enough)
        best = max(best, polished, key=lambda f: f.ess)
        if best.ess > fit.settled:
            break
    return best


def _affordable_points(count: int, dim: int, settings: FitSettings) -> float:
    """How many points' responsibilities EM computes in a fraction of a second."""
    by_count, by_size = settings.em_points
    affordable = min(by_count / count, by_size / (count * dim**2))
    # many components have few draws each then: a few times as long is well spent
    return min(max(affordable, settings.component_draws * count), settings.em_longer * affordable)


def _merge_if_as_good(space: Space, fitted: FittedMixture) -> FittedMixture:
    """Merge overlapping components, if that loses few effective draws."""
    fit = space.settings.fit
    few = merged(fitted.mixture, fit.overlap, fit.light)
    if len(few.means) == len(fitted.mixture.means):
        return fitted
    simpler = space.judged(few, fitted.sample)
    return simpler if simpler.ess > fitted.ess / fit.helps else fitted


def _fit_to_growing_samples(
    space: Space,
    mixture: Components,
    found: np.ndarray,
    sizes: tuple[int, ...],
    rng: np.random.Generator,
) -> FittedMixture:
    """Fit to weighted samples of growing size, the first with points found; judge on the last."""
    some = found[rng.permutation(len(found))[: int(space.settings.fit.found_share * sizes[0])]]
    samples = [WeightedSample(some, space.log_p(some), mixture.log_density(some))]
    for size in sizes[:-1]:
        samples.append(space.sample(mixture, size, rng))
        mixture = _em_on_samples(samples[-2:], mixture, space.settings)
    return space.judged(mixture, space.sample(mixture, sizes[-1], rng))


def _em_on_samples(
    samples: list[WeightedSample], mixture: Components, settings: LearnSettings
) -> Components:
    """The mixture after some iterations of EM; components with few points hardly change."""
    joint, dim = WeightedSample.of(samples), mixture.means.shape[1]
    weights = joint.weights
    if not weights.any():
        return mixture
    prior = settings.fit.prior_points * dim
    return run_em(mixture, joint.points, weights, settings.em_steps, settings.fit, prior)


def _fit_until_gains_end(
    space: Space, best: FittedMixture, size: int, rng: np.random.Generator, good_enough: Number
) -> FittedMixture:
    """Fit to weighted samples of that size until more draws would gain little.

    Once the weights are even, 1 - ESS per draw falls as one over the root of the number of draws.
    """
    samples, mixture, fell = list[WeightedSample](), best.mixture, 0
    fit = space.settings.fit
    for _ in range(space.settings.most_batches):
        try:
            samples.append(space.sample(mixture, size, rng))
            mixture = _em_on_samples(samples[-fit.together :], mixture, space.settings)
            fitted = space.judged(mixture, space.sample(mixture, int(fit.judged_share * size), rng))
        except OutOfBudget:
            break
        fell = 0 if fitted.ess > fit.helps * best.ess else fell + 1
        best = max(best, fitted, key=lambda f: f.ess)
        gain = 1 if len(samples) < fit.together else 0  # whether the next fit has twice the draws
        hoped = 1 - (1 - best.ess) * 0.5 ** (gain / 2)
        settled = best.ess > fit.settled and hoped < fit.worth * best.ess
        if best.ess > good_enough or settled or fell == fit.most_falls:
            break
    return best

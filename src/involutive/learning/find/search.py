"""The search for where a density lives, from the density and an initial distribution X alone.

Two starts complement each other: climbs (`climbs.py`) find separate modes in high dimension,
annealing (`annealing.py`) finds curved and flat shapes. Neither has to weigh the modes: importance
weights do that, or the learned kernel, which leaves the target invariant.

Climbs start at several widths, much narrower and much wider than X: in 100 dimensions every climb
from N(0, 3² I) can end in the wider of two modes, although climbs from N(0, I) reach both.
"""

import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.batched import BatchedDensity, BatchedDistribution, OutOfBudget
from involutive._xla.threads import one_thread
from involutive.core.errors import check
from involutive.core.keys import generator, split
from involutive.core.types import ArrayLike, Number
from involutive.learning.budget import SEARCH
from involutive.learning.find.annealing import (
    Annealed,
    anneal,
    finite_draws,
    finite_points,
    resampled,
)
from involutive.learning.find.climbs import Climbed, climb, on_the_way, promising, resolved
from involutive.learning.problem import Problem, Spending
from involutive.learning.settings import LearnSettings
from involutive.learning.stages import Cost, Found

WALK_DIMS = 3  # dimensions in which a random walk spreads as well as HMC, and compiles sooner
PARTIES = 4  # groups of climbers, one after the other, between which time is checked; a guess
BESIDE_NATS = 8.0  # log mass below the total that places on the way into a spike may have; a guess
LIGHTER = 7.0  # nats below the total that a mode's mass may lie and still must be covered; a guess
AROUND = 2.0  # widths of the reached region in which further climbs start; a guess
DISPERSED = 256  # places kept for chains that start elsewhere; a guess
FRUGAL_CLIMB = 150_000  # evaluations below which gradients cost more than they find; a guess


def find_modes(problem: Problem, initial: AbstractDistribution | ArrayLike | None) -> Found:
    """Points that cover the density: climbed from X, annealed from X, and the user's own."""
    with one_thread():
        return _find(problem, problem.spend(SEARCH, Cost()), initial)


def _find(
    problem: Problem, spending: Spending, initial: AbstractDistribution | ArrayLike | None
) -> Found:
    key_start, key_climb, key_anneal, key_beside, key_far = split(problem.keys.find, 5)
    density, settings = spending.density, problem.settings
    law = BatchedDistribution(problem.law, density.block)
    count = int(min(max(settings.search_draws, settings.particles), 0.25 * density.limit))
    draws, log_weights = finite_draws(density, law, key_start, max(count, 1))
    if not len(draws) and density.spent:
        raise OutOfBudget
    check(
        len(draws) > 0,
        f"the log density is not finite at any of {density.evaluations:,} draws of the initial "
        "distribution; pass initial=, a distribution or points inside the support",
    )
    gradients = density.left > FRUGAL_CLIMB and gradients_useful(density, draws)
    hmc = gradients and density.dim > WALK_DIMS
    climbed = Climbed.none(density.dim, draws.dtype)
    if gradients:
        climbed = _climb_widely(density, draws, key_climb, settings, hmc)
    annealed = _carried(density, law, draws, log_weights, key_anneal, settings, gradients, hmc)
    spikes = climbed.log_masses < annealed.log_z - settings.spike_nats
    spikes |= ~resolved(climbed.tops, climbed.scales)
    found = [climbed.points[~spikes], annealed.points]
    if spikes.any():
        found.append(
            _beside(density, climbed.starts[spikes], annealed.log_z, key_beside, settings, hmc)
        )
    if initial is not None and not isinstance(initial, AbstractDistribution):
        found.append(np.asarray(initial, dtype=draws.dtype))
    points = np.concatenate(found)
    points = points[np.isfinite(points).all(axis=1)]
    counts = ~spikes & ~(climbed.log_masses < annealed.log_z - LIGHTER)
    heavy = np.concatenate([climbed.points[counts], annealed.points])
    heavy = heavy[np.isfinite(heavy).all(axis=1)]
    starts = _dispersed(draws, climbed, generator(key_far))
    tops = Climbed(*(part[~spikes] for part in climbed)).laplace()
    complete = not density.spent
    return Found(points, starts, *tops, annealed.log_z, gradients, complete, spending.cost, heavy)


def gradients_useful(density: BatchedDensity, points: np.ndarray) -> bool:
    """Whether the density has finite gradients, not all zero, at most of the given points."""
    try:
        gradients = density.gradients(np.asarray(points)[:64])[1]
    except (TypeError, ValueError, NotImplementedError, OutOfBudget):  # not differentiable
        return False
    finite = np.isfinite(gradients).all(axis=1)
    return bool(finite.mean() > 0.8 and (np.abs(gradients[finite]).sum(axis=1) > 0).mean() > 0.5)


def _carried(
    density: BatchedDensity,
    law: BatchedDistribution,
    draws: np.ndarray,
    log_weights: np.ndarray,
    key: Key[Array, ""],
    settings: LearnSettings,
    gradients: bool,
    hmc: bool,
) -> Annealed:
    """Draws of X resampled or annealed, with the log integral of the density as they saw it."""
    count = min(settings.particles, len(draws))
    if gradients:
        picked = resampled(draws, log_weights, count, key, settings.resample_ess)
        if picked is not None:
            return picked
    elif np.isfinite(density.limit):  # about fifteen temperatures
        count = int(np.clip(density.left / (15 * (1 + settings.anneal_moves)), 16, count))
    return anneal(density, law, draws[:count], log_weights[:count], key, settings, gradients=hmc)


def _climb_widely(
    density: BatchedDensity,
    draws: np.ndarray,
    key: Key[Array, ""],
    settings: LearnSettings,
    hmc: bool,
) -> Climbed:
    """Climb from X at every width and from where a wider search stood highest.

    Where that leads far beyond X, more climb from around what was reached, until it grows no more:
    modes may go on there.
    """
    key_first, *keys = split(key, 1 + len(settings.growth))
    share = max(settings.climbers // (len(settings.widths) + 1), 1)
    parties: list[Climbed] = []
    try:
        starts = [*_starts_at_widths(density, draws, share, settings.widths)]
        starts.append(promising(density, draws, share, settings.screen_steps))
        parties += _in_parties(density, np.concatenate(starts), key_first, settings, hmc)
        width = np.ptp(_extent(draws), axis=0)
        for key_again, grown in zip(keys, settings.growth, strict=True):
            low, high = _extent(np.concatenate([party.points for party in parties[-PARTIES:]]))
            if not np.any(high - low > grown * width):
                break
            key_around, key_more = split(key_again, 2)
            width = np.maximum(high - low, width)
            # uniformly, since what is missing lies at the edge
            places = generator(key_around).uniform(size=(2 * settings.climbers, density.dim)) - 0.5
            around = (0.5 * (low + high) + AROUND * width * places).astype(draws.dtype)
            around = finite_points(density, around)[: settings.climbers // 2]
            if len(around) < PARTIES:  # hardly any place there is inside the support
                break
            parties += _in_parties(density, around, key_more, settings, hmc)
    except OutOfBudget:
        pass  # what was climbed so far is what there is
    if not parties:
        return Climbed.none(density.dim, draws.dtype)
    return Climbed(*map(np.concatenate, zip(*parties, strict=True)))


def _starts_at_widths(
    density: BatchedDensity, draws: np.ndarray, share: int, widths: tuple[Number, ...]
) -> list[np.ndarray]:
    """Draws of X drawn in or stretched about its centre, those with a finite density."""
    centre, tries = draws.mean(axis=0), 4 * share  # so that enough of them are finite
    rows = [draws[i * tries : (i + 1) * tries] for i in range(len(widths))]
    rows = [part if len(part) else draws[:tries] for part in rows]
    return [
        finite_points(density, (centre + width * (part - centre)).astype(draws.dtype))[:share]
        for part, width in zip(rows, widths, strict=True)
    ]


def _in_parties(
    density: BatchedDensity,
    points: np.ndarray,
    key: Key[Array, ""],
    settings: LearnSettings,
    hmc: bool,
) -> list[Climbed]:
    """Climb from points; with a deadline in parties, so that some finish before it."""
    count = PARTIES if np.isfinite(density.deadline) else 1
    parties: list[Climbed] = []
    for i, key_party in enumerate(split(key, count)):
        try:
            rows = points[i::count].astype(density.dtype)
            parties.append(climb(density, rows, key_party, settings, gradients=hmc))
        except OutOfBudget:
            if not parties:
                raise
            break
    return parties


def _beside(
    density: BatchedDensity,
    starts: np.ndarray,
    log_z: Number,
    key: Key[Array, ""],
    settings: LearnSettings,
    hmc: bool,
) -> np.ndarray:
    """Places on the way into spikes of no mass that have mass themselves."""
    try:
        return on_the_way(density, starts, log_z - BESIDE_NATS, key, settings, gradients=hmc)
    except OutOfBudget:
        return starts[:0]


def _dispersed(draws: np.ndarray, climbed: Climbed, rng: np.random.Generator) -> np.ndarray:
    """Places for chains that start elsewhere: draws of X, at its widths, and where climbs began."""
    some = [draws, climbed.starts] if len(climbed.starts) else [draws]
    parts = [part[rng.permutation(len(part))[: DISPERSED // len(some)]] for part in some]
    return rng.permutation(np.concatenate(parts))


def _extent(points: np.ndarray) -> np.ndarray:
    """The 0.2 % and 99.8 % quantiles of every coordinate."""
    points = points[np.isfinite(points).all(axis=1)]
    return np.quantile(points, [0.002, 0.998], axis=0) if len(points) else np.zeros((2, 1))

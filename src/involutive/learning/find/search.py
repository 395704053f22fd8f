"""The search for modes, from the density and an initial distribution X alone.

Two methods complement each other: climbs (`climbs.py`) find separate modes in high dimension,
annealing (`annealing.py`) finds curved and flat shapes. Neither has to get the weights of the modes
right: importance weights do that, or the learned kernel, which leaves the target invariant.

Climbs start at several widths, much narrower and much wider than X: in 100 dimensions every climb
from N(0, 3² I) can end in the wider of two modes, although climbs from N(0, I) reach both.
"""

import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.batched import BatchedDensity, BatchedDistribution, OutOfBudget
from involutive._xla.compilation import on_device
from involutive._xla.threads import one_thread
from involutive.core.errors import InputError, check
from involutive.core.keys import generator, split
from involutive.core.text import in_words
from involutive.core.types import ArrayLike, Number
from involutive.learning.find.annealing import (
    Annealed,
    FiniteDraws,
    anneal,
    finite_draws,
    finite_points,
    resampled,
)
from involutive.learning.find.climbs import (
    Climbed,
    climb,
    highest_after_screening,
    points_along_climbs,
    scales_resolved,
)
from involutive.learning.problem import Problem, Spending
from involutive.learning.settings import LearnSettings, SearchSettings
from involutive.learning.stages import Cost, Found
from involutive.targets.target import Target


def find_modes(problem: Problem, initial: AbstractDistribution | ArrayLike | None) -> Found:
    """Find points that cover the density: by climbs and annealing from X, and the user's own."""
    with one_thread():
        return _find(problem, problem.spend(problem.settings.budget.search, Cost()), initial)


def _find(
    problem: Problem, spending: Spending, initial: AbstractDistribution | ArrayLike | None
) -> Found:
    key_start, key_climb, key_anneal, key_beside, key_far = split(problem.keys.find, 5)
    density, settings, search = spending.density, problem.settings, problem.settings.search
    x = BatchedDistribution(problem.initial, density.block)
    draws, log_weights, log_share = _first_draws(density, x, key_start, settings)
    given = _given_points(density, initial, draws.dtype, search)
    gradients = density.left > search.frugal_climb and gradients_useful(density, draws, search)
    hmc = gradients and density.dim > search.walk_dims
    climbed = Climbed.none(density.dim, draws.dtype)
    if gradients:
        climbed = _climb_widely(density, draws, key_climb, settings, hmc)
    annealed = _resample_or_anneal(
        density, x, draws, log_weights, key_anneal, settings, gradients, hmc
    )
    _check_bounded(problem.target, density)
    annealed = annealed._replace(log_z=annealed.log_z + log_share)
    spikes = climbed.log_masses < annealed.log_z - settings.spike_nats
    spikes |= ~scales_resolved(climbed.tops, climbed.scales, search)
    found = [climbed.points[~spikes], annealed.points]
    if spikes.any():
        found.append(
            _points_near_spikes(
                density, climbed.starts[spikes], annealed.log_z, key_beside, settings, hmc
            )
        )
    found.append(given)
    points = _finite(np.concatenate(found))
    counts = ~spikes & ~(climbed.log_masses < annealed.log_z - search.lighter_nats)
    heavy = _finite(np.concatenate([climbed.points[counts], annealed.points]))
    starts = _dispersed_starts(draws, climbed, generator(key_far), search.dispersed)
    tops = Climbed(*(part[~spikes] for part in climbed)).laplace(search)
    complete = not density.spent
    return Found(points, starts, *tops, annealed.log_z, gradients, complete, spending.cost, heavy)


def _first_draws(
    density: BatchedDensity,
    x: BatchedDistribution,
    key: Key[Array, ""],
    settings: LearnSettings,
) -> FiniteDraws:
    """Draws of X at which the density is finite, and their log importance weights.

    Raises:
        OutOfBudget: if the budget does not allow one draw.
        InputError: if the density is finite at none.
    """
    search = settings.search
    count = max(settings.search_draws, settings.particles)
    count = max(int(min(count, search.first_share * density.limit)), 1)
    found = finite_draws(density, x, key, count, search)
    if not len(found.points) and density.spent:
        raise OutOfBudget
    check(
        len(found.points) > 0,
        f"the log density is not finite at any of {density.evaluations:,} draws of the initial "
        "distribution; pass initial=, a distribution or points inside the support",
    )
    return found


def _check_bounded(target: Target, density: BatchedDensity) -> None:
    """Raise `InputError` if the log density was +inf: no chain could leave such a point."""
    if density.infinite is None:
        return
    values = target.constrain(on_device(density.infinite))
    at = in_words({name: np.asarray(value).tolist() for name, value in values.items()})
    raise InputError(
        f"the log density is +inf at {at}; return -inf where the density is zero, and a finite "
        "value elsewhere"
    )


def gradients_useful(density: BatchedDensity, points: np.ndarray, settings: SearchSettings) -> bool:
    """Whether the density has finite gradients, not all zero, at most of the given points."""
    try:
        gradients = density.gradients(np.asarray(points)[: settings.gradient_points])[1]
    except (TypeError, ValueError, NotImplementedError, OutOfBudget):  # not differentiable
        return False
    finite = np.isfinite(gradients).all(axis=1)
    nonzero = np.abs(gradients[finite]).sum(axis=1) > 0
    return bool(
        finite.mean() > settings.gradient_finite and nonzero.mean() > settings.gradient_nonzero
    )


def _resample_or_anneal(
    density: BatchedDensity,
    x: BatchedDistribution,
    draws: np.ndarray,
    log_weights: np.ndarray,
    key: Key[Array, ""],
    settings: LearnSettings,
    gradients: bool,
    hmc: bool,
) -> Annealed:
    """Resample draws of X by weight or anneal them; they also estimate the density's integral."""
    count = min(settings.particles, len(draws))
    if gradients:
        picked = resampled(draws, log_weights, count, key, settings.resample_ess)
        if picked is not None:
            return picked
    elif np.isfinite(density.limit):
        each = settings.search.usual_temperatures * (1 + settings.anneal_moves)
        count = int(np.clip(density.left / each, settings.search.least_particles, count))
    return anneal(density, x, draws[:count], log_weights[:count], key, settings, gradients=hmc)


def _climb_widely(
    density: BatchedDensity,
    draws: np.ndarray,
    key: Key[Array, ""],
    settings: LearnSettings,
    hmc: bool,
) -> Climbed:
    """Climb from draws of X at every width, and from the highest of many draws after a few steps.

    If the climbs reach far beyond X, further climbs start around the region that they reached, as
    there may be more modes beyond it. This is repeated until the region stops growing.
    """
    key_first, *keys = split(key, 1 + len(settings.growth))
    share = max(settings.climbers // (len(settings.widths) + 1), 1)
    parties, search = list[Climbed](), settings.search
    try:
        starts = [*_starts_at_widths(density, draws, share, settings)]
        starts.append(highest_after_screening(density, draws, share, settings))
        parties += _climb_in_parties(density, np.concatenate(starts), key_first, settings, hmc)
        width = np.ptp(_quantile_box(draws, search.extent), axis=0)
        for key_again, grown in zip(keys, settings.growth, strict=True):
            last = np.concatenate([party.points for party in parties[-search.parties :]])
            low, high = _quantile_box(last, search.extent)
            if not np.any(high - low > grown * width):
                break
            key_around, key_more = split(key_again, 2)
            width = np.maximum(high - low, width)
            around = _starts_around(density, 0.5 * (low + high), width, key_around, settings)
            if len(around) < search.parties:  # hardly any place there is inside the support
                break
            parties += _climb_in_parties(density, around, key_more, settings, hmc)
    except OutOfBudget:
        pass  # keep the climbs that have ended
    if not parties:
        return Climbed.none(density.dim, draws.dtype)
    return Climbed(*map(np.concatenate, zip(*parties, strict=True)))


def _starts_around(
    density: BatchedDensity,
    centre: np.ndarray,
    width: np.ndarray,
    key: Key[Array, ""],
    settings: LearnSettings,
) -> np.ndarray:
    """Places drawn uniformly around a region: modes that are missing lie at its edge."""
    search = settings.search
    shape = (search.around_places * settings.climbers, density.dim)
    places = generator(key).uniform(size=shape) - 0.5
    places = (centre + search.around * width * places).astype(density.dtype)
    return finite_points(density, places)[: int(search.around_climbs * settings.climbers)]


def _starts_at_widths(
    density: BatchedDensity, draws: np.ndarray, share: int, settings: LearnSettings
) -> list[np.ndarray]:
    """Draws of X, shrunk or stretched about their mean to every width, with a finite density."""
    centre, widths = draws.mean(axis=0), settings.widths
    tries = settings.search.start_tries * share  # so that enough of them are finite
    rows = [draws[i * tries : (i + 1) * tries] for i in range(len(widths))]
    rows = [part if len(part) else draws[:tries] for part in rows]
    return [
        finite_points(density, (centre + width * (part - centre)).astype(draws.dtype))[:share]
        for part, width in zip(rows, widths, strict=True)
    ]


def _climb_in_parties(
    density: BatchedDensity,
    points: np.ndarray,
    key: Key[Array, ""],
    settings: LearnSettings,
    hmc: bool,
) -> list[Climbed]:
    """Climb from points; if there is a deadline, in groups, so that some end before it."""
    count = settings.search.parties if np.isfinite(density.deadline) else 1
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


def _points_near_spikes(
    density: BatchedDensity,
    starts: np.ndarray,
    log_z: Number,
    key: Key[Array, ""],
    settings: LearnSettings,
    hmc: bool,
) -> np.ndarray:
    """Places with mass that climbs passed on their way into spikes without mass."""
    try:
        least = log_z - settings.search.beside_nats
        return points_along_climbs(density, starts, least, key, settings, gradients=hmc)
    except OutOfBudget:
        return starts[:0]


def _given_points(
    density: BatchedDensity,
    initial: AbstractDistribution | ArrayLike | None,
    dtype: np.dtype,
    search: SearchSettings,
) -> np.ndarray:
    """The points that the user gave and whose density is finite, as many as are affordable."""
    if initial is None or isinstance(initial, AbstractDistribution):
        return np.zeros((0, density.dim), dtype)
    points = np.asarray(initial, dtype=dtype)
    room = max(int(min(search.given_share * density.left, len(points))), 1)
    points = points[np.linspace(0, len(points) - 1, room).astype(int)]
    try:
        return finite_points(density, points)
    except OutOfBudget:
        return points[:0]


def _dispersed_starts(
    draws: np.ndarray, climbed: Climbed, rng: np.random.Generator, count: int
) -> np.ndarray:
    """Places where chains can start away from the proposal: draws of X and starts of climbs."""
    some = [draws, climbed.starts] if len(climbed.starts) else [draws]
    parts = [part[rng.permutation(len(part))[: count // len(some)]] for part in some]
    return rng.permutation(np.concatenate(parts))


def _finite(points: np.ndarray) -> np.ndarray:
    """The finite rows."""
    return points[np.isfinite(points).all(axis=1)]


def _quantile_box(points: np.ndarray, quantiles: tuple[Number, Number]) -> np.ndarray:
    """Two quantiles of every coordinate."""
    points = _finite(points)
    return np.quantile(points, quantiles, axis=0) if len(points) else np.zeros((2, 1))

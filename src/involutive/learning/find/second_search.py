"""A second search, for what the first one missed.

It starts from other draws: X at every width, the proposal's own draws stretched far out, and the
straight lines between components. What it reaches is compared with the proposal: where p/q is far
larger than anywhere in q's weighted draws, q has missed something.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Key

from involutive._xla.batched import BatchedDistribution, OutOfBudget
from involutive.core.keys import generator, split
from involutive.core.types import Number
from involutive.learning.find.annealing import anneal, finite_draws, finite_points
from involutive.learning.find.climbs import Climbed, climb
from involutive.learning.fit.weighted import FittedMixture, Space
from involutive.learning.problem import Problem, Spending
from involutive.learning.settings import SearchSettings

Places = Callable[[int, np.random.Generator], np.ndarray]


class MissedModes(NamedTuple):
    """What a second search reached and q does not cover.

    Attributes:
        points: points that q misses.
        climbed: the climbs that found them; none without gradients.
        num_reached: how many places were reached in all.
    """

    points: np.ndarray
    climbed: Climbed
    num_reached: int


def second_search(
    problem: Problem,
    spending: Spending,
    places: Places,
    uncovered: Callable[[np.ndarray], np.ndarray],
    log_z: Number,
    gradients: bool,
    key: Key[Array, ""],
) -> MissedModes:
    """Look for what q has missed, from other starts than before.

    Args:
        problem: the density, with sizes.
        spending: what the stage may spend.
        places: `(count, rng)` to starting places around q.
        uncovered: whether q misses each row.
        log_z: of the density, by q's weights: a mode of far less mass is left alone.
        gradients: whether climbs can be made; else annealing takes their place.
        key: randomness.
    """
    key_x, key_starts, key_climb, key_anneal = split(key, 4)
    settings, density, search = problem.settings, spending.density, problem.settings.search
    law = BatchedDistribution(problem.initial, density.block)
    none = Climbed.none(density.dim, np.dtype(density.dtype))
    try:
        count = max(int(settings.particles * settings.second_search), search.again_particles)
        draws, log_weights = finite_draws(density, law, key_x, count, search)
        if not len(draws):
            return MissedModes(none.points, none, 0)
        if not gradients:
            reached = anneal(
                density, law, draws, log_weights, key_anneal, settings, gradients=False
            ).points
            return MissedModes(reached[uncovered(reached)], none, len(reached))
        count = max(int(settings.climbers * settings.second_search), search.again_climbers)
        rng = generator(key_starts)
        near = _x_at_widths(draws, count // 2, settings.widths, rng)
        starts = np.concatenate([near, places(count // 2, rng)])
        starts = finite_points(density, starts.astype(density.dtype))
        hmc = density.dim > search.walk_dims
        climbed = climb(density, starts, key_climb, settings, gradients=hmc)
        missed = uncovered(climbed.points) & (climbed.log_masses > log_z - search.lighter_nats)
    except OutOfBudget:
        return MissedModes(none.points, none, 0)
    new = Climbed(*(part[missed] for part in climbed))
    return MissedModes(new.points, new, len(climbed.points))


def _x_at_widths(
    draws: np.ndarray, count: int, widths: tuple[Number, ...], rng: np.random.Generator
) -> np.ndarray:
    """Draws of X, drawn in or stretched about its centre to every width."""
    share, centre = max(count // len(widths), 2), draws.mean(axis=0)
    rows = [centre + width * (rng.permutation(draws)[:share] - centre) for width in widths]
    return np.concatenate(rows)


def around_mixture(space: Space, fitted: FittedMixture) -> Places:
    """Places around a mixture: its components stretched, and the lines between them."""
    search = space.settings.search
    stretches, beyond = search.again_stretches, search.beyond_ends

    def places(count: int, rng: np.random.Generator) -> np.ndarray:
        share, means = max(count // (len(stretches) + 1), 2), fitted.mixture.means
        stretched = [fitted.mixture.inflated(s**2).draws(share, rng) for s in stretches]
        pairs = rng.integers(len(means), size=(share, 2))
        along = rng.uniform(-beyond, 1 + beyond, size=(share, 1))
        lines = means[pairs[:, 0]] + along * (means[pairs[:, 1]] - means[pairs[:, 0]])
        lines = lines + search.line_spread * rng.normal(size=lines.shape)
        return space.colour(np.concatenate([*stretched, lines]))

    return places


def around_draws(draws: np.ndarray, settings: SearchSettings) -> Places:
    """Places around draws of any proposal: stretched about their centre, and between pairs."""
    stretches, beyond = settings.again_stretches, settings.beyond_ends

    def places(count: int, rng: np.random.Generator) -> np.ndarray:
        share, centre = max(count // (len(stretches) + 1), 2), draws.mean(axis=0)
        rows = [rng.permutation(draws)[:share] for _ in range(len(stretches) + 2)]
        stretched = [centre + s * (part - centre) for s, part in zip(stretches, rows, strict=False)]
        along = rng.uniform(-beyond, 1 + beyond, size=(len(rows[-1]), 1))
        lines = rows[-1] + along * (rows[-2] - rows[-1])
        return np.concatenate([*stretched, lines])

    return places

"""A second search, for modes that the first one missed.

It starts from other places: draws of X at every width, draws of the proposal q stretched far out,
and the straight lines between components. At the points that it reaches p/q is computed: where p/q
is far larger than at any weighted draw of q, q has missed a mode.
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
    """Modes that a second search reached and q does not cover.

    Attributes:
        points: points that q does not cover.
        climbed: the climbs that found them; empty without gradients.
        num_reached: how many points the search reached in all.
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
    """Search for modes that q has missed, from other starting places than the first search.

    Args:
        problem: the density, with sizes.
        spending: what the stage may spend.
        places: draws starting places around q, as `places(count, rng)`.
        uncovered: tells of every row whether q does not cover it.
        log_z: log of the density's integral by q's weights; a mode of far less mass is ignored.
        gradients: whether points can climb; annealing takes the place of climbs if not.
        key: randomness.
    """
    key_x, key_starts, key_climb, key_anneal = split(key, 4)
    settings, density, search = problem.settings, spending.density, problem.settings.search
    x = BatchedDistribution(problem.initial, density.block)
    none = Climbed.none(density.dim, np.dtype(density.dtype))
    try:
        count = max(int(settings.particles * settings.second_search), search.again_particles)
        draws, log_weights, _ = finite_draws(density, x, key_x, count, search)
        if not len(draws):
            return MissedModes(none.points, none, 0)
        if not gradients:
            reached = anneal(
                density, x, draws, log_weights, key_anneal, settings, gradients=False
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
    """Draws of X, shrunk or stretched about their mean to every width."""
    share, centre = max(count // len(widths), 2), draws.mean(axis=0)
    rows = [centre + width * (rng.permutation(draws)[:share] - centre) for width in widths]
    return np.concatenate(rows)


def around_mixture(space: Space, fitted: FittedMixture) -> Places:
    """A sampler of places around a mixture: stretched components, and lines between means."""
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
    """A sampler of places around draws: stretched about their mean, and between pairs of them."""
    stretches, beyond = settings.again_stretches, settings.beyond_ends

    def places(count: int, rng: np.random.Generator) -> np.ndarray:
        share, centre = max(count // (len(stretches) + 1), 2), draws.mean(axis=0)
        rows = [rng.permutation(draws)[:share] for _ in range(len(stretches) + 2)]
        stretched = [centre + s * (part - centre) for s, part in zip(stretches, rows, strict=False)]
        along = rng.uniform(-beyond, 1 + beyond, size=(len(rows[-1]), 1))
        lines = rows[-1] + along * (rows[-2] - rows[-1])
        return np.concatenate([*stretched, lines])

    return places

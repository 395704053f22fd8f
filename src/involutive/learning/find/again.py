"""A second search, for what the first one missed.

It starts from other draws: X at every width, the proposal's own draws stretched far out, and the
straight lines between components. What it reaches is compared with the proposal: where p/q is far
larger than anywhere in q's weighted draws, q has missed something.
"""

import numpy as np
from jaxtyping import Array, Key

from involutive._xla.batched import BatchedDistribution, OutOfBudget
from involutive.core.keys import generator, split
from involutive.core.types import Number
from involutive.learning.find.annealing import anneal, finite_draws, finite_points
from involutive.learning.find.climbs import climb
from involutive.learning.find.search import WALK_DIMS
from involutive.learning.fit.importance import FittedMixture, Space
from involutive.learning.problem import Problem, Spending

STRETCHES = (2.0, 4.0)  # factors on the components' scales that starting places are drawn at
BEYOND_ENDS = 0.5  # share of the distance between two components that lines go on for; a guess


def look_again(
    problem: Problem, spending: Spending, space: Space, fitted: FittedMixture, gradients: bool,
    key: Key[Array, ""],
) -> tuple[np.ndarray, int]:  # fmt: skip
    """Points that a fresh search reaches and q does not cover, and how many it looked at."""
    key_x, key_starts, key_climb, key_anneal = split(key, 4)
    settings, density = problem.settings, spending.density
    law = BatchedDistribution(problem.law, density.block)
    try:
        draws, log_weights = finite_draws(
            density, law, key_x, max(int(settings.particles * settings.second_search), 64)
        )
        if gradients:
            count = max(int(settings.climbers * settings.second_search), 32)
            starts = _starts(draws, space, fitted, count, settings.widths, generator(key_starts))
            starts = finite_points(density, starts.astype(density.dtype))
            hmc = density.dim > WALK_DIMS
            climbed = climb(density, starts, key_climb, settings, gradients=hmc)
            reached = np.concatenate([climbed.points, climbed.tops])
        else:
            reached = anneal(
                density, law, draws, log_weights, key_anneal, settings, gradients=False
            ).points
        if not len(reached):
            return reached, 0
        uncovered = space.uncovered(fitted, space.whiten(reached))
    except OutOfBudget:
        return np.zeros((0, problem.target.dim)), 0
    return reached[uncovered], len(reached)


def _starts(
    draws: np.ndarray,
    space: Space,
    fitted: FittedMixture,
    count: int,
    widths: tuple[Number, ...],
    rng: np.random.Generator,
) -> np.ndarray:
    """Places for the second search: X at every width, q stretched, lines between components."""
    share = max(count // (len(widths) + len(STRETCHES) + 1), 2)
    centre = draws.mean(axis=0)
    near_x = [centre + width * (rng.permutation(draws)[:share] - centre) for width in widths]
    stretched = [fitted.mixture.inflated(s**2).draws(share, rng) for s in STRETCHES]
    means = fitted.mixture.means
    pairs = rng.integers(len(means), size=(share, 2))
    along = rng.uniform(-BEYOND_ENDS, 1 + BEYOND_ENDS, size=(share, 1))
    lines = means[pairs[:, 0]] + along * (means[pairs[:, 1]] - means[pairs[:, 0]])
    lines = lines + 0.1 * rng.normal(size=lines.shape)
    latent = np.concatenate([*stretched, lines])
    return np.concatenate([*near_x, space.colour(latent)])

"""Draws of a structured proposal, with the importance weights by which it is judged."""

import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.batched import BatchedDistribution, OutOfBudget
from involutive.auxiliary.hierarchical import evaluations_within
from involutive.core.types import Number
from involutive.learning.problem import Problem, Spending


def affordable_draws(problem: Problem, spending: Spending, law: AbstractDistribution) -> int:
    """The number of draws that a candidate is judged on.

    Raises:
        OutOfBudget: if the budget allows too few, on which any candidate may look good.
    """
    settings = problem.settings.structure
    # p and q at draws of q, which cost as much as q's values, and at as many points found
    allowed = spending.density.left / (2 + 3 * evaluations_within(law))
    if allowed < settings.least_sample or not spending.allows():
        raise OutOfBudget
    return int(min(settings.sample, allowed))


def uncovered(
    spending: Spending, law: AbstractDistribution, level: Number, points: np.ndarray
) -> np.ndarray:
    """Whether log p/q at each point is above a level."""
    at = spending.density.values(points) - BatchedDistribution(law).values(points)
    spending.note(evaluations_within(law) * len(points))
    return np.nan_to_num(at, nan=-np.inf) > level


def weighted_draws(
    spending: Spending, law: AbstractDistribution, count: int, key: Key[Array, ""]
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of a distribution q, and `log p - log q` there; -inf outside the support."""
    q, density = BatchedDistribution(law), spending.density
    points = q.draws(key, int(min(count, max(density.left, 1))))
    at = density.values(points).astype(np.float64) - q.values(points).astype(np.float64)
    spending.note(2 * evaluations_within(law) * len(points))
    return points, np.where(np.isfinite(at), at, -np.inf)

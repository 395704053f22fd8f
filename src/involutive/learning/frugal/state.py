"""The state of frugal learning between batches, and quantities derived from it."""

from dataclasses import dataclass, field

import jax.random as jr
import numpy as np

from involutive._xla.batched import BatchedDistribution
from involutive.core.types import Number
from involutive.learning.fit.mixture import Components
from involutive.learning.fit.weighted import Space, normal_around
from involutive.learning.frugal.archive import Archive
from involutive.learning.frugal.ascents import Frame
from involutive.learning.problem import Problem
from involutive.learning.settings import LearnSettings
from involutive.learning.stages import Cost, Row
from involutive.learning.weights import relative
from involutive.storage.codec import register


@register
@dataclass(frozen=True)
class Weighed:
    """The state after every batch of frugal learning: weighted evaluations and mixtures.

    Attributes:
        archive: every evaluation so far.
        mixture: the best mixture so far, judged on a batch that it was not fitted to.
        ess: effective draws per draw of chains that propose from it.
        acceptance: acceptance rate of such chains.
        teaching: the mixture that the next refit starts from.
        modes: modes that ascents have found.
        ascents: ascents made.
        batches: number of batches in all.
        idle: evaluations of the last successive batches that cost more than they saved.
        fresh: whether modes joined `teaching` since the last batch, as Laplace components.
        searches: number of later searches.
        new: modes that the last of them found and the mixture did not cover.
        ended: "" while learning continues, else "finished", "budget" or "interrupted".
        cost: evaluations and seconds so far.
        history: one row per batch.
        reached: seconds and effective draws per draw after every batch.
        expensive: whether calls were found to be expensive, so that no pipeline follows.
    """

    archive: Archive
    mixture: Components
    ess: Number
    acceptance: Number
    teaching: Components | None
    modes: int = 0
    ascents: int = 0
    batches: int = 0
    idle: int = 0
    fresh: bool = True
    searches: int = 0
    new: int = 0
    ended: str = ""
    cost: Cost = field(default_factory=Cost)
    history: list[Row] = field(default_factory=list)
    reached: list[Row] = field(default_factory=list)
    expensive: bool = True


def frame_of_x(problem: Problem) -> Frame:
    """The unit of length of every coordinate: median and robust sd of X."""
    count = problem.settings.frugal.frame_draws
    draws = BatchedDistribution(problem.initial).draws(jr.fold_in(problem.keys.find, 0), count)
    low, centre, high = np.quantile(draws.astype(np.float64), [0.16, 0.5, 0.84], axis=0)
    return Frame(centre, np.maximum((high - low) / 2, 1e-30))


def wide_normal(problem: Problem, archive: Archive, units: Frame) -> Components:
    """One normal that covers X and the points of largest weight."""
    dim, count = len(units.centre), problem.settings.fit.far_draws
    rng = np.random.default_rng(0)  # any sample of a normal serves, if it is always the same
    around = units.colour(rng.normal(size=(count, dim)))
    weights = relative(archive.log_weights)
    heavy = archive.points[np.argsort(-weights, kind="stable")[: max(int(archive.effective), 1)]]
    return normal_around(problem.settings.fit, around, heavy[:count])


class NoDensity:
    """A density that is never evaluated: all evaluations were made before."""

    dtype, left = float, 0.0

    def __init__(self, dim: int):
        self.dim = dim

    def values(self, points: np.ndarray) -> np.ndarray:
        raise NotImplementedError


def unwhitened_space(settings: LearnSettings, wide: Components) -> Space:
    """A space that judges mixtures in the coordinates of the density itself."""
    dim = wide.means.shape[1]
    return Space(NoDensity(dim), np.zeros(dim), np.eye(dim), wide, settings)

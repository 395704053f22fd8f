"""Which way a call of `learn` takes: frugal learning, the pipeline, or one after the other.

Frugal learning replaces the pipeline where calls of the density are expensive. It also comes first
where `start=` gives a mixture: to weigh that mixture for the new density takes a few thousand
evaluations. If it does not converge there and calls are cheap, the pipeline follows.
"""

from dataclasses import replace
from typing import NamedTuple

from flowjax.distributions import AbstractDistribution

from involutive.core.types import ArrayLike
from involutive.kernel.kernel import AbstractKernel
from involutive.learning.checkpoint import SavedStages
from involutive.learning.frugal.frugal import learn_frugally, should_be_frugal
from involutive.learning.frugal.state import Weighed
from involutive.learning.outcome import Learned
from involutive.learning.problem import Problem
from involutive.learning.stages import Cost, Fitted, Found
from involutive.learning.warm_start import components_of_kernel
from involutive.sampling.progress import Progress

LastResult = Found | Fitted | Weighed | None  # of the run that is resumed


def try_frugal(
    problem: Problem,
    start: AbstractKernel | None,
    last: LastResult,
    saved: SavedStages,
    bar: Progress,
) -> tuple[Learned | None, bool]:
    """Learn frugally if calls are expensive, if `start` is a mixture, or to resume such a run.

    Returns:
        The kernel, or None where learning is not frugal; and whether `learn` returns that kernel
        as it is.
    """
    if isinstance(last, Found | Fitted):
        return None, False
    # asked once, also of a run that is resumed: it may time calls of the density
    expensive = should_be_frugal(problem) if last is None else last.expensive
    mixture = None if start is None else components_of_kernel(problem, start)
    reweigh = mixture is not None and problem.settings.frugal.on is None
    begins = last is None and not problem.plan.too_small and (expensive or reweigh)
    if not begins and last is None:
        return None, False
    learned = learn_frugally(problem, mixture, last, expensive, saved, bar)
    outcome = learned.outcome
    ends = outcome.converged or outcome.ended != "finished"  # nothing is left for the pipeline
    return learned, ends or start is None or expensive


class Given(NamedTuple):
    """What the pipeline begins from where it has no result yet.

    Attributes:
        x: the initial distribution or starting points that the user gave.
        samples: given draws; they take the place of a search.
        start: a kernel learned for a similar density, whose draws take the place of a search.
        tried: the kernel of frugal learning, if that came before.
    """

    x: AbstractDistribution | ArrayLike | None
    samples: ArrayLike | None
    start: AbstractKernel | None
    tried: Learned | None

    @property
    def spent(self) -> Cost:
        """What frugal learning cost."""
        if self.tried is None:
            return Cost()
        return Cost(self.tried.outcome.evaluations, self.tried.outcome.seconds)


def better_of_both(tried: Learned | None, learned: Learned) -> Learned:
    """The pipeline's kernel, unless it was cut short and frugal learning has weighed one before."""
    if tried is None:
        return learned
    now, then = learned.outcome, tried.outcome
    if now.converged or now.ended == "finished" or now.ess_per_draw > then.ess_per_draw:
        return learned
    # a pipeline that was cut short before its first result has counted nothing
    evaluations = max(now.evaluations, then.evaluations)
    seconds = max(now.seconds, then.seconds)
    return tried.recorded(replace(then, ended=now.ended, evaluations=evaluations, seconds=seconds))

"""Which way a call of `learn` takes: frugal learning, the pipeline, or one after the other.

Frugal learning replaces the pipeline where calls of the density are expensive. It also comes first
where `start=` gives a mixture: to weigh that mixture for the new density takes a few thousand
evaluations. If it does not converge there and calls are cheap, the pipeline follows.
"""

from dataclasses import replace

from involutive.kernel.kernel import AbstractKernel
from involutive.learning.checkpoint import SavedStages
from involutive.learning.frugal.frugal import learn_frugally, should_be_frugal
from involutive.learning.frugal.state import Weighed
from involutive.learning.outcome import Learned
from involutive.learning.problem import Problem
from involutive.learning.stages import Cost, Fitted, Found
from involutive.learning.warm_start import components_of_kernel, from_kernel
from involutive.sampling.progress import Progress

LastResult = Found | Fitted | Weighed | None  # of the run that is resumed, or of given samples


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
    # asked once: it may time calls of the density
    expensive = not isinstance(last, Found | Fitted) and should_be_frugal(problem)
    mixture = None if start is None else components_of_kernel(problem, start)
    reweigh = mixture is not None and problem.settings.frugal.on is None
    resumed = last if isinstance(last, Weighed) else None
    begins = last is None and not problem.plan.too_small and (expensive or reweigh)
    if not begins and resumed is None:
        return None, False
    learned = learn_frugally(problem, mixture, resumed, saved, bar)
    outcome = learned.outcome
    ends = outcome.converged or outcome.ended == "interrupted"
    return learned, ends or start is None or expensive


def pipeline_start(
    problem: Problem, start: AbstractKernel | None, last: LastResult, tried: Learned | None
) -> Found | Fitted | None:
    """The result that the pipeline goes on from; None where it begins with a search for modes.

    Args:
        problem: the density, with sizes.
        start: a kernel learned for a similar density, whose draws take the place of a search.
        last: the result of the run that is resumed, or of given samples.
        tried: what frugal learning reached before; its cost counts.
    """
    if isinstance(last, Found | Fitted):
        return last
    if start is None:
        assert last is None  # a frugal run is resumed by `try_frugal`
        return None
    found, spent = from_kernel(problem, start), Cost()
    if tried is not None:
        spent = Cost(tried.outcome.evaluations, tried.outcome.seconds)
    return replace(found, cost=found.cost + spent)

"""Frugal learning, for densities whose calls are expensive: every evaluation is kept and used.

1. `explore` evaluates X at several widths and ascends from there, until hardly any ascent ends in
   a mode that no other has reached.
2. `next_batch` refits the mixture to all evaluations by deterministic-mixture weights, draws a
   batch from it, and judges it on that batch. It is repeated until batches cost more than they
   save.
3. `later_search` ascends from other places. Modes that the mixture does not cover join it, and
   step 2 is repeated; also after the last search, whose modes are then fitted but not searched for
   once more.
4. `kernel_from_weights` makes the kernel, which the importance weights judge.
"""

import time
from dataclasses import replace

import jax.random as jr
import numpy as np

from involutive._xla.batched import BatchedDistribution, OutOfBudget
from involutive._xla.cost import operations
from involutive._xla.threads import one_thread
from involutive.learning.checkpoint import SavedStages
from involutive.learning.fit.mixture import Components
from involutive.learning.frugal.batches import another_batch_pays, next_batch
from involutive.learning.frugal.compose import kernel_from_weights
from involutive.learning.frugal.explore import explore
from involutive.learning.frugal.later_search import later_search
from involutive.learning.frugal.state import Weighed
from involutive.learning.judge.ended_early import best_so_far
from involutive.learning.outcome import Learned
from involutive.learning.problem import Problem
from involutive.sampling.progress import Progress

STAGES = ("finding modes", "weighing batches", "searching for more")


def should_be_frugal(problem: Problem) -> bool:
    """Whether to learn frugally: by the settings, by a small budget, or by the cost of a call."""
    frugal, plan, target = problem.settings.frugal, problem.plan, problem.target
    if frugal.on is not None:
        return frugal.on
    if target.dim > frugal.most_dim:
        return False
    evaluations = plan.budget.evaluations
    if evaluations is not None and evaluations < frugal.below:
        return True
    if target.black_box is not None:
        return frugal.ordinary * _seconds_per_call(problem) > plan.seconds
    work = operations(target.log_density, target.dim)
    return frugal.ordinary * work > frugal.speed * plan.seconds


def _seconds_per_call(problem: Problem) -> float:
    """Seconds per call of a density on the host: the minimum of a few timings.

    One that takes a good share of the budget decides alone: calls are expensive by far. The first
    one of a pool does not, as it may have to start the workers.
    """
    rows = problem.target.log_density.rows  # type: ignore[attr-defined]
    box, frugal = problem.target.black_box, problem.settings.frugal
    each = frugal.timed_pool if box is not None and box.pool is not None else 1
    key = jr.fold_in(problem.keys.early, 2)
    draws = BatchedDistribution(problem.initial).draws(key, frugal.timed_calls * each)
    found = []
    for points in np.split(draws, frugal.timed_calls):
        began = time.perf_counter()
        rows(points)
        found.append((time.perf_counter() - began) / each)
        long = found[-1] * each > frugal.timed_share * problem.plan.seconds
        if long and (each == 1 or len(found) > 1):
            break
    return min(found)


def learn_frugally(
    problem: Problem,
    given: Components | None,
    last: Weighed | None,
    expensive: bool,
    saved: SavedStages,
    bar: Progress,
) -> Learned:
    """Learn within the budget; on Ctrl-C return a kernel from the newest result.

    Args:
        problem: the density, with sizes.
        given: a proposal to start from, learned for a similar density.
        last: the result of a run that is resumed.
        expensive: whether calls are expensive, which a run that is resumed later goes by.
        saved: saves every result.
        bar: shows progress.
    """

    problem = problem.for_frugal()

    def stage(number: int) -> None:
        bar.stage(STAGES[number - 1], number, len(STAGES))

    weighed = last
    try:
        with one_thread():
            if weighed is None:
                stage(1)
                first = replace(explore(problem, given), expensive=expensive)
                weighed = saved.write(first)
            while not weighed.ended:
                stage(2)
                bar.update(modes=weighed.modes or None)
                while another_batch_pays(problem, weighed):
                    weighed = saved.write(next_batch(problem, weighed))
                    bar.update(ess_per_draw=weighed.ess)
                if not weighed.ended and weighed.searches >= problem.settings.frugal.searches:
                    weighed = replace(weighed, ended="finished")
                elif not weighed.ended:
                    stage(3)
                    weighed = saved.write(later_search(problem, weighed))
    except OutOfBudget:
        return best_so_far(problem, None, "budget")
    except KeyboardInterrupt:
        if weighed is None:
            return best_so_far(problem, None, "interrupted")
        weighed = replace(weighed, ended="interrupted")
    return kernel_from_weights(problem, weighed)

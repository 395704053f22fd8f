"""Modes that the final search found: they join the search's result, and the fit begins again.

The search climbs from X, the final search from where p/q is largest. The second can reach modes
that the first did not: a narrow mode in many dimensions has a small basin, but stands out wherever
q is compared with p. A kernel that misses one is known to be wrong, so learning goes on from the
fit with what was found, while there is time for another pass.
"""

from dataclasses import replace

import jax.random as jr
import numpy as np

from involutive._xla.batched import OutOfBudget
from involutive._xla.threads import one_thread
from involutive.learning.find.climbs import Climbed, climb
from involutive.learning.judge.final_search import FinalSearch
from involutive.learning.outcome import Learned
from involutive.learning.problem import Problem, Spending
from involutive.learning.stages import Cost, Found, Row


def with_missed_modes(
    problem: Problem, found: Found | None, learned: Learned, search: FinalSearch
) -> Found | None:
    """The search's result joined by modes that the final search found.

    Returns:
        The wider result; None if nothing is missed, or if another pass does not fit the budget.
    """
    settings, outcome = problem.settings.look, learned.outcome
    if found is None or not len(search.hills) or search.missed <= settings.largest:
        return None
    if found.passes >= settings.passes or not problem.has_time(outcome.seconds):
        return None
    spent = Cost(outcome.evaluations, outcome.seconds)
    spending = problem.spend(problem.settings.budget.fit, spent)
    try:
        with one_thread():
            new = _climbed(problem, spending, found, search)
    except OutOfBudget:
        return None
    return replace(
        found.joined_by(new.points, new.laplace(problem.settings.search)),
        cost=spending.cost,
        passes=found.passes + 1,
        before=learned,
        given=False,
    )


def _climbed(problem: Problem, spending: Spending, found: Found, search: FinalSearch) -> Climbed:
    """Climbs from the tops of what was found, spread over it; none where nothing climbs."""
    hills = np.resize(search.hills, (problem.settings.look.climbs_back, problem.target.dim))
    hills = hills.astype(found.points.dtype)
    none = Climbed.none(problem.target.dim, hills.dtype)
    if not found.gradients:
        return none._replace(points=hills)
    key = jr.fold_in(problem.keys.early, 3)
    hmc = problem.target.dim > problem.settings.search.walk_dims
    return climb(spending.density, hills, key, problem.settings, gradients=hmc)


def better_pass(found: Found | None, learned: Learned) -> Learned:
    """The kernel of the newest pass, unless it was cut short or misses more than the one before."""
    before = None if found is None else found.before
    if not isinstance(before, Learned):
        return learned
    then, now = before.outcome, learned.outcome
    row: Row = {"stage": f"missed {_missed(before):.0%} of the mass, fitted again"}
    history = [*then.history, row, *now.history]
    if now.ended == "finished" and _missed(learned) <= _missed(before):
        return learned.recorded(replace(now, history=history))
    return before.recorded(
        replace(
            then, history=history, ended=now.ended, evaluations=now.evaluations, seconds=now.seconds
        )
    )


def _missed(learned: Learned) -> float:
    looked = learned.outcome.looked
    return 0.0 if looked is None else float(looked.missed)

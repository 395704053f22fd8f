"""The last stage of learning: compose proposal and local move, and run pilot chains."""

from dataclasses import replace

import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.batched import OutOfBudget
from involutive._xla.compilation import on_device
from involutive.core.keys import split
from involutive.core.types import Number
from involutive.kernel.kernel import AbstractKernel, Kernel
from involutive.learning.find.annealing import finite_points
from involutive.learning.fit.tails import (
    proposal_draws,
    pruned,
    with_best_tails,
    with_wide_component,
)
from involutive.learning.judge.compose import compose, is_mixture, local_chances
from involutive.learning.judge.ended_early import best_so_far
from involutive.learning.judge.merit import best_measured
from involutive.learning.judge.pilot import (
    Pilot,
    evaluations_per_step,
    pilot_metrics,
    run_chains,
)
from involutive.learning.outcome import Learned, Outcome
from involutive.learning.problem import Problem, Spending
from involutive.learning.refine.local import local_move, move_within_modes, tuning_evaluations
from involutive.learning.settings import LearnSettings
from involutive.learning.stages import Cost, Fitted, Proposal
from involutive.sampling.starts import started_elsewhere
from involutive.training.likelihood import proposal_law


def measure(problem: Problem, fitted: Fitted, key: Key[Array, ""]) -> Learned:
    """Compose the fitted proposal with a local move, and run pilot chains from separate starts."""
    key_cover, key_local, key_start, key_pilot = split(key, 4)
    settings, judge = problem.settings, problem.settings.judge
    spending = problem.spend(settings.budget.pilot, fitted.cost)
    plain = is_mixture(fitted.proposal.kernel)
    gradients = fitted.proposal.ess < settings.poor and fitted.found.gradients
    proposal = pruned(fitted.proposal)
    start = proposal_law(proposal.kernel)  # without the wide normal: few chains start far out
    if fitted.rounds == 0 and fitted.suffices and plain:
        local = move_within_modes(proposal.kernel, gradients, settings.refine)
        kernel = with_wide_component(proposal.kernel, key_cover, settings)
        proposal = replace(proposal, kernel=kernel)
    else:
        needed = tuning_evaluations(gradients, settings.refine) + judge.covering * judge.scored
        room = spending.evaluations + needed <= spending.allowance.evaluations
        if not (room and problem.has_time(judge.tuning_seconds)):
            return best_so_far(problem, fitted, "budget")
        spending.note(needed)
        proposal = with_best_tails(proposal, fitted.draws, key_cover, settings)
        local = local_move(
            problem.target, on_device(fitted.draws[-settings.training_draws :]), key_local,
            settings, gradients=gradients, initial=problem.initial,
        )  # fmt: skip
    chances = local_chances(proposal.ess, settings, cheap=not gradients)
    places, elsewhere = pilot_starts(problem, spending, fitted, key_start)
    per_draw = judge.least_pilot * (evaluations_per_step(local) + 1)
    affordable = (spending.allowance.evaluations - spending.evaluations) / per_draw
    # the chains take longer to compile than the local move, which this stage has just timed
    lasts = max(judge.pilot_seconds, judge.pilot_longer * spending.seconds)
    if affordable < judge.least_chains or not problem.has_time(lasts):
        return best_so_far(problem, replace(fitted, cost=spending.cost), "budget")
    count = int(min(len(places), affordable))
    places, elsewhere = places[:count], elsewhere[:count]
    return best_composition(
        problem, spending, fitted, proposal, local, start, chances, places, elsewhere, key_pilot
    )


def pilot_confirms(learned: Learned, promised: Number, settings: LearnSettings) -> bool:
    """Whether pilot chains mix and confirm the ESS per draw that importance weights estimated."""
    outcome, judge = learned.outcome, settings.judge
    hoped = promised
    if promised < settings.poor:  # here the local move has to help
        hoped = judge.alone / judge.hoped
    return outcome.converged and outcome.ess_per_draw > judge.hoped * hoped


def with_pilot_ess(problem: Problem, fitted: Fitted, learned: Learned) -> Fitted:
    """The fit that pilot chains did not confirm, with the ESS per draw that they measured."""
    outcome = learned.outcome
    proposal = replace(fitted.proposal, ess=min(fitted.proposal.ess, outcome.ess_per_draw))
    spent = Cost(outcome.evaluations, outcome.seconds)
    measured = best_measured(problem, fitted, learned)
    return replace(fitted, proposal=proposal, suffices=False, cost=spent, measured=measured)


def pilot_starts(
    problem: Problem, spending: Spending, fitted: Fitted, key: Key[Array, ""]
) -> tuple[np.ndarray, np.ndarray]:
    """Where pilot chains start: three in four from the proposal, one from other places.

    Returns:
        The positions, and which of them are not draws of the proposal.
    """
    count, judge = problem.settings.pilot_chains, problem.settings.judge
    kernel = fitted.proposal.kernel
    tries = judge.mixture_tries if is_mixture(kernel) else judge.place_tries
    near = proposal_draws(kernel, tries * count, key)
    far = fitted.found.starts[: judge.place_tries * count]
    near, far = _finite_part(spending, near), _finite_part(spending, far)
    near = near if len(near) else fitted.draws
    elsewhere = started_elsewhere(np.arange(count)) & (len(far) > 0)
    places = near[np.resize(np.arange(len(near)), count)].copy()
    if len(far):
        places[elsewhere] = far[np.resize(np.arange(len(far)), int(elsewhere.sum()))]
    return places, elsewhere


def _finite_part(spending: Spending, places: np.ndarray) -> np.ndarray:
    """Places of a finite density; none where the budget does not allow to look."""
    try:
        return finite_points(spending.density, places)
    except OutOfBudget:
        return places[:0]


def best_composition(
    problem: Problem,
    spending: Spending,
    fitted: Fitted,
    proposal: Proposal,
    local: Kernel,
    start: AbstractDistribution,
    chances: tuple[Number, ...],
    places: np.ndarray,
    elsewhere: np.ndarray,
    key: Key[Array, ""],
) -> Learned:
    """Try probabilities of a local move in turn; return the most effective kernel."""
    judge = problem.settings.judge
    warmup = int(np.clip(np.ceil(judge.warmup[0] / max(proposal.ess, 1e-3)), *judge.warmup))
    best: Learned | None = None
    for number, chance in enumerate(chances):
        kernel = compose(proposal.kernel, local, chance, fitted.symmetries)
        began, key_run = spending.seconds, jr.fold_in(key, number)
        learned, _ = run_pilot(
            problem, spending, fitted, proposal, kernel, start, warmup, places, elsewhere, key_run
        )
        if best is None or _more_effective(learned, best):
            best = learned
        # if chains get stuck in rare states, their ESS is below the estimate of the proposal
        enough = learned.outcome.ess_per_draw > judge.keeps * proposal.ess
        steps = warmup + problem.settings.pilot_least
        cost = len(places) * steps * evaluations_per_step(kernel)
        if enough or not spending.allows(cost, spending.seconds - began):
            break
    assert best is not None
    return best


def _more_effective(new: Learned, old: Learned) -> bool:
    """Whether a kernel has more ESS per draw; one whose chains agree comes before one whose do not.

    Chains that have not met can each look as if they moved much.
    """
    (now, then) = (learned.outcome for learned in (new, old))
    return (now.converged, now.ess_per_draw) > (then.converged, then.ess_per_draw)


def run_pilot(
    problem: Problem,
    spending: Spending,
    fitted: Fitted,
    proposal: Proposal,
    kernel: AbstractKernel,
    start: AbstractDistribution,
    warmup: int,
    places: np.ndarray,
    elsewhere: np.ndarray,
    key: Key[Array, ""],
) -> tuple[Learned, np.ndarray]:
    """Run pilot chains from `places`.

    Returns:
        The kernel with its outcome, and the draws after warm-up `(n, dim)`.
    """
    settings = problem.settings
    affordable = settings.judge.pilot_evaluations / (len(places) * evaluations_per_step(kernel))
    kept = int(np.clip(affordable, settings.pilot_least, settings.pilot_draws))
    least, most = warmup + settings.pilot_least, warmup + kept
    trace = run_chains(kernel, places, most, key, spending, least)
    skipped = min(warmup, trace.position.shape[1] // 2)
    pilot = pilot_metrics(trace, skipped, elsewhere, settings.judge)
    outcome = _outcome(pilot, fitted, proposal, spending.cost)
    starts = on_device(fitted.found.starts) if len(fitted.found.starts) else None
    draws = trace.position[:, skipped:].reshape(-1, problem.target.dim)
    return Learned(problem.target, start, kernel, warmup, outcome, starts), draws


def _outcome(pilot: Pilot, fitted: Fitted, proposal: Proposal, cost: Cost) -> Outcome:
    looked = replace(fitted.looked, groups=pilot.groups)
    converged = pilot.agree and pilot.enough
    return Outcome(
        acceptance=pilot.acceptance,
        ess_per_draw=pilot.ess_per_draw,
        r_hat=pilot.r_hat,
        rounds=fitted.rounds,
        evaluations=cost.evaluations,
        seconds=cost.seconds,
        converged=converged,
        advice="" if converged else _advice(pilot),
        history=proposal.history,
        reached=fitted.reached,
        modes=fitted.found.modes,
        looked=looked,
    )


def _advice(pilot: Pilot) -> str:
    if not pilot.r_hat <= pilot.allowed:
        return (
            f"chains started apart disagree (R-hat {pilot.r_hat:.2f}); pass initial= that covers "
            "every mode, or a larger budget="
        )
    if not pilot.agree:
        return (
            "chains that start away from the proposal disagree with those that start from it "
            f"(nested R-hat {pilot.groups:.2f}); pass initial= that covers every mode, or a "
            "larger budget="
        )
    return (
        f"only {pilot.ess_per_draw:.3f} effective draws per draw; pass a larger budget=, or "
        "reparametrise the model"
    )

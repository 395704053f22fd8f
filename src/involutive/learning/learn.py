"""`learn`: from a log density to a kernel, as a pipeline of stages.

1. Find modes: `find_modes` climbs and anneals from X to where the density has its mass.
2. Fit: `fit_proposal` fits a mixture to the target by importance weights, and a second search looks
   for modes that the mixture has missed.
3. Judge: `_judge` measures a mixture that suffices on pilot chains. Where it does not suffice,
   `try_structures` tries products, hierarchies, symmetries and heavy tails. Learning ends here if
   pilot chains confirm the proposal.
4. Refine: where the proposal reaches little, `replicas_before_rounds` measures a ladder of replicas
   between it and the target, and learning ends here if that mixes well. In every `next_round`,
   chains repair the weights of the modes, and their draws train the next proposal, with couplings
   where a mixture is not enough. `polish` trains once at full length.
5. Compose and measure: `measure` composes the proposal with a local move and runs pilot chains
   from separate starts. If they do not mix, `try_replicas` tries a ladder from the better proposal.
   `final_search` looks for mass that proposal and chains have missed; modes
   that it finds go back to the fit (`_passes`).

Every stage is a function from one frozen result to the next (`stages.py`); a checkpoint holds the
newest one. Everything learned is fixed before the first draw is kept.

Where calls of the density are expensive, `frugal/` replaces the pipeline (`route.py`): it keeps
every evaluation, and importance weights judge the proposal in place of pilot chains.
"""

from dataclasses import replace
from typing import Literal

import jax.random as jr
from flowjax.distributions import AbstractDistribution
from jax.sharding import Mesh

from involutive._xla.batched import OutOfBudget
from involutive.core.keys import KeyLike
from involutive.core.statistics import arviz
from involutive.core.types import ArrayLike, Number
from involutive.core.views import view
from involutive.kernel.kernel import AbstractKernel
from involutive.learning.arguments import check_arguments, problem_of
from involutive.learning.budget import Budget
from involutive.learning.checkpoint import SavedStages
from involutive.learning.find.search import find_modes
from involutive.learning.fit.fit import fit_proposal, train_on_points
from involutive.learning.fit.structure import try_structures
from involutive.learning.judge.ended_early import best_so_far
from involutive.learning.judge.final_search import final_search
from involutive.learning.judge.measure import measure, pilot_confirms, with_pilot_ess
from involutive.learning.judge.merit import best_measured
from involutive.learning.outcome import Learned
from involutive.learning.problem import Problem
from involutive.learning.refine.missed_modes import better_pass, with_missed_modes
from involutive.learning.refine.replicas import (
    replicas_before_rounds,
    sufficient,
    try_replicas,
)
from involutive.learning.refine.rounds import (
    another_round_allowed,
    next_round,
    polish,
    train_on_draws,
)
from involutive.learning.route import Given, better_of_both, try_frugal
from involutive.learning.run import Run
from involutive.learning.settings import LearnSettings
from involutive.learning.stages import Fitted, Found
from involutive.learning.warm_start import from_kernel, from_samples
from involutive.sampling.draws import Draws
from involutive.sampling.progress import Progress
from involutive.storage.format import PathLike
from involutive.targets.target import Target


def learn(
    target: Target,
    *,
    key: KeyLike,
    samples: ArrayLike | None = None,
    initial: AbstractDistribution | AbstractKernel | Draws | ArrayLike | None = None,
    start: AbstractKernel | None = None,
    budget: Budget | Number | None = None,
    settings: LearnSettings | None = None,
    strategy: Literal["pipeline", "bootstrap"] = "pipeline",
    checkpoint: PathLike | None = None,
    resume: bool = False,
    progress: bool | None = None,
    mesh: Mesh | None = None,
    live: bool = False,
) -> Learned:
    """Learn a kernel for `target`, from the density alone or from draws.

    Args:
        target: the density.
        key: an int seed or a JAX key; learning is deterministic given it, unless a budget in
            seconds cuts it short.
        samples: (approximate) posterior draws `(n, dim)`; the search for modes is skipped then.
        initial: the distribution X to start from, starting points `(n, dim)`, draws, or a learned
            kernel whose proposal is X; by default the target's prior, or N(0, 3² I) without one.
        start: a kernel learned for a similar density (other data, another prior). Importance
            weights adapt its proposal to this density instead of a search from X, which takes a
            few thousand evaluations where the two densities overlap.
        budget: seconds, or `Budget(seconds=..., evaluations=...)`; about five minutes by default.
        settings: sizes and thresholds of every stage.
        strategy: "pipeline", or "bootstrap": the paper's network and adversarial objective, trained
            on the chain's own draws; it finds no mode that its chains miss.
        checkpoint: a file in which every stage's result is saved.
        resume: continue from `checkpoint`, to the same kernel as without the interruption; if there
            is no such file, learning begins anew.
        progress: show progress; by default on a terminal.
        mesh: devices to spread chains and training batches over. With several processes each
            learns the same kernel on its own devices; nothing is sent between them.
        live: in a notebook, show the points found, the proposal and the weights of the modes after
            every stage. It evaluates nothing and changes no result.

    Returns:
        A kernel for `sample`. Its `outcome` says how well it mixes, and what to try if that is not
        enough. Ctrl-C returns the best kernel so far, with `outcome.ended == "interrupted"`. The
        kernel leaves the target invariant in every case.

    Raises:
        InputError: if an argument does not fit, or the density depends on more than the position.

    Example:
        >>> import involutive as inv
        >>> kernel = inv.learn(inv.targets.mog2_1d(), key=0, progress=False)
        >>> draws = inv.sample(kernel, key=1, num_chains=8, num_samples=50, progress=False)
        >>> draws.positions.shape
        (8, 50, 1)
    """
    check_arguments(target, strategy, samples, checkpoint, resume, settings)
    problem, x = problem_of(target, initial, settings, budget, key, progress, mesh)
    if strategy == "bootstrap":
        from involutive.learning.bootstrap import learn_by_bootstrap

        return learn_by_bootstrap(problem)
    saved = SavedStages(checkpoint, problem, view("live")(target) if live else None)
    with Progress("learning", None, progress, most=problem.plan.seconds) as bar:
        last = saved.read() if resume else None
        tried, suffices = None, False
        if samples is None:
            tried, suffices = try_frugal(problem, start, last, saved, bar)
        if tried is not None and suffices:
            return tried
        first = last if isinstance(last, Found | Fitted) else None
        given = Given(x, samples, start, tried)
        if problem.has_time(problem.settings.judge.import_seconds):
            arviz()  # now, so that deadlines of later stages know what its import took
        return better_of_both(tried, _passes(Run(problem, saved, bar, first), given))


def _passes(run: Run, given: Given) -> Learned:
    """Run the pipeline; modes that its final search finds missing go back to the fit."""
    while True:
        passed = run.for_pass()
        learned, search = final_search(passed.problem, _pipeline(passed, given))
        learned = better_pass(passed.found, learned)
        try:
            wider = with_missed_modes(passed.problem, passed.found, learned, search)
        except KeyboardInterrupt:
            return learned.recorded(replace(learned.outcome, ended="interrupted"))
        if wider is None:
            return learned
        run.keep(wider)


def _first(problem: Problem, given: Given) -> Found:
    """The first result: of given draws, of a kernel learned before, or of a search for modes."""
    if given.samples is not None:
        return from_samples(problem, given.samples)
    if given.start is not None:
        return from_kernel(problem, given.start, given.spent)
    return find_modes(problem, given.x)


def _pipeline(run: Run, given: Given) -> Learned:
    """Run the stages that are left after `run.last`; if cut short, return the best kernel so far.

    Args:
        run: the run, with the newest result.
        given: what learning begins from where there is no result yet.
    """
    problem, last = run.problem, run.last
    try:
        if last is None:
            if problem.plan.too_small and given.samples is None:
                return best_so_far(problem, None, "budget")
            run.begin(1)
            last = run.keep(_first(problem, given))
        if isinstance(last, Found):
            run.begin(2)
            run.bar.update(modes=last.modes or None)  # 0 where nothing climbed
            fit = train_on_draws if last.given else fit_proposal
            last = fit(problem, last)
            if isinstance(last, Found):
                return best_so_far(problem, last, "budget")
            run.keep(last)
        judged, learned, confirmed = _judge(run, last)
        if learned is not None and confirmed:
            return learned
        return _refine(run, judged, learned)
    except OutOfBudget:  # before the search had one draw of X
        return best_so_far(problem, run.last, "budget")
    except KeyboardInterrupt:
        return best_so_far(problem, run.last, "interrupted")


def _judge(run: Run, fitted: Fitted) -> tuple[Fitted, Learned | None, bool]:
    """Measure a proposal that suffices on pilot chains; if they refute it, try structures.

    Returns:
        The fit, the kernel if its last proposal was measured, and whether pilot chains confirm it.
    """
    problem = run.problem
    learned: Learned | None = None
    # a run that is resumed after a ladder was measured has been here
    while fitted.rounds == 0 and not fitted.polished and fitted.ladder_ess is None:
        run.bar.update(ess_per_draw=fitted.proposal.ess)
        if _worth_measuring(fitted, problem):
            run.begin(4)
            keys = problem.keys
            key = keys.judge_structure if fitted.structured else keys.judge
            learned = measure(problem, fitted, key)
            if pilot_confirms(learned, fitted.proposal.ess, problem.settings):
                return fitted, learned, True
            promised = fitted.proposal.ess
            fitted = run.remember(with_pilot_ess(problem, fitted, learned))
            if fitted.structured and promised >= problem.settings.poor > fitted.proposal.ess:
                # a proposal that is poor is composed with other local moves
                learned = measure(problem, fitted, jr.fold_in(problem.keys.early, 5))
                fitted = run.remember(with_pilot_ess(problem, fitted, learned))
        if fitted.structured:
            break
        run.begin(2)
        fitted = run.keep(train_on_points(problem, try_structures(problem, fitted)))
        learned = None
    return fitted, learned, False


def _worth_measuring(fitted: Fitted, problem: Problem) -> bool:
    """Whether pilot chains are to judge a fit before anything else is tried."""
    if fitted.structured:
        return fitted.suffices or fitted.symmetries is not None
    covers = fitted.missed <= problem.settings.missed
    return fitted.suffices or (covers and fitted.proposal.ess >= problem.settings.poor)


def _refine(run: Run, judged: Fitted, learned: Learned | None) -> Learned:
    """Try replicas and rounds; return the best of the kernels that were measured.

    Args:
        run: the run.
        judged: a fit that does not suffice.
        learned: the kernel of its proposal, if that was measured.
    """
    problem = run.problem
    run.begin(3)
    judged = run.keep(replicas_before_rounds(problem, judged))
    enough = sufficient(problem, judged)
    if enough is not None:
        return enough
    refined = _rounds(run, judged)
    run.begin(4)
    if learned is None or refined is not judged:
        learned = measure(problem, refined, problem.keys.finish)
    return try_replicas(problem, refined, best_measured(problem, refined, learned))


def _rounds(run: Run, fitted: Fitted) -> Fitted:
    """Make rounds of chains and training while the budget allows, then train at full length."""
    seconds = 0.0  # that the last round took
    while another_round_allowed(run.problem, fitted, seconds):
        before = fitted.cost.seconds
        fitted = run.keep(next_round(run.problem, fitted))
        seconds = fitted.cost.seconds - before
        run.bar.update(ess_per_draw=fitted.proposal.ess)
    return run.keep(polish(run.problem, fitted))

"""`learn`: from a log density to a kernel, as a pipeline of stages.

1. `find_modes` looks for where the density lives: climbs and annealing from X.
2. `fit_proposal` fits a mixture to the target by importance weights, and searches once more for
   what it has missed; `try_structures` tries products, symmetries and heavy tails where that is
   not enough. Where one of them suffices, chains judge it and learning ends.
3. `next_round`, repeated: chains repair the weights of the modes, and their draws train the next
   proposal; couplings join where a mixture is not enough. `polish` trains once at full length.
4. `measure` composes proposal and local move, and measures the kernel on chains started apart;
   where it does not mix, `try_replicas` puts a ladder of replicas between proposal and target.
   `looked_at` looks once more for what proposal and chains have missed.

Every stage is a function from one frozen result to the next (`stages.py`); a checkpoint holds the
last one. Everything learned is fixed before the first draw is kept.

Where calls of the density are dear, `frugal/` takes the place of all of this: every evaluation is
kept and weighed, and the weights judge the proposal instead of a pilot.
"""

import time
from dataclasses import replace

import jax.random as jr
from flowjax.distributions import AbstractDistribution
from jax.sharding import Mesh

from involutive._xla.batched import OutOfBudget
from involutive._xla.compilation import make_room
from involutive.core.errors import check
from involutive.core.keys import KeyLike, as_key
from involutive.core.types import ArrayLike, Number
from involutive.core.views import view
from involutive.kernel.kernel import AbstractKernel
from involutive.learning.budget import Budget, as_budget
from involutive.learning.checkpoint import SavedStages
from involutive.learning.find.search import find_modes
from involutive.learning.fit.fit import fit_proposal, train_on_points
from involutive.learning.fit.structure import try_structures
from involutive.learning.frugal.frugal import chosen, learn_frugally
from involutive.learning.frugal.weighed import Weighed
from involutive.learning.given import as_initial, components_of_kernel, from_kernel, from_samples
from involutive.learning.judge.compose import (
    best_so_far,
    better_measured,
    borne_out,
    doubted,
    measure,
)
from involutive.learning.judge.looks import looked_at
from involutive.learning.outcome import Learned
from involutive.learning.problem import Problem, initial_distribution, pose
from involutive.learning.refine.replicas import try_replicas
from involutive.learning.refine.rounds import more_rounds, next_round, polish
from involutive.learning.settings import LearnSettings
from involutive.learning.stages import Cost, Fitted, Found
from involutive.sampling.devices import devices_here
from involutive.sampling.draws import Draws
from involutive.sampling.progress import Progress
from involutive.storage.format import PathLike
from involutive.targets.fingerprint import check_density
from involutive.targets.target import Target

STRATEGIES = ("pipeline", "bootstrap")
STAGES = ("finding modes", "fitting a proposal", "refining by rounds", "measuring the kernel")


def learn(
    target: Target,
    *,
    key: KeyLike,
    samples: ArrayLike | None = None,
    initial: AbstractDistribution | AbstractKernel | Draws | ArrayLike | None = None,
    start: AbstractKernel | None = None,
    budget: Budget | Number | None = None,
    settings: LearnSettings | None = None,
    strategy: str = "pipeline",
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
        start: a kernel learned for a similar density (other data, another prior): its proposal is
            weighed again for this one instead of a search from X, a few thousand evaluations where
            the two overlap.
        budget: seconds, or `Budget(seconds=..., evaluations=...)`; about five minutes by default.
        settings: sizes and thresholds of every stage.
        strategy: "pipeline", or "bootstrap": the paper's network and adversarial objective, trained
            on the chain's own draws; it finds no mode that its chains miss.
        checkpoint: a file in which every stage's result is saved.
        resume: go on from `checkpoint`, to the same kernel as without the interruption, or begin
            if there is none.
        progress: show progress; by default on a terminal.
        mesh: devices to spread chains and training batches over. With several processes each
            learns the same kernel on its own devices; nothing is sent between them.
        live: in a notebook, show the points found, the proposal and the weights of the modes after
            every stage. It evaluates nothing and changes no result.

    Returns:
        A kernel for `sample`, with `outcome`: what was reached, and what to try if that is not
        enough. Ctrl-C returns the best kernel so far, with `outcome.ended == "interrupted"`. The
        kernel leaves the target invariant in every case.

    Raises:
        InputError: if an argument does not fit, or the density is no function of the position.

    Example:
        >>> import involutive as inv
        >>> kernel = inv.learn(inv.targets.mog2_1d(), key=0, progress=False)
        >>> draws = inv.sample(kernel, key=1, num_chains=8, num_samples=50, progress=False)
        >>> draws.positions.shape
        (8, 50, 1)
    """
    _check_arguments(target, strategy, samples, checkpoint)
    began = time.perf_counter()
    make_room()
    root, settings = as_key(key), settings or LearnSettings()
    given_initial = as_initial(initial, settings.search)
    law = initial_distribution(given_initial, target, settings.initial_sd, settings.search)
    check_density(target)
    problem = pose(
        target, law, settings, as_budget(budget), root, progress, devices_here(mesh), began
    )
    given = None if samples is None else from_samples(problem, samples)
    if strategy == "bootstrap":
        from involutive.learning.bootstrap import learn_by_bootstrap

        return learn_by_bootstrap(problem)
    shown = view("live")(target) if live else None
    saved = SavedStages(checkpoint, problem, shown)
    with Progress("learning", None, progress, most=problem.plan.seconds) as bar:
        last, spent = given or (saved.read() if resume else None), Cost()
        # asked once: it may time calls of the density
        dear = not isinstance(last, Found | Fitted) and chosen(problem)
        mixture = None if start is None else components_of_kernel(problem, start)
        again = mixture is not None and settings.frugal.on is None  # weigh what was learned before
        weighed = last if isinstance(last, Weighed) else None
        begins = last is None and not problem.plan.too_small and (dear or again)
        if begins or weighed is not None:
            learned = learn_frugally(problem, mixture, weighed, saved, bar)
            if learned.outcome.converged or start is None or dear:
                return learned
            spent = Cost(learned.outcome.evaluations, learned.outcome.seconds)
        if start is not None and not isinstance(last, Found | Fitted):
            last = from_kernel(problem, start)
            last = replace(last, cost=last.cost + spent)
        learned = _pipeline(problem, given_initial, last, saved, bar)
        return looked_at(problem, learned)


def _pipeline(
    problem: Problem,
    initial: AbstractDistribution | ArrayLike | None,
    last: Found | Fitted | Weighed | None,
    saved: SavedStages,
    bar: Progress,
) -> Learned:
    """Run the stages that are left after the result `last`; keep what there is on Ctrl-C."""

    def stage(number: int) -> None:
        bar.stage(STAGES[number - 1], number, len(STAGES))

    assert not isinstance(last, Weighed)
    try:
        if last is None and problem.plan.too_small:
            return best_so_far(problem, None, "budget")
        if last is None:
            stage(1)
            last = saved.write(find_modes(problem, initial))
        if isinstance(last, Found):
            stage(2)
            bar.update(modes=last.modes or None)  # 0 where nothing climbed
            fitted = fit_proposal(problem, last)
            if fitted is None:
                return best_so_far(problem, last, "budget")
            last = saved.write(fitted)
        learned: Learned | None = None
        while last.rounds == 0:
            bar.update(ess_per_draw=last.proposal.ess)
            if last.settled or (last.structured and last.symmetries is not None):
                stage(4)
                learned = measure(problem, last, jr.clone(problem.keys.judge))
                if borne_out(learned, last.proposal.ess, problem.settings):
                    return learned
                last = doubted(last, learned)
            if last.structured:
                break
            stage(2)
            last, learned = train_on_points(problem, try_structures(problem, last)), None
            saved.write(last)
        stage(3)
        judged, seconds = last, 0.0
        while more_rounds(problem, last, seconds):
            before = last.cost.seconds
            last = saved.write(next_round(problem, last))
            seconds = last.cost.seconds - before
            bar.update(ess_per_draw=last.proposal.ess)
        last = saved.write(polish(problem, last))
        stage(4)
        if learned is None or last is not judged:
            learned = measure(problem, last, problem.keys.finish)
        return try_replicas(problem, last, better_measured(last.measured, learned))
    except OutOfBudget:  # before the search had one draw of X
        return best_so_far(problem, last, "budget")
    except KeyboardInterrupt:
        return best_so_far(problem, last, "interrupted")


def _check_arguments(
    target: Target, strategy: str, samples: ArrayLike | None, checkpoint: PathLike | None
) -> None:
    check(
        isinstance(target, Target),
        f"target must be a Target, got {type(target).__name__}; "
        "wrap a log density as inv.Target(log_density, dim=...)",
    )
    check(
        strategy in STRATEGIES,
        f"strategy must be one of {', '.join(STRATEGIES)}, got {strategy!r}",
    )
    check(
        strategy == "pipeline" or (samples is None and checkpoint is None),
        "strategy='bootstrap' learns from its own draws and keeps no checkpoint; "
        "leave samples= and checkpoint= out",
    )

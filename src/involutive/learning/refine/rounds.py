"""The stages of learning: find, train, let chains repair the weights, compose, measure."""

import os
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.batched import LawRows, Rows
from involutive._xla.compilation import on_device
from involutive._xla.threads import one_thread
from involutive.bijections.whitening import whitening
from involutive.core.keys import generator, split
from involutive.involutions.blocks import FunctionBlock
from involutive.kernel.composite import Mixture
from involutive.kernel.kernel import AbstractKernel, Kernel
from involutive.learning.ahead import CHAINS, TRAINING, Ahead, chains_ahead, training_ahead
from involutive.learning.budget import TRAINED, Meter
from involutive.learning.effort import Effort
from involutive.learning.find.annealing import finite_rows
from involutive.learning.fit.importance import MISSED, Space, normal_components, refine
from involutive.learning.fit.recipe import Recipe, Trained, train_proposal
from involutive.learning.fit.tails import best_covered, covered, mixture_draws, pruned
from involutive.learning.judge.independence import independence_figures
from involutive.learning.judge.pilot import (
    LEAST_DRAWS,
    PILOT_CHAINS,
    PILOT_DRAWS,
    judge_pilot,
    run_chains,
)
from involutive.learning.outcome import POOR, Learned, compose, local_chances
from involutive.learning.refine.local import FEW, gradients_useful, local_move, move_within_modes
from involutive.sampling.devices import batches_over, gathered
from involutive.targets.target import Target
from involutive.training.likelihood import proposal_law

BRIEF = 3  # times fewer updates in a round than in the last training
LONGER = 4  # times more steps of chains whose proposal hardly reaches anything
REACHES = 0.2  # effective draws per draw of a mixture that repairs weights as it is
SUFFICES = 0.75  # effective draws per draw of a weighed mixture that no round would raise by much
PICKED = 20_000  # weighted draws that stand for the target
TRIAL = 1e6  # evaluations that must be left for HMC to be tried before rounds, and for a round


class Round(NamedTuple):
    """Where learning stands between two rounds: all that the next one needs."""

    number: int
    trained: Trained
    states: np.ndarray  # of the chains
    draws: np.ndarray  # that the proposal was trained on
    fresh: np.ndarray  # those of the last refresh
    key: Any
    done: bool


@dataclass(frozen=True)
class Learner:
    """The stages of learning, with what they share."""

    target: Target
    law: AbstractDistribution
    meter: Meter
    effort: Effort
    recipe: Recipe
    progress: bool | None
    rows: Rows
    devices: list[Any] | None = None
    ahead: Ahead = field(default_factory=Ahead)

    def weigh(self, found: np.ndarray, key: Key[Array, ""]) -> Round:
        """Fit a mixture to the target by importance sampling, from points that cover it."""
        key_refine, key_far, key_pick, key_ahead, key = split(key, 5)
        g = whitening(found)
        mean, factor = (np.asarray(part.unwrap()) for part in (g.mean, g.factor))
        far = LawRows(self.law, self.rows.block).draws(key_far, 1000)
        space = Space.around(self.rows, mean, factor, np.concatenate([far, found]))

        def kernel_of(mixture: Any) -> Kernel:
            return Kernel(self.target, FunctionBlock(g), mixture.law(), self.law)

        # rounds raise a poor mixture slowly, and its covariances are what HMC needs
        slopes = self.target.dim > FEW and gradients_useful(self.rows, found)
        slopes &= self.meter.allows(self.rows.evaluations + TRIAL) and not self.meter.past(TRAINED)
        helped = lambda ess: slopes and REACHES <= ess < POOR  # noqa: E731
        begun = set[tuple[int, bool]]()

        def compile_ahead(count: int, ess: float) -> None:
            if self._alone and (count, helped(ess)) not in begun:
                begun.add((count, helped(ess)))
                start, covering = (
                    kernel_of(normal_components(number, self.target.dim))
                    for number in (count, count + 1)
                )
                chains_ahead(self.ahead, covering, start, key_ahead, helped(ess))

        white = space.whiten(found)
        with one_thread():
            fitted = refine(
                space, white, key_refine,
                counts=self.recipe.ladder(self.target.dim), draws=self.effort.draws,
                good_enough=self.recipe.good_enough, chosen=compile_ahead,
            )  # fmt: skip
        rng, dtype = generator(key_pick), found.dtype
        # a few heavy weights would stand for the target by a few points
        draws = found
        if fitted.ess > REACHES:
            draws = space.colour(fitted.cloud.picked(PICKED, rng)).astype(dtype)
        count = len(fitted.mixture.means)
        row = {
            "stage": f"weighed mixture of {count}",
            "acceptance": fitted.acceptance,
            "ess": fitted.ess,
        }
        kernel = kernel_of(fitted.mixture)
        trained = Trained(kernel, fitted.acceptance, fitted.ess, [row], components=count)
        enough = trained.ess >= SUFFICES or helped(trained.ess)
        enough = enough and space.missed(fitted, white) <= MISSED
        self.meter.spend(self.rows.evaluations)
        self.meter.reach(trained.ess)
        # chains of a round start from the points found: no weight has to be right for that
        states = found[rng.permutation(len(found))[: self.effort.chains]]
        return Round(0, trained, states, draws, found[:0], key, enough)

    @property
    def _alone(self) -> bool:
        """Whether one device does the work, beside which another thread may compile."""
        return (self.devices is None or len(self.devices) < 2) and os.cpu_count() != 1

    def first_round(self, found: np.ndarray, at: Round) -> Round:
        """Train on the points found, where weights tell too little; couplings wait."""
        key_train, key = split(at.key, 2)
        few = self.recipe.ladder(self.target.dim)[:1]
        recipe = replace(self.recipe.shorter(BRIEF), flow_below=0.0, components=few)
        trained = replace(self, recipe=recipe).train(found, key_train, None)
        return at._replace(trained=trained, draws=found, key=key)

    def prepare(self, at: Round) -> None:
        """Before the first round: let the training of its mixture compile beside its chains."""
        if self._alone:
            training_ahead(self.ahead, at.trained.kernel, self.recipe, at.key)

    def train(self, draws: np.ndarray, key: Key[Array, ""], previous: Trained | None) -> Trained:
        """Train the proposal on draws; the log-variance objective evaluates the density."""
        recipe = self.recipe
        with batches_over(self.devices):
            trained = train_proposal(
                self.target,
                draws,
                key,
                recipe=recipe,
                initial=self.law,
                progress=self.progress,
                previous=previous,
                seconds=self.meter.seconds_left,
            )
        self.meter.spend(trained.evaluations)
        self.meter.reach(trained.ess)
        return replace(trained, kernel=gathered(trained.kernel, self.devices))

    def next_round(self, at: Round) -> Round:
        """Let chains repair the weights, train briefly, and see whether anything changed."""
        key_local, key_cover, key_chains, key_seen, key_train, key = split(at.key, 6)
        began = self.meter.seconds
        points = on_device(at.draws)
        gradients = self.target.dim > FEW and gradients_useful(self.rows, at.draws)
        local = local_move(self.target, points, key_local, gradients=gradients, initial=self.law)
        proposal = covered(at.trained.kernel, key_cover)
        fresh, states = self.refresh(proposal, local, at.states, self.steps(at), key_chains)
        draws = np.concatenate([at.fresh[len(at.fresh) // 2 :], fresh])
        settled = len(at.fresh) > 0 and _same_spread(at.fresh, fresh)
        # on draws it was not trained on: a mode that few chains had reached shows here
        seen = independence_figures(at.trained.kernel, _thinned(fresh), key_seen)
        self.meter.correct(seen["ess"])
        self.meter.kept_back = 1.25 * (self.meter.seconds - began)  # the end runs chains as well
        lately = min(REACHES, self.recipe.flow_below)  # couplings can wait for the last training
        brief = replace(self, recipe=replace(self.recipe.shorter(BRIEF), flow_below=lately))
        self.ahead.wait(TRAINING)
        trained = brief.train(draws, key_train, at.trained)
        done = settled and trained.ess < 1.1 * seen["ess"]
        self.meter.round_seconds = self.meter.seconds - began
        return Round(at.number + 1, trained, states, draws, fresh, key, done)

    def polish(self, at: Round, key: Key[Array, ""]) -> Trained:
        """Train at full length on the last draws, unless the budget is spent; keep the better."""
        if at.number == 0 and at.done:
            return at.trained
        if not self.meter.allows(0, seconds=0.05 * (self.meter.budget.seconds or 0.0)):
            return at.trained
        trained = self.train(at.draws, key, at.trained)
        return trained if trained.ess > at.trained.ess else at.trained

    def more(self, at: Round) -> bool:
        """Whether another round is worth it and within the budget."""
        cost = len(at.states) * self.steps(at)
        return not at.done and at.number < self.effort.rounds and self.meter.allows_round(cost)

    def steps(self, at: Round) -> int:
        """Steps that the chains of the next round make."""
        return self.effort.steps * (1 if at.trained.ess >= REACHES else LONGER)

    def refresh(
        self,
        proposal: Kernel,
        local: Kernel,
        states: np.ndarray,
        steps: int,
        key: Key[Array, ""],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Run chains from `states`; return the kept draws and the last states."""
        mover = Mixture([local, proposal], [0.5, 0.5])
        trace = self._run(mover, states, steps, key)
        kept = trace.position[:, steps // 2 :]
        return kept.reshape(-1, self.target.dim), trace.position[:, -1]

    def _run(
        self, kernel: AbstractKernel, states: Any, steps: int, key: Key[Array, ""], **more: Any
    ) -> Any:
        return run_chains(kernel, states, steps, key, self.meter, self.devices, **more)

    def finish(
        self, trained: Trained, draws: np.ndarray, rounds: int, key: Key[Array, ""]
    ) -> Learned:
        """Compose with a local move; measure on chains started apart; say what was reached."""
        key_cover, key_local, key_rest = split(key, 3)
        self.meter.kept_back = 0.0
        points = on_device(draws[-PICKED:])
        trained = pruned(trained)
        # without the wide cover below: no chain should start far out
        start = proposal_law(trained.kernel)
        trained = best_covered(trained, points, key_cover)
        gradients = trained.ess < POOR and gradients_useful(self.rows, draws)
        chances = local_chances(trained.ess, cheap=not gradients)
        local = local_move(self.target, points, key_local, gradients=gradients, initial=self.law)
        return self.composed(trained, local, rounds, key_rest, start, chances)

    def finish_weighed(self, at: Round, key: Key[Array, ""]) -> Learned | None:
        """The same for a weighed mixture that suffices; None if chains do not bear it out."""
        key_cover, key_start, key_rest = split(key, 3)
        kernel, helped = at.trained.kernel, at.trained.ess < SUFFICES
        trained = replace(at.trained, kernel=covered(kernel, key_cover))
        local = move_within_modes(kernel, gradients=helped)
        chances = local_chances(trained.ess, cheap=not helped)
        places = finite_rows(self.rows, mixture_draws(kernel, 8 * PILOT_CHAINS, key_start))
        start = proposal_law(kernel)
        self.ahead.wait(CHAINS)
        places, draws = places[:PILOT_CHAINS], LEAST_DRAWS if helped else PILOT_DRAWS
        learned = self.composed(trained, local, 0, key_rest, start, chances, places, draws)
        outcome = learned.outcome
        hoped = 1.0 if helped else trained.ess
        borne_out = outcome.r_hat < 1.02 and outcome.ess_per_draw > 0.5 * hoped
        return learned if borne_out else None

    def composed(
        self,
        trained: Trained,
        local: Kernel,
        rounds: int,
        key: Key[Array, ""],
        start: AbstractDistribution,
        chances: tuple[float, ...],
        places: np.ndarray | None = None,
        draws: int = PILOT_DRAWS,
    ) -> Learned:
        """Try chances of a local move in turn on chains from `start`, or `places` of it."""
        warmup = int(np.clip(np.ceil(20 / max(trained.ess, 1e-3)), 20, 200))
        best: Learned | None = None
        for chance in chances:
            kernel = compose(trained.kernel, local, chance)
            began = self.meter.seconds
            least, most = warmup + LEAST_DRAWS, warmup + draws
            trace = self._run(kernel, start if places is None else places, most, key, least=least)
            outcome = judge_pilot(trace, warmup, self.meter, rounds, trained.history)
            if best is None or outcome.ess_per_draw > best.outcome.ess_per_draw:
                best = Learned(self.target, start, kernel, warmup, outcome)
            # a chain held in rare states shows as fewer effective draws than the proposal promises
            if outcome.ess_per_draw > 0.75 * trained.ess or not self.meter.allows(
                0, self.meter.seconds - began
            ):
                break
        assert best is not None
        return best


def _thinned(draws: np.ndarray, count: int = 2000) -> Array:
    return on_device(draws[np.linspace(0, len(draws) - 1, count).astype(int)])


def _same_spread(old: np.ndarray, fresh: np.ndarray) -> bool:
    """Whether two sets of draws have the same means and spreads, within a tenth of a spread."""
    low, high = np.quantile(old, [0.1, 0.9], axis=0), np.quantile(fresh, [0.1, 0.9], axis=0)
    width = np.maximum(low[1] - low[0], 1e-300)
    return bool((np.abs(low - high) < 0.1 * width).all())

"""The stages of learning: find, train, let chains repair the weights, compose, measure."""

import os
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive.compiled import on_device
from involutive.errors import check
from involutive.kernel import AbstractKernel, Kernel, Mixture
from involutive.keys import generator, split
from involutive.sampling.chains import BLOCK, fold_all
from involutive.sampling.progress import Progress
from involutive.sampling.share import batches_over, gathered
from involutive.targets import Target
from involutive.training.ahead import END, ROUNDS, TRAINING, Ahead, rounds_ahead, training_ahead
from involutive.training.budget import CLIMBED, SEARCH, Meter
from involutive.training.coverage import best_covered, covered, pruned
from involutive.training.figures import independence_figures
from involutive.training.learned import Learned, compose, local_chances
from involutive.training.likelihood import proposal_law
from involutive.training.local import gradients_useful, local_move
from involutive.training.pilot import LEAST_DRAWS, PILOT_DRAWS, judge_pilot, run_chains
from involutive.training.recipe import Recipe, Trained, train_proposal
from involutive.training.start import (
    anneal,
    climb,
    climb_evaluations,
    finite_draws,
    log_densities,
    promising,
    resampled,
)

PARTIES = 4  # that climb one after the other
FEW = 3  # dimensions in which a random walk spreads as well as HMC; it compiles in half the time
BRIEF = 3  # times fewer updates in a round than in the last training
LONGER = 4  # times more steps of chains whose proposal hardly reaches anything
REACHES = 0.2  # effective draws per draw of a mixture that repairs weights as it is


@dataclass(frozen=True)
class Effort:
    """Sizes of the search and of the rounds.

    Attributes:
        climbers: points that climb.
        search: points of X that are looked at for the best places to climb from.
        particles: particles of the annealed start.
        chains: chains that refresh the training draws.
        steps: steps they make a round; the second half is kept.
        rounds: the most rounds.
    """

    climbers: int = 1024
    search: int = 16_384
    particles: int = 2000
    chains: int = 512
    steps: int = 80
    rounds: int = 6

    def scaled(self, search: float, rounds: float) -> "Effort":
        """The same with a search and with rounds of other sizes."""
        smaller = lambda size, scale, least: max(int(size * min(scale, 1.0)), least)  # noqa: E731
        return Effort(
            climbers=smaller(self.climbers, search, 64),
            search=smaller(self.search, search, 256),
            particles=smaller(self.particles, search, 256),
            chains=smaller(self.chains, rounds, 64),
            steps=max(int(self.steps * rounds**0.5), 20),
            rounds=max(int(self.rounds * rounds**0.5), 1),
        )


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
    devices: list[Any] | None = None
    ahead: Ahead = field(default_factory=Ahead)

    def find(self, key: Key[Array, ""], initial: Any) -> np.ndarray:
        """Points that cover the density: climbed from X, annealed from X, and the user's own."""
        key_start, key_climb, key_anneal = split(key, 3)
        effort = self.effort
        search, log_weights = finite_draws(
            self.target, self.law, key_start, max(effort.search, effort.particles)
        )
        starts = search[: effort.particles]
        check(
            len(starts) > 0,
            "the log density is not finite at any of 100 draws of the initial law; pass initial=, "
            "a law or points inside the support",
        )
        gradients = gradients_useful(self.target, on_device(starts))
        slopes = gradients and self.target.dim > FEW
        self._compile_ahead(key_start, slopes)
        found = []
        with Progress("finding modes", 2, self.progress) as bar:
            if gradients:
                found.append(self._climb(search[: effort.search], key_climb, slopes))
            bar.update(1, evaluations=self.meter.evaluations)
            picked = resampled(search, log_weights, effort.particles, key_anneal)
            if found and picked is not None:
                found.append(picked)
            elif not found or not self.meter.past(CLIMBED):
                points, spent = anneal(
                    self.target,
                    self.law,
                    on_device(starts),
                    key_anneal,
                    gradients=slopes,
                    spent=lambda: self.meter.past(SEARCH),
                )
                found.append(np.asarray(points))
                self.meter.spend(spent)
            bar.update(2, evaluations=self.meter.evaluations)
        if initial is not None and not isinstance(initial, AbstractDistribution):
            found.append(np.asarray(initial, dtype=found[0].dtype))
        self.ahead.wait(TRAINING)
        pool = np.concatenate(found)
        values = np.asarray(log_densities(self.target, on_device(pool)))
        return pool[np.isfinite(pool).all(axis=1) & np.isfinite(values)]

    def _compile_ahead(self, key: Key[Array, ""], gradients: bool) -> None:
        """Let the first training and the rounds compile beside the search, where they are usual."""
        alone = self.devices is None or len(self.devices) < 2
        if alone and os.cpu_count() != 1:
            # run here before the other thread is busy: it would wait for that
            keys = fold_all(key, on_device(np.arange(BLOCK)))
            kernel = training_ahead(self.ahead, self.target, self.law, self.recipe, key)
            rounds_ahead(self.ahead, kernel, key, keys, gradients)

    def _climb(self, search: np.ndarray, key: Key[Array, ""], slopes: bool) -> np.ndarray:
        """Climb from points of X, from around it, and from where a wider search stood highest.

        A quarter each: X, X stretched twofold and fourfold, and the best of the search. With a
        limit in seconds some of each climb at a time, until the search's time is over.
        """
        quarter = self.effort.climbers // 4
        parties = 1 if self.meter.budget.seconds is None else PARTIES
        size = 4 * quarter // parties
        starts, centre = search[:quarter], search.mean(axis=0)
        parts = [
            starts,
            *(centre + (starts - centre) * stretch for stretch in (2.0, 4.0)),
            promising(self.target, search, quarter, size),
        ]
        points, tops = np.concatenate(parts).astype(search.dtype), []
        for i, key_party in enumerate(split(key, parties)):
            party = on_device(points[i::parties][:size])
            tops.append(np.asarray(climb(self.target, party, key_party, gradients=slopes)))
            if self.meter.past(SEARCH):
                break
        climbed = sum(map(len, tops))
        self.meter.spend(climb_evaluations(climbed, len(search), self.target.dim))
        return np.concatenate(tops)

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

    def first_round(self, points: np.ndarray, key: Key[Array, ""]) -> Round:
        """Train on the points found; couplings wait until the draws are of the target."""
        key_train, key_pick, key = split(key, 3)
        few = self.recipe.ladder(self.target.dim)[:1]
        recipe = replace(self.recipe.shorter(BRIEF), flow_below=0.0, components=few)
        trained = replace(self, recipe=recipe).train(points, key_train, None)
        pick = generator(key_pick).permutation(len(points))[: self.effort.chains]
        return Round(0, trained, points[pick], points, points[:0], key, False)

    def next_round(self, at: Round) -> Round:
        """Let chains repair the weights, train briefly, and see whether anything changed."""
        key_local, key_cover, key_chains, key_seen, key_train, key = split(at.key, 6)
        began = self.meter.seconds
        self.ahead.wait(ROUNDS)
        points = on_device(at.draws)
        gradients = self.target.dim > FEW and gradients_useful(self.target, points)
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
        trained = brief.train(draws, key_train, at.trained)
        done = settled and trained.ess < 1.1 * seen["ess"]
        self.meter.round_seconds = self.meter.seconds - began
        return Round(at.number + 1, trained, states, draws, fresh, key, done)

    def polish(self, at: Round, key: Key[Array, ""]) -> Trained:
        """Train at full length on the last draws, unless the budget is spent; keep the better."""
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
        key_cover, key_rest = split(key, 2)
        self.meter.kept_back = 0.0
        points = on_device(draws[-20_000:])
        trained = pruned(trained)
        # without the wide cover below: no chain should start far out
        start = proposal_law(trained.kernel)
        trained = best_covered(trained, points, key_cover)
        gradients = trained.ess < 0.5 and gradients_useful(self.target, points)
        chances = local_chances(trained.ess, cheap=not gradients)
        self.ahead.wait(ROUNDS if gradients else END)
        return self.composed(trained, points, rounds, key_rest, start, gradients, chances)

    def composed(
        self,
        trained: Trained,
        points: Array,
        rounds: int,
        key: Key[Array, ""],
        start: AbstractDistribution,
        gradients: bool,
        chances: tuple[float, ...],
    ) -> Learned:
        """Try chances of a local move in turn on chains from `start`; keep the best."""
        key_local, key_pilot = split(key, 2)
        local = local_move(self.target, points, key_local, gradients=gradients, initial=self.law)
        warmup = int(np.clip(np.ceil(20 / max(trained.ess, 1e-3)), 20, 200))
        best: Learned | None = None
        for chance in chances:
            kernel = compose(trained.kernel, local, chance)
            began = self.meter.seconds
            least, most = warmup + LEAST_DRAWS, warmup + PILOT_DRAWS
            trace = self._run(kernel, start, most, key_pilot, least=least)
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

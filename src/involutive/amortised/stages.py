"""The stages of training a network, within a budget, saved as it goes."""

import time
from dataclasses import dataclass, field
from dataclasses import replace as with_fields

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive.amortised.family import Family
from involutive.amortised.network import Estimator
from involutive.amortised.objective import FamilyLogVariance, Paced, PairLikelihood, paced_adam
from involutive.amortised.rows import efficiency, network_for
from involutive.amortised.saved import SavedTraining
from involutive.amortised.settings import AmortiseSettings
from involutive.core.keys import split
from involutive.learning.budget import Budget
from involutive.sampling.interrupt import Interrupt
from involutive.sampling.progress import Progress
from involutive.training.fit import Fit, Rows, TrainConfig, fit

LIKELIHOOD, DENSITY = 1, 2  # the stages that training is saved by
Objective = PairLikelihood | FamilyLogVariance


def likelihood(family: Family, settings: AmortiseSettings) -> PairLikelihood:
    """The objective of the first stage."""
    return PairLikelihood(family, paced_adam(settings.rate, settings), settings.batch)


def log_variance(family: Family, settings: AmortiseSettings) -> FamilyLogVariance:
    """The objective of the second stage."""
    return FamilyLogVariance(
        family, paced_adam(settings.density_rate * settings.rate, settings), settings.batch_sets,
        settings.draws_per_set, settings.cover, settings.farthest,
    )  # fmt: skip


@dataclass
class Stages:
    """Training of one network; counts what was done.

    Attributes:
        family: the density of parameters and data.
        settings: sizes and lengths.
        budget: of which the seconds count.
        saved: where training is saved as it goes.
        stop: remembers a Ctrl-C.
        began: when training began, by `time.perf_counter`.
        steps: updates made, without those of a trial.
        ended: "finished", "budget" or "interrupted".
        reached: the network of each stage, as far as it came.
        tried: efficiency without and with splines after a trial.
    """

    family: Family
    settings: AmortiseSettings
    budget: Budget
    saved: SavedTraining
    stop: Interrupt
    began: float
    steps: int = 0
    ended: str = "finished"
    reached: dict[int, Estimator] = field(default_factory=dict)
    tried: tuple[float, ...] = ()

    def left(self, stage: int) -> float:
        """Seconds until a stage must have ended."""
        if self.budget.seconds is None:
            return float("inf")
        spent = time.perf_counter() - self.began
        return self.settings.shares[stage] * self.budget.seconds - spent

    def chosen(self, rows: Rows, key_network: Key[Array, ""]) -> Estimator:
        """The network to train: with or without splines, by the settings or by a short trial."""
        settings, remembered = self.settings, self.saved.splines
        if settings.trial == 0 or remembered is not None:
            self.saved.splines = settings.splines if remembered is None else remembered
            return self._network(rows, self.saved.splines, key_network)
        kinds = (0, settings.splines)
        networks = [
            self._network(rows, kind, key)
            for kind, key in zip(kinds, split(key_network, 2), strict=True)
        ]
        # the same keys for both, so that they can be compared
        trials = (self._trial(network, rows, jr.fold_in(key_network, 3)) for network in networks)
        self.tried = tuple(trials)
        best = int(np.argmax(self.tried))
        self.saved.splines = kinds[best]
        return networks[best]

    def _network(self, rows: Rows, splines: int, key: Key[Array, ""]) -> Estimator:
        settings = with_fields(self.settings, splines=splines, trial=0)
        return network_for(self.family, rows, settings, key)

    def _trial(self, network: Estimator, rows: Rows, key: Key[Array, ""]) -> float:
        """The median efficiency on held-out data sets after a short training."""
        settings, objective = self.settings, likelihood(self.family, self.settings)
        key_init, key_run, key_measure = split(key, 3)
        memory = objective.init(network, key_init)
        memory = memory._replace(total=jnp.asarray(float(settings.trial)))
        limit = settings.trial_share * self.left(LIKELIHOOD)
        seconds = max(limit, 1.0) if np.isfinite(limit) else None
        config = TrainConfig(settings.trial, settings.chunk, None, 1e-3, seconds, 0, "last")
        found = self._fit(network, objective, self._rows(rows), key_run, config, memory)
        shares = efficiency(found.kernel, self.family, rows.held.data, key_measure, settings)
        return float(np.median(shares))

    def both(
        self,
        network: Estimator,
        rows: Rows,
        key_likelihood: Key[Array, ""],
        key_density: Key[Array, ""],
        bar: Progress,
    ) -> tuple[Estimator, Estimator]:
        """The network trained by likelihood, and that network trained on the density after it.

        The first Ctrl-C ends training after the chunk in flight. A second one ends it at once, with
        the networks of the last full segment.
        """
        settings, rows = self.settings, self._rows(rows)
        self.reached = {LIKELIHOOD: network}
        try:
            bar.stage("training by likelihood", 2, 3)
            first = likelihood(self.family, settings)
            network = self.train(network, first, rows, LIKELIHOOD, settings.steps, key_likelihood)
            self.saved.ended(network)
            bar.stage("training on the density", 3, 3)
            second = log_variance(self.family, settings)
            self.train(network, second, rows, DENSITY, settings.steps_density, key_density)
        except KeyboardInterrupt:
            self.ended = "interrupted"
        first_reached = self.reached[LIKELIHOOD]
        return first_reached, self.reached.get(DENSITY, first_reached)

    def train(
        self,
        network: Estimator,
        objective: Objective,
        rows: Rows,
        stage: int,
        steps: int,
        key: Key[Array, ""],
    ) -> Estimator:
        """Train by one objective; with a budget as many updates as fit into it."""
        key_init, key_run = split(key, 2)
        memory = objective.init(network, key_init)
        memory = memory._replace(total=jnp.asarray(float(max(steps, 1))))
        network, memory, done = self.saved.read(stage, network, memory)
        steps, number = round(float(memory.total)) if done else steps, 0
        self.reached[stage] = network
        while done < steps and self.left(stage) > 0 and self.stop.asked is None:
            # with a budget, two short segments first: one compiles, one is timed
            timed, chunk = self.budget.seconds is not None and number < 2, self.settings.chunk
            count = min(chunk if timed else self.settings.segment * chunk, steps - done)
            began, config = (
                time.perf_counter(),
                TrainConfig(count, chunk, None, 1e-3, None, 0, "last"),
            )
            key_fit = jr.fold_in(key_run, done)
            found = self._fit(network, objective, rows, key_fit, config, memory, (done, steps))
            network, memory, made = found.kernel, found.memory, int(found.history[-1]["step"])
            self.reached[stage] = network
            self.steps, done = self.steps + made, done + made
            if timed and number == 1:
                each = (time.perf_counter() - began) / count
                steps, memory = _fitted_in(steps, done, self.left(stage) / each, memory, chunk)
            if made == count:  # whole segments alone, so that resuming repeats the same updates
                self.saved.write(stage, network, memory, done)
            number += 1
        if self.ended == "finished" and done < steps:
            self.ended = "budget" if self.stop.asked is None else "interrupted"
        return network

    def _fit(
        self,
        network: Estimator,
        objective: Objective,
        rows: Rows,
        key: Key[Array, ""],
        config: TrainConfig,
        memory: Paced,
        part: tuple[int, int] | None = None,
    ) -> Fit:
        return fit(
            network, objective, rows, key=key, config=config, memory=memory, label="training",
            progress=False, part=part, spent=lambda: self.stop.asked is not None,
        )  # fmt: skip

    def _rows(self, rows: Rows) -> Rows:
        """What to train on: nothing, where the simulator draws pairs anew at every update."""
        return rows._replace(train=None) if self.family.traced else rows


def _fitted_in(
    steps: int, done: int, possible: float, memory: Paced, least: int
) -> tuple[int, Paced]:
    """As many updates as there is time for, with the rate falling to zero at the last."""
    total = int(min(steps, done + max(possible, least)))
    return total, memory._replace(total=jnp.asarray(float(total)))

"""`amortise`: train one network for every posterior of a family."""

import time
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.compilation import make_room
from involutive.amortised.family import Family
from involutive.amortised.kernel import FamilyKernel, Trained
from involutive.amortised.network import Estimator
from involutive.amortised.objective import (
    FamilyLogVariance,
    Paced,
    PairLikelihood,
    paced_adam,
)
from involutive.amortised.rows import efficiency, network_for, particles, simulated
from involutive.amortised.saved import SavedTraining
from involutive.amortised.settings import AmortiseSettings
from involutive.core.errors import check
from involutive.core.keys import KeyLike, as_key, split
from involutive.core.types import Number
from involutive.learning.budget import Budget, as_budget
from involutive.learning.problem import initial_distribution
from involutive.sampling.progress import Progress
from involutive.storage.format import PathLike
from involutive.targets.validation import check_density
from involutive.training.fit import Rows, TrainConfig, fit
from involutive.training.objective import AbstractObjective

CHUNK = 200  # updates between two looks
SEGMENT = 25  # chunks between two checkpoints; long enough to repay the longer compilation
SHARES = (0.1, 0.8, 0.97)  # of a budget in seconds, by which each stage must end; guesses
POOR = 0.1  # effective share of a proposal's draws below which a data set is called poor


def amortise(
    family: Family,
    *,
    key: KeyLike,
    budget: Budget | Number | None = None,
    settings: AmortiseSettings | None = None,
    initial: AbstractDistribution | None = None,
    checkpoint: PathLike | None = None,
    resume: bool = False,
    progress: bool | None = None,
) -> FamilyKernel:
    """Train one network that proposes for every data set of a family.

    With a simulator it is trained by likelihood on simulated pairs; without one on annealed
    particles of the family's data sets. In both cases the log-variance objective on the density
    itself follows, and is kept if held-out data sets have gained by it.

    Args:
        family: the density of parameters and data.
        key: an int seed or a JAX key.
        budget: seconds that training may take; by default as long as the settings say.
        settings: sizes of the network and lengths of the training.
        initial: X, from which particles are annealed without a simulator; by default the prior,
            else N(0, 3² I).
        checkpoint: a file that training is saved in as it goes.
        resume: go on from `checkpoint`, or begin if there is none.
        progress: show progress; by default on a terminal.

    Returns:
        The kernel of the family: `kernel.at(data)` is the kernel of one data set. It leaves that
        posterior invariant whatever was learned. Ctrl-C returns what was reached.

    Raises:
        InputError: if an argument does not fit, or the density is finite nowhere.

    Example:
        >>> import involutive as inv, jax.numpy as jnp, jax.random as jr
        >>> def log_likelihood(mu, data): return -0.5 * jnp.sum((data - mu) ** 2)
        >>> def simulate(key, mu): return mu + jr.normal(key, (5,))
        >>> parameters = inv.Parameters(mu=inv.Normal(0, 2))
        >>> family = inv.Family(log_likelihood, parameters, simulate=simulate)
        >>> small = inv.AmortiseSettings(steps=50, steps_density=0, width=16)
        >>> many = inv.amortise(family, key=0, settings=small, progress=False)
        >>> many.at(jnp.ones(5)).target.dim
        1
    """
    found = type(family).__name__
    check(isinstance(family, Family), f"family must be an inv.Family, got {found}")
    make_room()
    began, settings = time.perf_counter(), settings or AmortiseSettings()
    limit = as_budget(budget)
    check(limit.evaluations is None, "budget of amortise must be in seconds, got evaluations")
    check_density(family.template)
    key_rows, key_network, key_likelihood, key_density, key_measure = split(as_key(key), 5)
    law = initial_distribution(initial, family.template, settings.initial_sd)
    work = _Work(family, settings, limit, began)
    saved = SavedTraining(checkpoint, resume, key_network, settings, family)
    with Progress("amortising", None, progress, most=limit.seconds) as bar:
        bar.stage("simulating" if family.simulate else "annealing", 1, 3)
        rows = (
            simulated(family, settings.pool, key_rows)
            if family.simulate
            else particles(family, settings, law, key_rows)
        )
        network = network_for(family, rows, settings, key_network)
        if family.traced:  # drawn anew at every update
            rows = rows._replace(train=None)
        network, refined = work.both(network, rows, key_likelihood, key_density, saved, bar)
        # the same draws for both, so that they can be compared
        before, after = (
            efficiency(made, family, rows.held.data, jr.fold_in(key_measure, 0))
            for made in (network, refined)
        )
        better = np.median(after) >= np.median(before)
        network, shares = (refined, after) if better else (network, before)
        outcome = Trained(
            float(np.median(shares)), float(np.mean(shares < POOR)), work.steps,
            time.perf_counter() - began, family.simulate is not None, work.ended,
        )  # fmt: skip
        bar.update(efficiency=outcome.efficiency)
    return FamilyKernel(family, network, outcome)


class _Work:
    """Training within a budget; counts what was done."""

    def __init__(self, family: Family, settings: AmortiseSettings, budget: Budget, began: float):
        self.family, self.settings, self.began = family, settings, began
        self.seconds, self.steps, self.ended = budget.seconds, 0, "finished"

    def left(self, stage: int) -> float:
        """Seconds until a stage must have ended."""
        if self.seconds is None:
            return float("inf")
        return SHARES[stage] * self.seconds - (time.perf_counter() - self.began)

    def both(
        self,
        network: Any,
        rows: Rows,
        key_likelihood: Key[Array, ""],
        key_density: Key[Array, ""],
        saved: SavedTraining,
        bar: Progress,
    ) -> tuple[Any, Any]:
        """The network trained by likelihood, and that trained on the density after it.

        Ctrl-C ends both: what a stage had reached before it began is returned.
        """
        family, settings = self.family, self.settings
        first = PairLikelihood(family, paced_adam(settings.rate), settings.batch)
        second = FamilyLogVariance(
            family, paced_adam(0.3 * settings.rate), settings.batch_sets, settings.draws_per_set
        )
        try:
            bar.stage("training by likelihood", 2, 3)
            network = self.train(network, first, rows, settings.steps, 1, key_likelihood, saved)
            bar.stage("training on the density", 3, 3)
            steps = settings.steps_density
            return network, self.train(network, second, rows, steps, 2, key_density, saved)
        except KeyboardInterrupt:
            self.ended = "interrupted"
            return network, network

    def train(
        self,
        network: Any,
        objective: AbstractObjective,
        rows: Rows,
        steps: int,
        stage: int,
        key: Key[Array, ""],
        saved: SavedTraining,
    ) -> Estimator:
        """Train by one objective; with a budget as many updates as fit into it."""
        key_init, key_run = split(key, 2)
        memory = objective.init(network, key_init)
        memory = memory._replace(total=jnp.asarray(float(max(steps, 1))))
        network, memory, done = saved.read(stage, network, memory)
        steps = round(float(memory.total)) if done else steps
        for number in range(SEGMENT * steps):
            if done >= steps or self.left(stage) <= 0:
                break
            timed = self.seconds is not None and number < 2
            count = min(CHUNK if timed else SEGMENT * CHUNK, steps - done)
            began = time.perf_counter()
            config = TrainConfig(count, CHUNK, None, monitor=0, keep="last")
            found = fit(
                network, objective, rows, key=jr.fold_in(key_run, done), config=config,
                memory=memory, label="training", progress=False,
                part=(done, steps),
            )  # fmt: skip
            network, memory, done = found.kernel, found.memory, done + count
            self.steps += count
            if timed and number == 1:  # the first chunk compiles
                each = (time.perf_counter() - began) / count
                steps, memory = _fitted_in(steps, done, self.left(stage) / each, memory)
            saved.write(stage, network, memory, done)
        if done < steps:
            self.ended = "budget"
        return network


def _fitted_in(steps: int, done: int, possible: float, memory: Paced) -> tuple[int, Paced]:
    """As many updates as there is time for, with the rate falling to zero at the last."""
    total = int(min(steps, done + max(possible, CHUNK)))
    return total, memory._replace(total=jnp.asarray(float(total)))

"""The problem that all stages of learning share: frozen, and made once."""

import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution, Normal
from jaxtyping import Array, Key

from involutive._xla.batched import BLOCK, BatchedDensity
from involutive._xla.compilation import jit_once, on_device
from involutive._xla.cost import SEARCH_OPERATIONS, TRAINING_OPERATIONS, affordable, operations
from involutive.core.errors import InputError, check
from involutive.core.keys import split
from involutive.core.types import ArrayLike, Number
from involutive.learning.budget import Allowance, Budget, Plan
from involutive.learning.settings import LearnSettings, SearchSettings
from involutive.learning.stages import Cost
from involutive.sampling.progress import current
from involutive.targets.target import Target


class Keys(NamedTuple):
    """One key per stage."""

    find: Key[Array, ""]
    fit: Key[Array, ""]
    structure: Key[Array, ""]
    points: Key[Array, ""]
    rounds: Key[Array, ""]
    polish: Key[Array, ""]
    judge: Key[Array, ""]
    finish: Key[Array, ""]
    early: Key[Array, ""]
    replicas: Key[Array, ""]
    given: Key[Array, ""]
    judge_structure: Key[Array, ""]


@dataclass(frozen=True)
class Problem:
    """A density to learn, with everything that stages need to learn it.

    Attributes:
        target: the density.
        initial: the initial distribution X.
        settings: sizes and thresholds; sizes are reduced if the density is expensive or the budget
            small.
        plan: the budget, and when learning began.
        keys: one key per stage.
        progress: whether to show progress; None for only on a terminal.
        devices: devices on which chains and batches run, or None.
        block: rows of the density per compiled call.
    """

    target: Target
    initial: AbstractDistribution
    settings: LearnSettings
    plan: Plan
    keys: Keys
    progress: bool | None
    devices: list[Any] | None
    block: int

    def spend(self, share: Number, before: Cost) -> "Spending":
        """Begin a stage that may spend until a share of the budget is gone."""
        return Spending(self, self.plan.until(share, before.evaluations), before)

    def for_pass(self, number: int) -> "Problem":
        """The same problem with the keys of pass `number`; the first pass is 0."""
        if number == 0:
            return self
        return self._with_keys(8 + number)

    def for_frugal(self) -> "Problem":
        """The same problem with other keys, for frugal learning: a pipeline may follow it."""
        return self._with_keys(7)

    def _with_keys(self, number: int) -> "Problem":
        # stages fold smaller numbers into `early` themselves
        key = jr.fold_in(self.keys.early, number)
        return replace(self, keys=Keys(*split(key, len(Keys._fields))))

    def has_time(self, seconds: Number) -> bool:
        """Whether that much time is left; compiled programs cannot be interrupted."""
        return self.plan.until(1.0, 0).seconds > seconds


class Spending:
    """What one stage spends. It is local to the stage, which reports the cost in its result."""

    def __init__(self, problem: Problem, allowance: Allowance, before: Cost):
        self.problem, self.allowance, self.before = problem, allowance, before
        self._began, self._elsewhere = time.perf_counter(), 0
        self._density: BatchedDensity | None = None
        shown, limit = current(), problem.plan.budget.evaluations
        if shown is not None and not shown.steady:
            shown.watch(lambda: {"evaluations": self.cost.evaluations, "of": limit})

    @property
    def density(self) -> BatchedDensity:
        """The target's log density on rows, which raises `OutOfBudget` past the allowance."""
        if self._density is None:
            target = self.problem.target
            self._density = BatchedDensity(
                target.log_density, target.dim, self.problem.block,
                self.allowance.evaluations - self._elsewhere, self.allowance.deadline,
            )  # fmt: skip
        return self._density

    def note(self, evaluations: Number) -> None:
        """Count evaluations that compiled chains and trainings made; the density has fewer left."""
        self._elsewhere += int(evaluations)
        if self._density is not None:
            self._density.limit = self.allowance.evaluations - self._elsewhere

    @property
    def evaluations(self) -> int:
        """Evaluations of this stage so far."""
        return self._elsewhere + (self._density.evaluations if self._density else 0)

    def allows(self, evaluations: Number = 0.0, seconds: Number = 0.0) -> bool:
        """Whether the allowance has room for that much more."""
        return self.allowance.allows(self.evaluations + evaluations, seconds)

    @property
    def seconds(self) -> float:
        """Seconds since the stage began."""
        return time.perf_counter() - self._began

    @property
    def cost(self) -> Cost:
        """The cost of all stages so far, this one included."""
        return self.before + Cost(self.evaluations, self.seconds)


def pose_problem(
    target: Target,
    initial: AbstractDistribution,
    settings: LearnSettings,
    budget: Budget,
    key: Key[Array, ""],
    progress: bool | None,
    devices: list[Any] | None,
    began: Number | None = None,
) -> Problem:
    """Scale the sizes in the settings to the budget and to the cost of one evaluation.

    The cost is counted in operations of the density's program, not timed, so that learning is
    deterministic given its key unless a deadline cuts it short.
    """
    work = operations(target.log_density, target.dim)
    plan = Plan(budget, time.perf_counter() if began is None else began, settings.budget)
    search = plan.scale * affordable(work, SEARCH_OPERATIONS)
    rounds = plan.scale * affordable(work, TRAINING_OPERATIONS)
    settings = settings.scaled(search, rounds)
    block = min(BLOCK, 1 << (settings.climbers.bit_length() - 1))
    keys = Keys(*split(key, len(Keys._fields)))
    return Problem(target, initial, settings, plan, keys, progress, devices, block)


def initial_distribution(
    initial: AbstractDistribution | ArrayLike | None,
    target: Target,
    sd: Number,
    settings: SearchSettings | None = None,
) -> AbstractDistribution:
    """X: the given distribution, a normal around given points, the prior, or N(0, sd² I).

    The normal around given points has `settings.initial_wider` times their sds.
    """
    dim = target.dim
    if initial is None:
        prior = getattr(target, "initial", None)
        return prior if prior is not None else _normal(np.zeros(dim), np.full(dim, sd))
    if isinstance(initial, AbstractDistribution):
        check(
            initial.shape == (dim,) and initial.cond_shape is None,
            f"initial must be a distribution of {dim} coordinates, got shape {initial.shape}",
        )
        return initial
    try:
        points = np.asarray(initial, dtype=jnp.result_type(float))
    except (TypeError, ValueError) as error:
        found = type(initial).__name__
        raise InputError(
            f"initial must be a distribution or points (n, {dim}), got {found}"
        ) from error
    check(
        points.ndim == 2 and points.shape[1] == dim and len(points) > 0,
        f"initial must be a distribution or points of shape (n, {dim}), got shape {points.shape}",
    )
    check(np.isfinite(points).all(), "initial must be finite, got NaN or infinite points")
    search = settings or SearchSettings()
    least = search.initial_least * (1 + np.abs(points).max(axis=0))
    spread = np.maximum(search.initial_wider * points.std(axis=0), least)
    return _normal(points.mean(axis=0), spread)


def _normal(mean: np.ndarray, scale: np.ndarray) -> AbstractDistribution:
    parts = (on_device(part.astype(jnp.result_type(float))) for part in (mean, scale))
    return _compiled_normal(*parts)


@jit_once
def _compiled_normal(mean: Array, scale: Array) -> Normal:
    return Normal(mean, scale)

"""The budget of learning: a limit in seconds, in density evaluations, or both.

A budget is divided among the stages. Each stage gets an allowance, a number of evaluations and a
deadline, and its density refuses the batch that would exceed it (`BatchedDensity`); the stage then
returns its result so far. A compilation cannot be interrupted, so a deadline may be exceeded by the
duration of one compilation.
"""

import time
from dataclasses import dataclass

from involutive.core.errors import check
from involutive.core.types import Number
from involutive.learning.settings import BudgetSettings


@dataclass(frozen=True)
class Budget:
    """A limit on learning; without one, about five minutes.

    Args:
        seconds: wall time, compilation included.
        evaluations: calls of the density on one point; a gradient counts as three.

    Raises:
        InputError: if a limit is not positive.

    Example:
        >>> import involutive as inv
        >>> budget = inv.Budget(seconds=60)
        >>> budget.seconds
        60
    """

    seconds: Number | None = None
    evaluations: Number | None = None

    def __post_init__(self) -> None:
        for name, value in (("seconds", self.seconds), ("evaluations", self.evaluations)):
            check(value is None or value > 0, f"{name} of a budget must be positive, got {value}")


@dataclass(frozen=True)
class Allowance:
    """What a stage may spend: evaluations, and time until a deadline of `time.perf_counter()`."""

    evaluations: Number
    deadline: Number

    @property
    def seconds(self) -> float:
        """Seconds left."""
        return self.deadline - time.perf_counter()

    def allows(self, evaluations: Number = 0.0, seconds: Number = 0.0) -> bool:
        """Whether the allowance has room for that much."""
        return evaluations <= self.evaluations and seconds < self.seconds


@dataclass(frozen=True)
class Plan:
    """A budget, the time at which learning began, and how the budget is divided."""

    budget: Budget
    began: Number
    settings: BudgetSettings

    @property
    def scale(self) -> float:
        """The factor on the default sizes that the budget allows."""
        shares, usual = [1.0], self.settings
        if self.budget.seconds is not None:
            shares.append(self.budget.seconds / usual.usual_seconds)
        if self.budget.evaluations is not None:
            shares.append(self.budget.evaluations / usual.usual_evaluations)
        return max(min(shares), usual.least_scale)

    @property
    def too_small(self) -> bool:
        """Whether the budget is too small for a search."""
        limit = self.budget.evaluations
        return limit is not None and limit < self.settings.least_evaluations

    @property
    def seconds(self) -> float:
        """The limit in seconds, compilation included."""
        given = self.budget.seconds
        return float(self.settings.default_seconds if given is None else given)

    def until(self, share: Number, evaluations: int) -> Allowance:
        """The allowance until a share of the budget is spent, `evaluations` of it already."""
        total = float("inf") if self.budget.evaluations is None else self.budget.evaluations
        return Allowance(max(share * total - evaluations, 0.0), self.began + share * self.seconds)


def as_budget(budget: "Budget | Number | None") -> Budget:
    """Convert a number of seconds, or None, to a budget."""
    if budget is None:
        return Budget()
    if isinstance(budget, Budget):
        return budget
    number = isinstance(budget, int | float) and not isinstance(budget, bool)
    check(
        number,
        f"budget must be seconds or Budget(seconds=..., evaluations=...), got {budget!r}",
    )
    return Budget(seconds=float(budget))

"""How much learning may cost: a limit in seconds, in density evaluations, or both.

A budget is shared out among the stages. Each stage is given an allowance, evaluations and a
deadline, and its density refuses the batch that would exceed it (`BatchedDensity`); the stage then
returns what it has. Compilation cannot be interrupted, so a deadline is kept up to one compilation.
"""

import time
from dataclasses import dataclass

from involutive.core.errors import check
from involutive.core.types import Number

DEFAULT_SECONDS = 300.0  # where no budget is given; what the default sizes need is far less
USUAL_SECONDS = 30.0  # that the default sizes take on two cores, compilation included
LEAST_EVALUATIONS = 2000  # below which nothing can be found, let alone measured; a guess
USUAL_EVALUATIONS = 8e6  # that the default sizes take; a guess
# shares of a budget after which a stage must have ended; guesses
SEARCH, FIT, STRUCTURE, ROUNDS, PILOT, REPLICAS, LOOK = 0.35, 0.5, 0.6, 0.7, 0.8, 0.93, 1.0


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

    @property
    def scale(self) -> float:
        """How large the sizes should be relative to the defaults."""
        shares = [1.0]
        if self.seconds is not None:
            shares.append(self.seconds / USUAL_SECONDS)
        if self.evaluations is not None:
            shares.append(self.evaluations / USUAL_EVALUATIONS)
        return max(min(shares), 0.002)


@dataclass(frozen=True)
class Allowance:
    """What a stage may spend: evaluations, and a deadline by `time.perf_counter()`."""

    evaluations: Number
    deadline: Number

    @property
    def seconds(self) -> float:
        """Seconds left."""
        return self.deadline - time.perf_counter()

    def allows(self, evaluations: Number = 0.0, seconds: Number = 0.0) -> bool:
        """Whether that much fits."""
        return evaluations <= self.evaluations and seconds < self.seconds


@dataclass(frozen=True)
class Plan:
    """A budget with the moment at which learning began."""

    budget: Budget
    began: Number

    @property
    def too_small(self) -> bool:
        """Whether the budget allows no search at all."""
        limit = self.budget.evaluations
        return limit is not None and limit < LEAST_EVALUATIONS

    @property
    def seconds(self) -> float:
        """Seconds that learning may take, compilation included."""
        return DEFAULT_SECONDS if self.budget.seconds is None else float(self.budget.seconds)

    def until(self, share: Number, evaluations: int) -> Allowance:
        """What may be spent until a share of the budget is gone, of which so many are spent."""
        total = float("inf") if self.budget.evaluations is None else self.budget.evaluations
        return Allowance(max(share * total - evaluations, 0.0), self.began + share * self.seconds)


def as_budget(budget: "Budget | Number | None") -> Budget:
    """A budget as given, or a number of seconds."""
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

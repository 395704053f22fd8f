"""How much learning may cost: a limit in seconds or in density evaluations."""

import time
from dataclasses import dataclass

from involutive.errors import check

USUAL_SECONDS = 60.0  # what the default sizes take on two cores, compilation included
USUAL_EVALUATIONS = 8e6


@dataclass(frozen=True)
class Budget:
    """A limit on learning; without one, the default sizes are used.

    Attributes:
        seconds: wall time, compilation included.
        evaluations: calls of the density on one point; a gradient counts as three.
    """

    seconds: float | int | None = None
    evaluations: float | int | None = None

    def __post_init__(self) -> None:
        for name, value in (("seconds", self.seconds), ("evaluations", self.evaluations)):
            check(value is None or value > 0, f"{name} of a budget must be positive, got {value}")

    @property
    def scale(self) -> float:
        """How large the sizes should be relative to the defaults."""
        shares = [1.0] if self.seconds is None and self.evaluations is None else []
        if self.seconds is not None:
            shares.append(self.seconds / USUAL_SECONDS)
        if self.evaluations is not None:
            shares.append(self.evaluations / USUAL_EVALUATIONS)
        return min(max(min(shares), 0.02), 4.0)


class Meter:
    """Counts what was spent of a budget."""

    def __init__(self, budget: Budget):
        self.budget, self.evaluations, self.began = budget, 0, time.perf_counter()

    def spend(self, evaluations: float | int) -> None:
        """Note density evaluations made."""
        self.evaluations += int(evaluations)

    @property
    def seconds(self) -> float:
        """Seconds since learning began."""
        return time.perf_counter() - self.began

    @property
    def seconds_left(self) -> float | int | None:
        """Seconds left for training, or None without a limit."""
        limit = self.budget.seconds
        return None if limit is None else max(limit - self.seconds, 0.1)

    def allows(self, evaluations: float | int, seconds: float | int = 0.0) -> bool:
        """Whether that much more stays within the budget."""
        limit = self.budget
        enough_time = limit.seconds is None or self.seconds + seconds <= limit.seconds
        return enough_time and (
            limit.evaluations is None or self.evaluations + evaluations <= limit.evaluations
        )


def as_budget(budget: object) -> Budget:
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
    return Budget(seconds=float(budget))  # type: ignore[arg-type]

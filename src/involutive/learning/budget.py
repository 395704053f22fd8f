"""How much learning may cost: a limit in seconds or in density evaluations.

A limit in seconds is shared out: the search may take until `SEARCH` of it, another round is begun
only if it will probably end in time, and enough is kept back to compose the kernel and measure it.
What that takes is not known before: `KEPT_BACK` is assumed until a round has shown it, compilation
included. Compilation takes about 3 s on two cores, and some 15 s more where rounds are made; no
limit makes it shorter.
"""

import time
from dataclasses import dataclass

from involutive.core.errors import check

USUAL_SECONDS = 30.0  # what the default sizes take on two cores, compilation included
USUAL_EVALUATIONS = 8e6
CLIMBED = 0.35  # of a limit in seconds, after which annealing is left out if climbs found points
SEARCH = 0.45  # after which the search goes no further
TRAINED = 0.65  # after which no first round is begun
KEPT_BACK = 0.25


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
    """Counts what was spent of a budget.

    Attributes:
        budget: the limits.
        evaluations: density evaluations made.
        kept_back: seconds that the end of learning will take.
        round_seconds: what the last round took, or None before the first.
        reached: one row a training: the seconds at its end and its effective draws per draw.
    """

    def __init__(self, budget: Budget):
        self.budget, self.evaluations, self.began = budget, 0, time.perf_counter()
        self.kept_back = KEPT_BACK * (budget.seconds or 0.0)
        self.round_seconds: float | None = None
        self.reached: list[dict[str, float]] = []

    def spend(self, evaluations: float | int) -> None:
        """Note density evaluations made."""
        self.evaluations += int(evaluations)

    def reach(self, ess: float | int) -> None:
        """Note the effective draws per draw of a training that ended now."""
        self.reached.append({"seconds": self.seconds, "ess": float(ess)})

    def correct(self, ess: float | int) -> None:
        """Put what new draws say of the last training in place of what its own said."""
        self.reached[-1:] = [row | {"ess": float(ess)} for row in self.reached[-1:]]

    @property
    def seconds(self) -> float:
        """Seconds since learning began."""
        return time.perf_counter() - self.began

    @property
    def seconds_left(self) -> float | int | None:
        """Seconds left but for the end of learning, or None without a limit."""
        limit = self.budget.seconds
        return None if limit is None else max(limit - self.kept_back - self.seconds, 0.1)

    def past(self, share: float) -> bool:
        """Whether more than that share of a limit in seconds is spent."""
        return self.budget.seconds is not None and self.seconds > share * self.budget.seconds

    def allows(self, evaluations: float | int, seconds: float | int = 0.0) -> bool:
        """Whether that much more, and then the end of learning, stay within the budget."""
        left, limit = self.seconds_left, self.budget.evaluations
        enough_time = left is None or (left > seconds and left > 0.1)
        return enough_time and (limit is None or self.evaluations + evaluations <= limit)

    def allows_round(self, evaluations: float | int) -> bool:
        """Whether another round does: the first by what is spent, others by what one took."""
        if self.round_seconds is None:
            return self.allows(evaluations) and not self.past(TRAINED)
        return self.allows(evaluations, self.round_seconds)


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

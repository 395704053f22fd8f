"""Stopping rules: draw until a goal holds for every quantity.

The goal is checked at geometrically spaced numbers of draws: a rule that is checked after every
draw stops at lucky moments, one that is checked rarely has few chances to. `quantities.judged` has
the quantities.
"""

import math
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np

from involutive.core.errors import check, check_count
from involutive.core.statistics import ess, rhat
from involutive.core.text import as_json
from involutive.sampling.quantities import judged
from involutive.targets.target import Target

FIRST_LOOK = 100  # draws per chain before the first check
WIDEN = 1.5  # ratio of the draws at successive checks


@dataclass(frozen=True)
class Until:
    """When to stop: the goal must hold for every coordinate, |x|² and every known mode.

    Attributes:
        ess: the minimum rank-normalised bulk effective sample size, over all chains together.
        rhat: the maximum rank-normalised split R-hat.
        max_samples: the maximum draws per chain, whether the goal is met or not.
        seconds: the maximum seconds of sampling, whether the goal is met or not; checked after
            every chunk.

    Raises:
        InputError: if there is no goal, or one that cannot be met.

    Example:
        >>> import involutive as inv
        >>> goal = inv.Until(ess=100, rhat=1.5, max_samples=60)
        >>> kernel = inv.random_walk(inv.targets.gaussian(1), 2.0)
        >>> inv.sample(kernel, key=0, num_chains=8, until=goal).num_samples <= 60
        True
    """

    ess: float | int | None = None
    rhat: float | int | None = None
    max_samples: int = 20_000
    seconds: float | int | None = None

    def __post_init__(self) -> None:
        goals = (self.ess, self.rhat, self.seconds)
        check(
            any(goal is not None for goal in goals),
            "Until must be given a goal, got none; pass for example Until(ess=1000, rhat=1.01)",
        )
        for name, value in (("ess", self.ess), ("rhat", self.rhat), ("seconds", self.seconds)):
            ok = value is None or (isinstance(value, Real) and math.isfinite(value) and value > 0)
            check(ok, f"{name} of Until must be a positive number, got {value!r}")
        check(
            self.rhat is None or self.rhat > 1,
            f"rhat of Until must be above 1, the value of equal chains, got {self.rhat}; use 1.01",
        )
        check_count("max_samples of Until", self.max_samples, least=4)


@dataclass
class Watch:
    """Checks the goal of a run as it goes, and says when the run may end."""

    until: Until
    target: Target
    next_look: int = FIRST_LOOK
    reason: str | None = None
    looks: list[dict[str, Any]] = field(default_factory=list)

    def room(self, count: int) -> int:
        """How many draws may be made before the next check or the end of the run."""
        return min(self.next_look, self.until.max_samples) - count

    def skip_to(self, count: int) -> None:
        """Continue a run that has `count` draws, with checks where they would have been."""
        while self.next_look < count:
            self.next_look = math.ceil(WIDEN * self.next_look)

    def ends(self, positions: np.ndarray, seconds: float) -> bool:
        """Whether the run may end, given the draws so far `(chains, draws, dim)`."""
        count, late = positions.shape[1], self.until.seconds
        out_of_time = late is not None and seconds >= late
        out_of_draws = count >= self.until.max_samples
        if self._has_goal and (count >= self.next_look or out_of_draws or out_of_time):
            self.looks.append(look(self.target, positions))
            if self._met(self.looks[-1]):
                self.reason = "goal"
        if count >= self.next_look:
            self.next_look = math.ceil(WIDEN * count)
        if self.reason is None and (out_of_time or out_of_draws):
            self.reason = "seconds" if out_of_time else "max_samples"
        return self.reason is not None

    def metrics(self) -> dict[str, object]:
        """The state of the goal at the last check, for the progress bar."""
        if not self.looks:
            return {}
        last, until = self.looks[-1], self.until
        shown: dict[str, object] = {}
        if until.ess is not None:
            shown["ess"] = f"{last['ess']:,.0f}/{until.ess:,.0f} ({last['least']})"
        if until.rhat is not None:
            shown["R-hat"] = f"{last['rhat']:.3f}/{until.rhat:g} ({last['most']})"
        return shown | {"met": f"{self._count_met(last)}/{len(last['all_ess'])} quantities"}

    def record(self) -> dict[str, Any]:
        """How the run ended, for the provenance: plain numbers and text."""
        plain = [
            {name: as_json(value) for name, value in row.items() if not name.startswith("all_")}
            for row in self.looks
        ]
        goal = {"ess": self.until.ess, "rhat": self.until.rhat}
        return {"reason": self.reason or "interrupted", "goal": goal, "looks": plain}

    @property
    def _has_goal(self) -> bool:
        return self.until.ess is not None or self.until.rhat is not None

    def _met(self, row: dict[str, Any]) -> bool:
        return self._count_met(row) == len(row["all_ess"])

    def _count_met(self, row: dict[str, Any]) -> int:
        met = np.ones(len(row["all_ess"]), bool)
        if self.until.ess is not None:
            met &= np.asarray(row["all_ess"]) >= self.until.ess
        if self.until.rhat is not None:
            met &= np.asarray(row["all_rhat"]) <= self.until.rhat
        return int(met.sum())


def look(target: Target, positions: np.ndarray) -> dict[str, Any]:
    """The ESS and R-hat of every judged quantity, with the worst of each named."""
    rows = judged(target, positions)
    names, values = list(rows), np.stack(list(rows.values()), axis=2)
    # a quantity without a metric (too few draws, a constant) has not met the goal
    sizes = np.nan_to_num(ess(values), nan=0.0)
    ratios = np.nan_to_num(rhat(values), nan=np.inf, posinf=np.inf)
    return {
        "draws": positions.shape[1],
        "ess": float(sizes.min()),
        "least": names[int(sizes.argmin())],
        "rhat": float(ratios.max()),
        "most": names[int(ratios.argmax())],
        "all_ess": sizes.tolist(),
        "all_rhat": ratios.tolist(),
    }

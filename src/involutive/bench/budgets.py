"""Are budgets kept? `python -m involutive.bench.budgets`: 20 of them, evaluations and seconds.

A budget of evaluations is given to learning of a NumPy density, whose calls are counted where they
are made, and of a JAX density, which learning counts. It may not be exceeded by more than one batch
of `BLOCK` points. A budget of seconds is given to learning of a funnel; it may take a fifth longer,
or two seconds, beyond the end of the compilation that was running when the time was up: a
compilation cannot be interrupted. Compilations are timed by JAX's own events.
"""

import sys
import time
from collections.abc import Callable, Iterator
from typing import Annotated, NamedTuple

import jax
import numpy as np
import typer

from involutive import targets
from involutive._xla.batched import BLOCK
from involutive.core.text import markdown_table
from involutive.learning.budget import Budget
from involutive.learning.learn import learn
from involutive.targets.target import Target

EVALUATIONS = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
SECONDS = (2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 30.0, 60.0, 120.0)
SHARE, LEAST = 0.2, 2.0  # of a budget in seconds, and seconds, that it may be exceeded by
COMPILED = "/jax/core/compile/backend_compile_duration"


class Kept(NamedTuple):
    """One budget and what was spent.

    Attributes:
        what: "evaluations of NumPy", "evaluations of JAX" or "seconds".
        budget: as given.
        spent: evaluations, or seconds.
        allowed: the most that may be spent.
        ended: how learning said that it ended.
        advice: what it said to do.
    """

    what: str
    budget: float
    spent: float
    allowed: float
    ended: str
    advice: str

    @property
    def kept(self) -> bool:
        """Whether the budget was kept."""
        return self.spent <= self.allowed


def of_evaluations(count: int) -> Iterator[Kept]:
    """Learn a funnel in NumPy, and a normal in JAX, with so many evaluations."""

    def log_density(x: np.ndarray) -> float:
        calls[0] += 1
        with np.errstate(over="ignore"):  # far out the density is zero, which is what this gives
            return float(-(x[0] ** 2) / 18 - 0.5 * np.sum(x[1:] ** 2) * np.exp(-x[0]) - x[0])

    calls = [0]
    numpy = Target(log_density, 3, backend="numpy", name="numpy")
    calls[0] = 0
    outcome = learn(numpy, key=0, budget=Budget(evaluations=count), progress=False).outcome
    most = count + BLOCK
    yield Kept("evaluations of NumPy", count, calls[0], most, outcome.ended, outcome.advice)
    plain = targets.gaussian(2)
    outcome = learn(plain, key=0, budget=Budget(evaluations=count), progress=False).outcome
    spent = outcome.evaluations
    yield Kept("evaluations of JAX", count, spent, most, outcome.ended, outcome.advice)


def of_seconds(seconds: float, make: Callable[[], Target] = targets.funnel) -> Kept:
    """Learn within so many seconds, with nothing compiled before."""
    ends: list[tuple[float, float]] = []

    def note(event: str, duration_secs: float, **_: str | int) -> None:
        if event == COMPILED:
            ends.append((time.perf_counter(), duration_secs))

    target = make()
    jax.clear_caches()
    jax.monitoring.register_event_duration_secs_listener(note)
    began = time.perf_counter()
    try:
        outcome = learn(target, key=0, budget=seconds, progress=False).outcome
        spent = time.perf_counter() - began
    finally:
        jax.monitoring.clear_event_listeners()
    up = began + seconds
    running = [end - up for end, duration in ends if end - duration < up < end]
    allowed = seconds + max(running, default=0.0) + max(SHARE * seconds, LEAST)
    return Kept("seconds", seconds, spent, allowed, outcome.ended, outcome.advice)


def main(
    evaluations: Annotated[bool, typer.Option(help="Try budgets of evaluations.")] = True,
    seconds: Annotated[bool, typer.Option(help="Try budgets of seconds.")] = True,
) -> None:
    """Learn with 20 budgets and print what each spent."""
    rows = []

    def say(found: Kept) -> None:
        row = {
            "budget": f"{found.budget:g} {found.what}",
            "spent": found.spent,
            "allowed": found.allowed,
            "kept": found.kept,
            "ended": found.ended,
        }
        rows.append(row)
        sys.stdout.write(f"{row} {found.advice}\n")
        sys.stdout.flush()

    for count in EVALUATIONS if evaluations else ():
        for found in of_evaluations(count):
            say(found)
    for limit in SECONDS if seconds else ():
        say(of_seconds(limit))
    sys.stdout.write("\n" + markdown_table(rows))


if __name__ == "__main__":
    typer.run(main)

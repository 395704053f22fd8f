"""`python -m involutive.bench.frugal`: density evaluations up to 10⁴ effective draws, all counted.

Learning is frugal and gets the density and X = N(0, 3² I). Densities are called through the NumPy
door, where every call is counted: learning, starts, warm-up and draws. Chains are drawn until the
judge of the benchmark counts 10⁴ effective draws, and it says whether they are right. Two rows are
not of frugal learning from X: one with gradients, each counted as three evaluations, and one of
`learn(new, start=old)` beside a fresh learning of the new density, ordinary (`of fresh`) and frugal
(`of frugal`), as shares of their evaluations. Peers run with the benchmark's own settings.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import typer

from involutive import targets
from involutive._xla.batched import in_blocks
from involutive.bench.judge import judge
from involutive.bench.peers import installed, load
from involutive.bench.peers.base import Task
from involutive.bench.targets import Reference, summary, with_square
from involutive.core.text import markdown_table
from involutive.learning.judge.pilot import evaluations_per_step
from involutive.learning.learn import learn
from involutive.learning.outcome import Learned
from involutive.learning.settings import FrugalSettings, LearnSettings
from involutive.sampling.sample import sample
from involutive.targets.target import Target

GOAL = 10_000  # effective draws
CHAINS, MORE, MOST = 64, 1.05, 400  # MORE: margin on the draws that the promise asks for
EXACT = 100_000  # draws of a reference
FRUGAL = LearnSettings(frugal=FrugalSettings(on=True))
_NEVER = LearnSettings(frugal=FrugalSettings(on=False))
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A density, with the evaluations that may be spent; without a limit where none was set."""

    make: Callable[[], Target]
    most: int | None = None


CASES = {
    "mog6": Case(targets.mog6, 25_000),
    "ring5": Case(targets.ring5, 40_000),
    "two modes, 10-D": Case(lambda: targets.two_modes(10), 50_000),
    "eight modes, 20-D": Case(lambda: targets.eight_modes(20), 150_000),
}


def as_numpy(target: Target) -> Target:
    """A target called as a NumPy function of rows, whose every call is counted."""
    rows = jax.jit(jax.vmap(lambda x: jnp.asarray(target.log_density(x), float)))

    def log_density(points: np.ndarray) -> np.ndarray:
        size = 1 << (len(points) - 1).bit_length()  # few programs, whatever the number of rows
        return in_blocks(rows, np.asarray(points, float), size)

    return Target(log_density, target.dim, backend="numpy", vectorized=True, name=target.name)


def reference(target: Target) -> Reference:
    """Quantiles and moments of exact draws."""
    assert target.sample is not None
    exact = with_square(np.asarray(target.sample(jr.key(99), EXACT), np.float64))
    return summary(exact, EXACT)


def drawn(kernel: Learned, target: Target, known: Reference, seed: int, goal: int) -> Row:
    """Sample until the judge counts `goal` effective draws; the figures of the run."""
    per_draw = max(kernel.outcome.ess_per_draw, goal / (CHAINS * MOST))
    count = int(np.ceil(MORE * goal / per_draw / CHAINS))
    first = sample(kernel, key=seed, num_chains=CHAINS, num_samples=count, progress=False)
    verdict, parts, found = first.summary().verdict, [first.positions], None
    steps = kernel.warmup + count
    for turn in range(1, 20):
        figures = {
            "exchangeable": False, "setup_seconds": 1.0, "sampling_seconds": 1.0,
            "setup_evaluations": 0.0, "sampling_evaluations": 0.0,
        }  # fmt: skip
        found = judge(target, known, np.concatenate(parts, axis=1), figures)
        if found.ess >= goal or not found.correct:
            break
        more = int(np.ceil((goal / found.ess - 1) * sum(part.shape[1] for part in parts))) + 1
        again = sample(
            kernel, key=seed + turn, num_chains=CHAINS, num_samples=more, num_warmup=0,
            initial=parts[-1][:, -1], progress=False,
        )  # fmt: skip
        parts.append(again.positions)
        steps += more
    assert found is not None
    sampling = CHAINS * (steps * evaluations_per_step(kernel.kernel) + 1)
    return {
        "effective": found.ess, "right": found.correct, "wrong": found.wrong or found.unclear,
        "sampling": sampling, "verdict": verdict,
    }  # fmt: skip


def one(
    target: Target, seed: int, goal: int, start: Learned | None = None, gradients: bool = False
) -> tuple[Row, Learned]:
    """Learn frugally and draw; evaluations are calls, or counted where there are gradients."""
    seen = target if gradients else as_numpy(target)
    box = seen.black_box
    before = box.calls if box is not None else 0
    kernel = learn(seen, key=seed, start=start, settings=FRUGAL, progress=False)
    learning = kernel.outcome.evaluations if box is None else box.calls - before
    found = drawn(kernel, target, reference(target), 1000 + 100 * seed, goal)
    sampling = found["sampling"] if box is None else box.calls - before - learning
    row = {"learning": learning, "evaluations": learning + sampling, **found}
    return row | {"converged": kernel.outcome.converged}, kernel


def rows_of(name: str, case: Case, seeds: range, goal: int, gradients: bool) -> Row:
    """The worst of some seeds."""
    found = [one(case.make(), seed, goal, gradients=gradients)[0] for seed in seeds]
    worst = max(found, key=lambda row: row["evaluations"])
    label = f"{name}, with gradients" if gradients else name
    return _worst(label, worst, found, case.most)


def started(seeds: range, goal: int) -> Row:
    """Two modes in 10-D whose data has changed, from the kernel of the old density."""
    old = targets.two_modes(10)
    new = targets.two_modes(10, separation=9.0, weights=(0.5, 0.5))
    found = []
    for seed in seeds:
        kernel = one(old, seed, goal)[1]
        ordinary = learn(new, key=seed, settings=_NEVER, progress=False).outcome.evaluations
        frugal = learn(as_numpy(new), key=seed, settings=FRUGAL, progress=False).outcome.evaluations
        row = one(new, seed, goal, start=kernel)[0]
        shares = {"of fresh": row["learning"] / ordinary, "of frugal": row["learning"] / frugal}
        found.append(row | shares)
    worst = max(found, key=lambda row: row["of fresh"])
    row = _worst("two modes, 10-D, start=", worst, found, None)
    return row | {name: worst[name] for name in ("of fresh", "of frugal")}


def _worst(label: str, worst: Row, found: list[Row], most: int | None) -> Row:
    return {
        "target": label,
        "learning": worst["learning"],
        "evaluations": worst["evaluations"],
        "allowed": most or "-",
        "effective": round(min(row["effective"] for row in found)),
        "right": f"{sum(row['right'] for row in found)} of {len(found)}",
        "verdict": next((r["wrong"] for r in found if not r["right"]), worst["verdict"]),
    }


def of_peer(peer: str, name: str, case: Case, seed: int, goal: int) -> Row:
    """One peer on one target, as the benchmark runs it.

    Its evaluations are those up to the goal at its rate, of a wrong run all it made; `effective`
    is what its run had in the end.
    """
    target = case.make()
    run = load(peer).run(Task(peer, target, seed, 600.0, False))
    figures = {
        "exchangeable": run.exchangeable, "setup_seconds": run.setup_seconds,
        "sampling_seconds": run.sampling_seconds, "setup_evaluations": run.setup_evaluations,
        "sampling_evaluations": run.sampling_evaluations,
    }  # fmt: skip
    found = judge(target, reference(target), run.draws, figures)
    at_its_rate = found.evaluations_to.get(str(goal))
    return {
        "target": f"{name}, {peer}", "learning": run.setup_evaluations,
        "evaluations": found.evaluations if at_its_rate is None else round(at_its_rate),
        "allowed": "-", "effective": round(found.ess),
        "right": found.correct, "verdict": found.wrong or found.unclear,
    }  # fmt: skip


def table(
    names: list[str], seeds: range, goal: int, start: bool, gradients: bool, peers: list[str]
) -> Iterator[Row]:
    """Every row, as it is done."""
    for name in names:
        yield rows_of(name, CASES[name], seeds, goal, False)
        if gradients and name == "eight modes, 20-D":
            yield rows_of(name, CASES[name], seeds, goal, True)
        for peer in peers:
            yield of_peer(peer, name, CASES[name], 0, goal)
    if start:
        yield started(seeds, goal)


def main(
    seeds: Annotated[int, typer.Option(help="Seeds, of which the worst is shown.")] = 5,
    first: Annotated[int, typer.Option(help="The first of them.")] = 0,
    goal: Annotated[int, typer.Option(help="Effective draws.")] = GOAL,
    only: Annotated[list[str] | None, typer.Option(help="Targets; all by default.")] = None,
    start: Annotated[bool, typer.Option(help="Add the row of learn(new, start=old).")] = True,
    gradients: Annotated[bool, typer.Option(help="Add the row with gradients.")] = True,
    peers: Annotated[list[str] | None, typer.Option(help="Peers to run beside, once each.")] = None,
    ordinary: Annotated[bool, typer.Option(help="Print what ordinary learning takes.")] = False,
) -> None:
    """Print a table: evaluations to so many effective draws, worst of some seeds."""
    names = only or list(CASES)
    for name in names if ordinary else ():
        spent = learn(as_numpy(CASES[name].make()), key=0, settings=_NEVER, progress=False).outcome
        sys.stdout.write(f"{name}, ordinary learning: {spent.evaluations:,} evaluations\n")
    if ordinary:
        return
    rows = []
    known = [peer for peer in peers or [] if installed(peer)]
    for row in table(names, range(first, first + seeds), goal, start, gradients, known):
        rows.append({"of fresh": "-", "of frugal": "-"} | row)
        sys.stdout.write(f"{row}\n")
        sys.stdout.flush()
    sys.stdout.write("\n" + markdown_table(rows))


if __name__ == "__main__":
    typer.run(main)

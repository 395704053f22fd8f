"""How right log Z is, and how right its interval: `python -m involutive.bench.evidence`.

For targets whose integral is known, a kernel is learned for each of some seeds and `evidence` is
run for each of more seeds: mean absolute error of log Z, share of 95 % intervals that cover it, and
how often the figure was withheld. With `--refuse`, proposals made to miss a mode or a tail: how
often they are refused. Other samplers are beside it in `involutive bench --suite evidence`.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from flowjax.bijections import Identity

from involutive import targets
from involutive.auxiliary import GaussianMixture
from involutive.bench.field.synthetic import (
    NINE,
    NINE_SD,
    gaussian_log_z,
    many_well,
    many_well_log_z,
)
from involutive.bench.tables import print_each, print_table
from involutive.core.errors import check
from involutive.core.types import ArrayLike
from involutive.diagnostics.evidence import evidence
from involutive.involutions.blocks import FunctionBlock
from involutive.kernel.kernel import AbstractKernel, Kernel
from involutive.learning.learn import learn
from involutive.targets.target import Target

FORTY = np.random.default_rng(0).uniform(-40, 40, (40, 2))  # means
CORNERS = np.array([[-40.0, -40.0], [40.0, 40.0]])  # X of the 40 modes: all of the square


COVERED = (0.90, 0.98)  # shares of right 95 % intervals among 100 that are no surprise
REFUSED = 0.95  # share of proposals with a planted fault that must be refused


class Case(NamedTuple):
    """A target with its log Z, the mean absolute error allowed, and where to start."""

    target: Target
    log_z: float
    allowed: float
    initial: np.ndarray | None = None


def _forty() -> Case:
    return Case(targets.mixture(FORTY, name="forty"), gaussian_log_z(2), 0.005, CORNERS)


CASES: dict[str, Callable[[], Case]] = {
    "nine": lambda: Case(
        targets.mixture(NINE, sd=NINE_SD, name="nine"), gaussian_log_z(2, NINE_SD), 0.003
    ),
    "forty": _forty,
    "two": lambda: Case(targets.two_modes(10), gaussian_log_z(10), 0.003),
    "funnel": lambda: Case(targets.funnel(10), gaussian_log_z(1, 3.0) + gaussian_log_z(9), 0.01),
    "wells": lambda: Case(many_well(32), many_well_log_z(32), 0.03),
}


def run(name: str, kernels: int, seeds: int, num_samples: int) -> dict[str, Any]:
    """Learn `kernels` kernels, estimate with `seeds` seeds in all, and compare with the truth."""
    case = CASES[name]()
    off, inside, seconds, learning, evaluations = [], [], [], [], []
    withheld = doubted = 0
    for number in range(kernels):
        began = time.perf_counter()
        kernel = learn(case.target, key=number, initial=case.initial, progress=False)
        learning.append(time.perf_counter() - began)
        for seed in range(seeds // kernels):
            key = 1000 * (number + 1) + seed
            found = evidence(kernel, key=key, num_samples=num_samples, progress=False)
            seconds.append(found.seconds)
            evaluations.append(found.evaluations)
            withheld, doubted = withheld + found.withheld, doubted + (not found.trustworthy)
            if not found.withheld:
                off.append(abs(found.log_z - case.log_z))
                inside.append(found.lower <= case.log_z <= found.upper)
    error, covered = float(np.mean(off)) if off else np.inf, sum(inside) / len(seconds)
    return {
        "target": name,
        "kernels": kernels,
        "seeds": len(seconds),
        "mean absolute error": error,
        "allowed": case.allowed,
        "covered": f"{sum(inside)} of {len(seconds)}",
        "holds": error <= case.allowed and COVERED[0] <= covered <= COVERED[1],
        "withheld": withheld,
        "not trusted": doubted,
        "seconds learning": float(np.mean(learning)),
        "seconds evidence": float(np.median(seconds)),
        "evaluations": int(np.mean(evaluations)),
    }


def faults() -> dict[str, AbstractKernel]:
    """Proposals with a planted fault: each misses a mode or a tail."""
    two = targets.two_modes(10)
    half = np.full(10, 5 / np.sqrt(10))
    nine, forty = CASES["nine"]().target, CASES["forty"]().target
    variance = 1.2 * NINE_SD**2
    return {
        "nine modes, one missed": _from(nine, NINE[1:], variance),
        "nine modes, one too narrow": _from(nine, NINE, [0.15 * variance] + [variance] * 8),
        "forty modes, one missed": _from(forty, FORTY[1:], 1.2),
        "two modes in 10-D, one missed": _from(two, half[None], 1.2),
        "two modes in 10-D, too narrow": _from(two, [-half, half], 0.45),
        "funnel, the bulk alone": _from(targets.funnel(10), np.zeros((1, 10)), 1.0),
    }


def _from(target: Target, means: ArrayLike, variances: ArrayLike) -> Kernel:
    """A kernel that proposes from a mixture of round Gaussians of equal weight."""
    centres = np.asarray(means, float)
    count, dim = centres.shape
    covariances = np.multiply.outer(np.broadcast_to(variances, (count,)), np.eye(dim))
    law = GaussianMixture(np.full(count, 1 / count), centres, covariances)
    return Kernel(target, FunctionBlock(Identity((dim,))), law)


def refusals(seeds: int, num_samples: int) -> list[dict[str, Any]]:
    """How often each planted fault was refused."""
    rows = []
    for name, kernel in faults().items():
        refused = sum(
            not evidence(kernel, key=seed, num_samples=num_samples, progress=False).trustworthy
            for seed in range(seeds)
        )
        holds = refused >= REFUSED * seeds
        rows.append({"fault": name, "refused": f"{refused} of {seeds}", "holds": holds})
    return rows


def main(
    names: Annotated[str, typer.Option("--targets", help="Names with commas.")] = ",".join(CASES),
    kernels: Annotated[int, typer.Option(help="Kernels learned for each target.")] = 5,
    seeds: Annotated[int, typer.Option(help="Runs of evidence for each target.")] = 100,
    samples: Annotated[int, typer.Option(help="Draws of the proposal in each.")] = 20_000,
    refuse: Annotated[bool, typer.Option("--refuse", help="Planted faults instead.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the table here.")] = None,
) -> None:
    """Print a table of how right log Z is."""
    check(1 <= kernels <= seeds, f"--kernels must be from 1 to {seeds}, the seeds, got {kernels}")
    if refuse:
        print_table(refusals(seeds, samples), out)
        return
    rows = (run(name, kernels, seeds, samples) for name in names.split(","))
    print_table(print_each(rows), out)


if __name__ == "__main__":
    typer.run(main)

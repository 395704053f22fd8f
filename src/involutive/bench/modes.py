"""How many modes `draws.modes()` finds, and how right their weights are.

`python -m involutive.bench.modes` learns a kernel for each density, samples with it for every seed
and compares: the number of modes with the known one, and every weight with the exact one in units
of its stated error. With `--exact` the draws are exact ones of the density, so that nothing but
`modes()` is measured. A ring and a banana are one mode each.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import typer
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from jax.scipy.stats import t as student
from jaxtyping import Array, Float, Key, Scalar

from involutive import targets
from involutive.bench.tables import print_each, print_table
from involutive.core.errors import check
from involutive.learning.learn import learn
from involutive.sampling.draws import Draws
from involutive.sampling.sample import sample
from involutive.targets.benchmarks import concentric_rings
from involutive.targets.target import Modes, Target, Vector

CHAINS, DRAWS = 64, 500
RIGHT = 0.95  # share of seeds in which the number must be right: 19 of 20
TWO_ERRORS = 0.9545  # share of normal errors within two sds: what right errors would give
CHANCE = 3.0  # sds of that share, by which right errors fall short in 1 of 700 rows
APART = 5.0  # least distance of the 40 means, in sds: nearer ones may share one hill


class Case(NamedTuple):
    """A density with exact draws, how many modes it has, and where learning starts."""

    target: Target
    modes: int
    initial: np.ndarray | None = None


def _banana() -> Target:
    """`x₁` follows a parabola of `x₀`: one curved mode."""

    def log_density(x: Vector) -> Scalar:
        return -0.5 * (x[0] ** 2 / 9 + (x[1] - 0.5 * x[0] ** 2) ** 2)

    def draw(key: Key[Array, ""], n: int) -> Float[Array, "n 2"]:
        z = jr.normal(key, (n, 2))
        return jnp.stack([3 * z[:, 0], z[:, 1] + 4.5 * z[:, 0] ** 2], axis=1)

    return Target(log_density, 2, name="banana", sample=draw)


def _forty() -> Target:
    """40 equal unit Gaussians, their means uniform on [-40, 40]² but `APART`."""
    rng, means = np.random.default_rng(0), list[np.ndarray]()
    while len(means) < 40:
        new = rng.uniform(-40, 40, 2)
        if all(np.linalg.norm(new - mean) > APART for mean in means):
            means.append(new)
    return targets.mixture(np.array(means), name="forty")


def _labels() -> Target:
    """Four means without an order: 24 equal Gaussians of sd 0.5 at the permutations of four."""
    return targets.mixture(list(itertools.permutations([-6.0, -2.0, 2.0, 6.0])), sd=0.5)


def _tails() -> Target:
    """Two modes with tails so heavy that draws have no variance: products of t with 1.5 degrees."""
    degrees, means, sds, weights = 1.5, jnp.array([-8.0, 8.0]), jnp.array([0.5, 1.0]), (0.3, 0.7)

    def joint(x: Vector) -> Float[Array, " 2"]:
        rows = (x[None] - means[:, None]) / sds[:, None]
        each = jnp.sum(student.logpdf(rows, degrees), axis=1) - 2 * jnp.log(sds)
        return each + jnp.log(jnp.array(weights))

    def draw(key: Key[Array, ""], n: int) -> Float[Array, "n 2"]:
        key_mode, key_tails = jr.split(key)
        mode = jr.choice(key_mode, 2, (n,), p=jnp.array(weights))
        tails = jr.t(key_tails, degrees, (n, 2))
        return means[mode][:, None] + sds[mode][:, None] * tails

    # the more probable component; about as many draws are taken for the one as for the other
    modes = Modes(lambda x: jnp.argmax(joint(x)), weights)
    return Target(lambda x: logsumexp(joint(x)), 2, name="tails", sample=draw, modes=modes)


def _funnels() -> Target:
    """Two funnels side by side, opening in opposite directions; `x₅` tells them apart."""
    centres, signs, weights = jnp.array([-4.0, 4.0]), jnp.array([1.0, -1.0]), (0.35, 0.65)

    def log_density(x: Vector) -> Scalar:
        widths = jnp.exp(signs * x[0] / 2)
        rest = jnp.sum(norm.logpdf(x[None, 1:5], 0.0, widths[:, None]), axis=1)
        each = norm.logpdf(x[0], 0.0, 1.5) + rest + norm.logpdf(x[5], centres, 0.5)
        return logsumexp(each + jnp.log(jnp.array(weights)))

    def draw(key: Key[Array, ""], n: int) -> Float[Array, "n 6"]:
        key_mode, key_draw = jr.split(key)
        mode = jr.choice(key_mode, 2, (n,), p=jnp.array(weights))
        z = jr.normal(key_draw, (n, 6))
        scale = 1.5 * z[:, :1]
        rest = z[:, 1:5] * jnp.exp(signs[mode][:, None] * scale / 2)
        return jnp.concatenate([scale, rest, centres[mode][:, None] + 0.5 * z[:, 5:]], axis=1)

    modes = Modes(lambda x: jnp.asarray(x[5] > 0, int), weights)
    return Target(log_density, 6, name="funnels", sample=draw, modes=modes)


CASES: dict[str, Callable[[], Case]] = {
    "two": lambda: Case(targets.two_modes(10), 2),
    "six": lambda: Case(targets.mog6(), 6),
    "forty": lambda: Case(_forty(), 40, np.array([[-40.0, -40.0], [40.0, 40.0]])),
    "rings": lambda: Case(concentric_rings([1.0, 2.0, 3.0, 4.0], 0.2, "rings"), 4),
    "banana": lambda: Case(_banana(), 1),
    "labels": lambda: Case(_labels(), 24),
    "tails": lambda: Case(_tails(), 2),
    "funnels": lambda: Case(_funnels(), 2),
}


def exact_draws(target: Target, seed: int, chains: int = CHAINS, count: int = DRAWS) -> Draws:
    """Exact draws of a target as a run of chains."""
    assert target.sample is not None
    positions = np.asarray(target.sample(jr.key(seed), chains * count)).reshape(chains, count, -1)
    values = np.asarray(jax.vmap(jax.vmap(target.log_density))(jnp.asarray(positions)))
    ones, none = np.ones((chains, count)), np.zeros(chains, int)
    return Draws(positions, values, ones.astype(bool), ones, none, none, none.astype(bool), target)


def in_errors(draws: Draws) -> np.ndarray:
    """How far the weight of every mode found is from the exact one, in its stated errors.

    A mode found stands for the cell of the exact partition that most of its draws lie in.
    """
    found, modes = draws.modes(), draws.target.modes
    cells, exact = np.zeros(found.labels.shape, int), np.ones(1)
    if modes is not None:
        cells = np.asarray(jax.vmap(jax.vmap(modes.label))(jnp.asarray(draws.positions)))
        exact = np.asarray(modes.weights)
    most = [np.bincount(cells[found.labels == k]).argmax() for k in range(len(found))]
    off = np.abs(found.weights - exact[most])
    return np.where(off > 0, off / np.maximum(found.errors, np.finfo(float).tiny), 0.0)


def run(name: str, seeds: int, kernels: int, exact: bool) -> dict[str, Any]:
    """Draw with `seeds` seeds in all, by `kernels` learned kernels, and compare with the truth."""
    case = CASES[name]()
    numbers, off, learning, finding = list[int](), list[np.ndarray](), 0.0, list[float]()
    for number in range(1 if exact else kernels):
        began = time.perf_counter()
        draw = _sampler(case, number, exact)
        learning += time.perf_counter() - began
        for seed in range(seeds if exact else seeds // kernels):
            draws = draw(1000 * (number + 1) + seed)
            began = time.perf_counter()
            numbers.append(len(draws.modes()))
            finding.append(time.perf_counter() - began)
            if numbers[-1] == case.modes:
                off.append(in_errors(draws))
    return row_of(name, case.modes, numbers, off) | {
        "learning seconds": 0.0 if exact else learning / kernels,
        "seconds of modes()": float(np.median(finding)),
    }


def _sampler(case: Case, number: int, exact: bool) -> Callable[[int], Draws]:
    """What makes draws of a seed: chains of a learned kernel, or the density's exact draws."""
    if exact:
        return lambda seed: exact_draws(case.target, seed)
    kernel = learn(case.target, key=number, initial=case.initial, progress=False)
    return lambda seed: sample(
        kernel, key=seed, num_chains=CHAINS, num_samples=DRAWS, progress=False
    )


def row_of(
    name: str, modes: int, numbers: Sequence[int], off: Sequence[np.ndarray]
) -> dict[str, Any]:
    """The row of a density; weights are those of the seeds whose number of modes is right.

    It holds if the number is right in `RIGHT` of the seeds, and if no fewer weights are within two
    errors than right errors would give by chance.
    """
    right = sum(number == modes for number in numbers)
    errors = np.concatenate(off) if off else np.zeros(0)
    inside = int(np.sum(errors <= 2))
    independent = max(len(off) * max(modes - 1, 1), 1)  # weights sum to one
    allowed = TWO_ERRORS - CHANCE * np.sqrt(TWO_ERRORS * (1 - TWO_ERRORS) / independent)
    return {
        "density": name,
        "modes": modes,
        "right number": f"{right} of {len(numbers)}",
        "weights within two errors": f"{inside} of {errors.size}",
        "largest, in errors": float(errors.max(initial=0.0)),
        "holds": right >= RIGHT * len(numbers) and bool(inside >= allowed * errors.size),
    }


def main(
    names: Annotated[str, typer.Option("--targets", help="Names with commas.")] = ",".join(CASES),
    seeds: Annotated[int, typer.Option(help="Runs of chains for each density.")] = 20,
    kernels: Annotated[int, typer.Option(help="Kernels learned for each density.")] = 1,
    exact: Annotated[bool, typer.Option("--exact", help="Exact draws, no kernels.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the table here.")] = None,
) -> None:
    """Print a table of how many modes were found, and how right their weights are."""
    check(1 <= kernels <= seeds, f"--kernels must be from 1 to {seeds}, the seeds, got {kernels}")
    rows = (run(name, seeds, kernels, exact) for name in names.split(","))
    print_table(print_each(rows), out)


if __name__ == "__main__":
    typer.run(main)

"""Every case of the reach table: a target, quantities that are known of it, and its bar."""

from collections.abc import Callable
from functools import cache
from itertools import permutations
from typing import NamedTuple

import numpy as np
from scipy.integrate import quad

from involutive.bench.field.synthetic import published_uniform
from involutive.bench.reach import densities
from involutive.targets.benchmarks import funnel
from involutive.targets.target import Target

Quantities = Callable[[np.ndarray], dict[str, np.ndarray]]
LABEL_MEANS = np.array([-6.0, -2.5, 1.0, 4.5, 8.0])
LABEL_ROWS = 60  # observations per label


class Case(NamedTuple):
    """A density, what its draws must show, and what the issue asks for.

    Attributes:
        target: the density.
        quantities: draws `(n, dim)` to named 0/1 or real columns whose means are compared.
        truth: the exact mean of each, or None where a long reference is needed.
        bar: effective draws per draw asked for; 0 where only correctness is.
        log_z: the exact log integral, where it is known.
        tolerance: allowed errors of means in their own units, beside four Monte Carlo errors.
    """

    target: Target
    quantities: Quantities
    truth: dict[str, float]
    bar: float
    log_z: float | None = None
    tolerance: float = 0.0


def _well(power: int) -> float:
    """`∫ x^power p(x)` of one well coordinate, not normalised."""
    return quad(lambda x: x**power * np.exp(-(x**4) + 6 * x**2 + 0.5 * x), -6, 6)[0]


def many_well(dim: int, bar: float) -> Case:
    right = quad(lambda x: np.exp(-(x**4) + 6 * x**2 + 0.5 * x), 0, 6)[0] / _well(0)
    log_z = dim / 2 * (np.log(_well(0)) + 0.5 * np.log(2 * np.pi))
    return Case(
        Target(densities.many_well(dim), dim, name=f"many_well({dim})"),
        lambda x: {f"right {i}": x[:, i] > 0 for i in range(0, dim, 2)},
        {f"right {i}": right for i in range(0, dim, 2)},
        bar,
        log_z,
    )


def normals(name: str, means: np.ndarray, sds: np.ndarray, weights: np.ndarray, bar: float) -> Case:
    weights = weights / weights.sum()

    def nearest(x: np.ndarray) -> dict[str, np.ndarray]:
        squares = np.stack([np.sum((x - mean) ** 2, axis=1) for mean in means], axis=1)
        level = np.log(weights) - means.shape[1] * np.log(sds)
        label = np.argmax(level - 0.5 * squares / sds**2, axis=1)
        return {f"mode {k}": label == k for k in range(len(means))}

    target = Target(densities.normals(means, sds, weights), means.shape[1], name=name)
    truth = {f"mode {k}": float(w) for k, w in enumerate(weights)}
    return Case(target, nearest, truth, bar, 0.0)


def students(dim: int, count: int, bar: float, tolerance: float) -> Case:
    means = np.random.default_rng(1).uniform(-10, 10, (count, dim))

    def nearest(x: np.ndarray) -> dict[str, np.ndarray]:
        heights = [np.sum(-1.5 * np.log1p(0.5 * (x - m) ** 2), axis=1) for m in means]
        label = np.argmax(heights, axis=0)
        return {f"mode {k}": label == k for k in range(count)}

    target = Target(densities.student_products(means), dim, name=f"students({dim})")
    log_z = float(np.log(count) + dim * np.log(2 * np.sqrt(2.0)))
    truth = {f"mode {k}": 1 / count for k in range(count)}
    return Case(target, nearest, truth, bar, log_z, tolerance)


def labels(count: int) -> Case:
    rng = np.random.default_rng(count)
    data = np.concatenate([m + rng.normal(size=LABEL_ROWS) for m in LABEL_MEANS[:count]])
    orders = list(permutations(range(count)))

    def order(x: np.ndarray) -> dict[str, np.ndarray]:
        ranks = np.argsort(x[:, :count], axis=1)
        return {str(o): np.all(ranks == np.array(o), axis=1) for o in orders}

    target = Target(densities.free_labels(data, count), 3 * count, name=f"labels({count})")
    return Case(target, order, {str(o): 1 / len(orders) for o in orders}, 0.3)


def _signs(x: np.ndarray) -> dict[str, np.ndarray]:
    return {"positive": x.mean(axis=1) > 0}


def _nothing(x: np.ndarray) -> dict[str, np.ndarray]:
    return {"|x|²": np.sum(x**2, axis=1)}


def _neck(x: np.ndarray) -> dict[str, np.ndarray]:
    return {f"log τ < {v}": x[:, 1] < v for v in (-1.0, 0.0, 1.0, 2.0)} | {"μ": x[:, 0]}


def _scale(x: np.ndarray) -> dict[str, np.ndarray]:
    return {f"x[0] < {v}": x[:, 0] < v for v in (-4.0, -2.0, 0.0, 2.0, 4.0)}


def _arms(x: np.ndarray) -> dict[str, np.ndarray]:
    shares = {f"x[0] < {v}": x[:, 0] < v for v in (-3.0, -1.0, 1.0, 3.0)}
    return shares | {f"x[{i}] > 0": x[:, i] > 0 for i in range(1, 5)}


def _normal_below(values: tuple[float, ...], sd: float, name: str) -> dict[str, float]:
    from scipy.stats import norm

    return {f"{name} < {v}": float(norm.cdf(v / sd)) for v in values}


@cache
def _schools_truth() -> dict[str, float]:
    """By quadrature over log τ and μ: given both, the effects integrate out."""
    taus, means = np.linspace(-8, 6, 1401), np.linspace(-40, 40, 801)
    log_tau, mean = np.meshgrid(taus, means, indexing="ij")
    tau = np.exp(log_tau)
    value = -0.5 * (mean / 5) ** 2 - np.log1p((tau / 5) ** 2) + log_tau
    for y, s in zip(densities.SCHOOLS, densities.ERRORS, strict=True):
        variance = tau**2 + s**2
        value += -0.5 * np.log(variance) - 0.5 * (y - mean) ** 2 / variance
    weight = np.exp(value - value.max())
    weight /= weight.sum()
    found = {f"log τ < {v}": float(weight[taus < v].sum()) for v in (-1.0, 0.0, 1.0, 2.0)}
    return found | {"μ": float(np.sum(weight * mean))}


def _ten(dim: int) -> Case:
    means = np.random.default_rng(0).normal(size=(10, dim)) * 3
    return normals("ten", means, np.ones(10), np.ones(10), 0.5)


def _widths(dim: int) -> Case:
    means = np.stack([np.full(dim, -1.5), np.full(dim, 1.5)])
    return normals("widths", means, np.array([1.0, 0.5]), np.array([0.7, 0.3]), 0.3)


def _forty(dim: int, bar: float) -> Case:
    means = published_uniform((40, dim), 40.0)
    return normals(f"gmm40({dim})", means, np.ones(40), np.ones(40), bar)


def _plain(
    density: densities.LogDensity, dim: int, name: str, quantities: Quantities, bar: float,
    truth: dict[str, float] | None = None,
) -> Case:  # fmt: skip
    return Case(Target(density, dim, name=name), quantities, truth or {}, bar)


CASES: dict[str, Callable[[], Case]] = {
    "many_well_32": lambda: many_well(32, 0.5),
    "many_well_64": lambda: many_well(64, 0.0),
    "many_well_128": lambda: many_well(128, 0.0),
    "gmm40": lambda: _forty(2, 0.85),
    "ten_50": lambda: _ten(50),
    "widths_100": lambda: _widths(100),
    "students_10": lambda: students(10, 4, 0.2, 0.0),
    "students_50": lambda: students(50, 4, 0.0, 0.03),
    "labels_3": lambda: labels(3),
    "labels_4": lambda: labels(4),
    "labels_5": lambda: labels(5),
    "phi4": lambda: _plain(densities.phi4(8), 64, "phi4", _signs, 0.2, {"positive": 0.5}),
    "dw4": lambda: _plain(densities.double_well_particles, 8, "dw4", _nothing, 0.2),
    "lj13": lambda: _plain(densities.lennard_jones(), 39, "lj13", _nothing, 0.0),
    "eight_schools": lambda: _plain(
        densities.eight_schools, 10, "eight_schools", _neck, 0.2, _schools_truth()
    ),
    "funnel_20": lambda: Case(
        funnel(20), _scale, _normal_below((-4.0, -2.0, 0.0, 2.0, 4.0), 3.0, "x[0]"), 0.2
    ),
    "valley": lambda: _plain(
        densities.valley, 5, "valley", _arms, 0.1,
        _normal_below((-3.0, -1.0, 1.0, 3.0), 2.0, "x[0]")
        | {f"x[{i}] > 0": 0.5 for i in range(1, 5)},
    ),
}  # fmt: skip

"""The modes of a run: groups of draws joined by density, with their weights and what is in each."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

import numpy as np
from scipy.spatial import KDTree

from involutive._xla.batched import BatchedDensity
from involutive._xla.cost import SEARCH_OPERATIONS, affordable, operations
from involutive.core.errors import InputError, check
from involutive.core.statistics import mcse
from involutive.core.text import decimal, html_table, text_table
from involutive.diagnostics.circular import circular_mean_sd
from involutive.diagnostics.hills import hills, widths
from involutive.diagnostics.measured import Estimate, Evidence
from involutive.sampling.draws import Draws
from involutive.sampling.quantities import Quantities, quantities

LOOKED_AT = 1500  # draws that climb; the others belong to the mode of the nearest of these
FEW = 200  # the same for a density of much work
FEWEST = 3  # draws of these that a mode must hold; fewer belong to the nearest mode; a guess
SHOWN = 12  # modes named in one line


@dataclass(frozen=True)
class Mode:
    """One mode.

    Attributes:
        weight: the share of draws in it.
        error: the Monte Carlo standard error of that share.
        mean, sd: of every parameter inside the mode, by name; of an angle, those of a circle.
        log_density: the highest log density of its draws.
        chains: how many chains visited it.
        log_z: the mode's own log Z, where the evidence is known.

    Example:
        >>> import involutive as inv
        >>> mode = inv.Mode(0.4, 0.01, {"x": 2.0}, {"x": 0.5}, -1.2, chains=8)
        >>> mode.weight, mode.mean["x"]
        (0.4, 2.0)
    """

    weight: float
    error: float
    mean: dict[str, float]
    sd: dict[str, float]
    log_density: float
    chains: int
    log_z: Estimate | None = None


@dataclass(frozen=True, repr=False)
class Modes:
    """The modes of a run, the heaviest first.

    Attributes:
        each: the modes.
        labels: `(chains, draws)`, the mode that each draw lies in.
        changes: how often a chain changed its mode, per draw.
        target: what was sampled.

    Example:
        >>> import involutive as inv
        >>> kernel = inv.hmc(inv.targets.mog2(), step_size=0.2, num_steps=5)
        >>> found = inv.sample(kernel, key=0, num_chains=8, num_samples=50).modes()
        >>> abs(sum(mode.weight for mode in found.each) - 1) < 1e-6
        True
    """

    each: tuple[Mode, ...]
    labels: np.ndarray = field(compare=False)
    changes: float
    target: str = "target"

    def __len__(self) -> int:
        return len(self.each)

    def __iter__(self) -> Iterator[Mode]:
        return iter(self.each)

    def __getitem__(self, number: int) -> Mode:
        return self.each[number]

    @property
    def weights(self) -> np.ndarray:
        """The share of draws in every mode."""
        return np.array([mode.weight for mode in self.each])

    @property
    def errors(self) -> np.ndarray:
        """The Monte Carlo errors of the weights."""
        return np.array([mode.error for mode in self.each])

    @property
    def line(self) -> str:
        """One line: "one mode", or how many with their weights."""
        if len(self) == 1:
            return "one mode"
        parts = [_weight(mode) for mode in self.each[:SHOWN]]
        more = ", …" if len(self) > SHOWN else ""
        return f"{len(self)} modes: {', '.join(parts)}{more}; {self._moves()}"

    def _moves(self) -> str:
        if self.changes == 0:
            return "no chain ever changed its mode"
        return f"a chain changes its mode every {1 / self.changes:.3g} draws"

    def table(self) -> list[dict[str, str]]:
        """One row per mode, with as many digits as the errors allow."""
        rows = []
        for number, mode in enumerate(self.each):
            row = {"mode": str(number), "weight": _weight(mode), "chains": str(mode.chains)}
            if mode.log_z is not None:
                row["log Z"] = str(mode.log_z)
            for name, centre in mode.mean.items():
                spread = mode.sd[name]
                row[name] = f"{decimal(centre, spread)} ± {decimal(spread, spread)}"
            rows.append(row)
        return rows

    def __str__(self) -> str:
        table = text_table(self.table())
        return f"{self.target}: {self.line}\n{table}\n(parameters: mean ± sd inside)"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<div><p>{escape(self.line)}</p>{html_table(self.table())}</div>"


def modes_of(draws: Draws, evidence: Evidence | None = None) -> Modes:
    """Find the modes of a run; see `Draws.modes`."""
    found = type(evidence).__name__
    check(
        evidence is None or isinstance(evidence, Evidence),
        f"evidence must come from inv.evidence, got {found}",
    )
    labels = _labels(draws)
    counts = np.bincount(labels.ravel())
    order = np.argsort(-counts, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    labels = place[labels]
    known = draws.derived or quantities(draws.target, draws.positions)
    each = tuple(_mode(draws, labels == number, known, evidence) for number in range(order.size))
    changes = float(np.mean(labels[:, 1:] != labels[:, :-1])) if labels.shape[1] > 1 else 0.0
    return Modes(each, labels, changes, draws.target.name)


def _mode(draws: Draws, inside: np.ndarray, known: Quantities, evidence: Evidence | None) -> Mode:
    weight = float(inside.mean())
    error = float(np.nan_to_num(mcse(inside.astype(float)))) if not inside.all() else 0.0
    log_z = None
    if evidence is not None and not evidence.withheld:
        spread = float(np.hypot(evidence.error, error / weight))
        log_z = Estimate(evidence.log_z + float(np.log(weight)), spread)
    angles = known.angles()
    found = {name: _mean_sd(values[inside], angles.get(name))
             for name, values in known.scalars().items()}  # fmt: skip
    return Mode(
        weight=weight,
        error=error,
        mean={name: mean for name, (mean, _) in found.items()},
        sd={name: sd for name, (_, sd) in found.items()},
        log_density=float(np.max(draws.log_density[inside])),
        chains=int(inside.any(axis=1).sum()),
        log_z=log_z,
    )


def _mean_sd(values: np.ndarray, ends: tuple[float, float] | None) -> tuple[float, float]:
    """Mean and sd of one quantity; of an angle, whose circle has those ends, the circular ones."""
    if ends is not None:
        return circular_mean_sd(values, ends)
    return float(values.mean()), float(values.std())


def _labels(draws: Draws) -> np.ndarray:
    """The hill of every draw."""
    if draws.derived is not None:
        labels = draws.derived.mode if draws.derived.hill is None else draws.derived.hill
        if labels is None:
            raise InputError(
                "modes needs the density, and draws read from a file do not hold it; call modes() "
                "before they are written, or sample again"
            )
        return np.unique(labels, return_inverse=True)[1].reshape(draws.log_density.shape)
    flat = draws.positions.reshape(-1, draws.positions.shape[2])
    most = max(FEW, int(LOOKED_AT * affordable(_work(draws), SEARCH_OPERATIONS)))
    some = _some(flat, draws.log_density.ravel(), most)
    if len(some) < 2:
        return np.zeros(draws.log_density.shape, int)
    rows = BatchedDensity(draws.target.log_density, draws.target.dim)
    number = hills(rows, some, uphill=draws.target.has_gradient)
    scale = widths(some)
    large = np.bincount(number)[number] >= FEWEST
    large = large if large.any() else np.ones_like(large)
    _, number = np.unique(number[large], return_inverse=True)
    nearest = KDTree(some[large] / scale).query(flat / scale, workers=-1)[1]
    return np.unique(number[nearest], return_inverse=True)[1].reshape(draws.log_density.shape)


def _some(flat: np.ndarray, log_density: np.ndarray, most: int) -> np.ndarray:
    """At most `most` different draws, spread over the run."""
    fine = np.flatnonzero(np.isfinite(log_density))
    at = fine[np.unique(np.linspace(0, len(fine) - 1, min(4 * most, len(fine))).astype(int))]
    rows = np.unique(flat[at], axis=0) if len(at) else flat[:0]
    # sorted by the first coordinate now: every k-th still covers all of it
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int))]


def _weight(mode: Mode) -> str:
    return f"{decimal(mode.weight, mode.error)} ± {decimal(mode.error, mode.error)}"


def line_of(draws: Draws) -> str | None:
    """The line on modes of a summary; None if the density is not available or is expensive."""
    if draws.derived is not None:
        known = draws.derived.hill is not None or draws.derived.mode is not None
        return draws.modes().line if known else None
    if "_modes" not in draws.__dict__ and _work(draws) > SEARCH_OPERATIONS:
        return None
    return draws.modes().line


def _work(draws: Draws) -> float:
    return operations(draws.target.log_density, draws.target.dim)

"""The quantities that are judged: variables as users know them, coordinates, |x|², modes.

A chain can look converged in every coordinate and still miss the target: a rotation keeps |x|², and
a chain that never leaves a mode keeps its indicator 1{x in mode k}. So every metric of a run is the
worst over all of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from involutive._xla.batched import in_blocks
from involutive.targets.target import Target

ROWS = 65_536  # positions per compiled call, so that little device memory is needed


@dataclass(frozen=True, repr=False)
class Quantities:
    """The quantities by which a run is judged.

    Attributes:
        variables: `(chains, draws, ...)` by name, constrained as the target reports them.
        positions: `(chains, draws, dim)`, flat and unconstrained.
        mode: `(chains, draws)`, the mode each draw lies in, where the target names modes.
        weights: the exact weight of every mode.
        hill: `(chains, draws)`, the mode that `Draws.modes` found for each draw, read from a file.
        dims, coords: names of the axes of the variables, and of the places along them.
        periods: the ends of the circle of every variable that is an angle.
        declared: whether the variables are declared parameters and stand for the coordinates.
    """

    variables: dict[str, np.ndarray]
    positions: np.ndarray
    mode: np.ndarray | None = None
    weights: tuple[float, ...] | None = None
    hill: np.ndarray | None = None
    dims: Mapping[str, Any] = field(default_factory=dict)
    coords: Mapping[str, Any] = field(default_factory=dict)
    periods: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    declared: bool = False

    def part(self, draws: slice) -> "Quantities":
        """The quantities of some of the draws of every chain."""
        return replace(
            self,
            variables={name: values[:, draws] for name, values in self.variables.items()},
            positions=self.positions[:, draws],
            mode=None if self.mode is None else self.mode[:, draws],
            hill=None if self.hill is None else self.hill[:, draws],
        )

    def scalars(self) -> dict[str, np.ndarray]:
        """Every element of every variable, `(chains, draws)`, by a name such as `theta[2]`."""
        rows: dict[str, np.ndarray] = {}
        for name, values in self.variables.items():
            for index in np.ndindex(values.shape[2:]):
                places = ", ".join(self._place(name, axis, i) for axis, i in enumerate(index))
                rows[f"{name}[{places}]" if index else name] = values[(..., *index)]
        return rows

    def coordinates(self) -> dict[str, np.ndarray]:
        """The flat coordinates; under the variables' names where the two are the same numbers.

        Declared parameters stand for the coordinates, each angle by its cosine and sine.
        """
        if self.declared:
            return self.directions()
        scalars, columns = self.scalars(), np.moveaxis(self.positions, 2, 0)
        same = len(scalars) == len(columns) and all(
            np.array_equal(a, b) for a, b in zip(scalars.values(), columns, strict=True)
        )
        return scalars if same else {f"flat[{i}]": column for i, column in enumerate(columns)}

    def angles(self) -> dict[str, tuple[float, float]]:
        """The elements of variables that are angles, by name, with the ends of their circle."""
        return {
            name: ends
            for name in self.scalars()
            if (ends := self.periods.get(name.split("[")[0])) is not None
        }

    def directions(self) -> dict[str, np.ndarray]:
        """Every element of every variable, an angle as its cosine and sine."""
        rows, angles = {}, self.angles()
        for name, values in self.scalars().items():
            if name not in angles:
                rows[name] = values
                continue
            turn = as_turn(values, angles[name])
            rows |= {f"cos {name}": np.cos(turn), f"sin {name}": np.sin(turn)}
        return rows

    def unwrapped(self) -> dict[str, np.ndarray]:
        """Every element of every variable, an angle within half a turn of its mean: to plot."""
        rows = self.scalars()
        for name, ends in self.angles().items():
            turn, unit = as_turn(rows[name], ends), (ends[1] - ends[0]) / (2 * np.pi)
            mean = mean_turn(turn)
            rows[name] = ends[0] + unit * (mean + np.mod(turn - mean + np.pi, 2 * np.pi) - np.pi)
        return rows

    def shape(self) -> dict[str, np.ndarray]:
        """|x|² and, where modes are known, the indicator of each."""
        rows = {"|x|²": np.sum(np.asarray(self.positions, np.float64) ** 2, axis=2)}
        if self.mode is not None:
            modes = range(len(self.weights or ()))
            rows |= {f"mode {k}": (self.mode == k).astype(float) for k in modes}
        return rows

    def judged(self) -> dict[str, np.ndarray]:
        """Coordinates, |x|² and mode indicators, over which ESS per draw is the minimum."""
        return self.coordinates() | self.shape()

    def _place(self, name: str, axis: int, i: int) -> str:
        names = self.dims.get(name, ())
        values = self.coords.get(names[axis]) if axis < len(names) else None
        return str(i if values is None else np.asarray(values)[i])


def quantities(target: Target, positions: np.ndarray) -> Quantities:
    """Compute the quantities of draws `(chains, draws, dim)` of a target."""
    mode, weights = None, None
    if target.modes is not None:
        mode, weights = over(target.modes.label, positions), target.modes.weights
    labels = target.labels
    unordered = over(target.constrain, positions)
    variables = {name: unordered[name] for name in _names(target)}
    return Quantities(
        variables, positions, mode, weights, None,
        labels.dims, labels.coords, labels.periods, labels.declared,
    )  # fmt: skip


def mean_turn(turn: np.ndarray) -> float:
    """The mean direction of angles in radians, from 0 to 2π."""
    return float(np.mod(np.arctan2(np.sin(turn).mean(), np.cos(turn).mean()), 2 * np.pi))


def as_turn(values: np.ndarray, ends: tuple[float, float]) -> np.ndarray:
    """Values on a circle with those ends as angles in radians."""
    return 2 * np.pi * (np.asarray(values, np.float64) - ends[0]) / (ends[1] - ends[0])


def judged(target: Target, positions: np.ndarray) -> dict[str, np.ndarray]:
    """The judged quantities alone, under flat names; for checks during a run.

    Declared parameters are judged themselves, since the coordinates of an angle say little of it.
    """
    if target.labels.declared:
        return quantities(target, positions).judged()
    names = {f"x[{i}]": positions[..., i] for i in range(positions.shape[2])}
    mode = None if target.modes is None else over(target.modes.label, positions)
    weights = None if target.modes is None else target.modes.weights
    return names | Quantities({}, positions, mode, weights).shape()


def _names(target: Target) -> list[str]:
    """The variables in the model's own order, which JAX's dicts do not keep."""
    names: list[str] = []

    def record(x: Array) -> int:
        names.extend(target.constrain(x))
        return 0

    jax.eval_shape(record, jax.ShapeDtypeStruct((target.dim,), jnp.result_type(float)))
    return names


def over(function: Callable[[Array], PyTree], positions: np.ndarray) -> PyTree:
    """Apply a function of one position to all positions, a fixed number of rows at a time."""
    rows = positions.reshape(-1, positions.shape[-1])
    mapped, lead = jax.jit(jax.vmap(function)), positions.shape[:2]

    def on_host(block: Array) -> PyTree:  # before the next, so that the device holds one block
        return jax.tree.map(np.asarray, mapped(block))

    out = in_blocks(on_host, rows, min(ROWS, len(rows)))
    return jax.tree.map(lambda leaf: leaf.reshape(lead + leaf.shape[1:]), out)

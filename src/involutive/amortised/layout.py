"""The form of the data sets of a family: arrays of one shape, or rows with a mask.

Data sets of one shape are passed to the density as they are. Data sets whose rows are exchangeable
observations may differ in length: they are dicts of arrays with one row per observation, padded
with zeros to one length, and `data["mask"]` says which rows are observations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from involutive.core.errors import InputError, check
from involutive.core.types import ArrayLike
from involutive.storage.codec import register

MASK = "mask"
DataSet = ArrayLike | Mapping[str, ArrayLike]  # as a user has it
Observed = Array | np.ndarray | Mapping[str, Array | np.ndarray]  # padded; one, or stacked
Found = dict[str | None, np.ndarray]  # arrays by name; under None where a data set is one array


@register
@dataclass(frozen=True)
class Layout:
    """What every data set of a family looks like.

    Attributes:
        names: of the arrays of a dict, sorted, without the mask; None for one array.
        shapes: of each array; without its first axis where rows are exchangeable.
        exchangeable: whether the rows are observations in no order.
        rows: the length that data sets are padded to at least; 0 where they are not.
    """

    names: tuple[str, ...] | None
    shapes: tuple[tuple[int, ...], ...]
    exchangeable: bool
    rows: int

    def arrays(self, data: DataSet) -> list[np.ndarray]:
        """The arrays of a data set in their order, checked, without the mask and its padding."""
        found = arrays_of(data)
        names = None if None in found else tuple(str(name) for name, _ in _sorted(found))
        check(
            names == self.names,
            f"a data set must be {_named(self.names)}, got {_named(names)}",
        )
        arrays = [found[name] for name in names or (None,)]
        for name, array, shape in zip(names or ("data",), arrays, self.shapes, strict=True):
            inner = array.shape[1:] if self.exchangeable else array.shape
            fits = inner == shape and array.ndim >= self.exchangeable
            wanted = ("n", *shape) if self.exchangeable else shape
            shown = "(" + ", ".join(map(str, wanted)) + ")"
            check(fits, f"{name} of a data set must have shape {shown}, got {array.shape}")
        arrays = self._observed(arrays, found.get(MASK)) if self.exchangeable else arrays
        for name, array in zip(names or ("data",), arrays, strict=True):
            check(np.isfinite(array).all(), f"{name} of a data set must be finite, got NaN or inf")
        return arrays

    def _observed(self, arrays: list[np.ndarray], mask: np.ndarray | None) -> list[np.ndarray]:
        """The rows that are observations."""
        lengths = {len(array) for array in arrays}
        check(
            len(lengths) == 1,
            f"the arrays of a data set must have one row per observation, got lengths "
            f"{sorted(lengths)}",
        )
        mask = np.ones(lengths.pop(), bool) if mask is None else mask.astype(bool)
        check(
            mask.shape == (len(arrays[0]),),
            f"mask must have shape ({len(arrays[0])},), one entry per row, got {mask.shape}",
        )
        check(mask.any(), "a data set must hold at least one observation, got none")
        return [array[mask] for array in arrays]

    def length(self, data: DataSet) -> int:
        """The number of observations of a data set; 0 where rows are not exchangeable."""
        return len(self.arrays(data)[0]) if self.exchangeable else 0

    def padded(self, data: DataSet, rows: int | None = None) -> np.ndarray | dict[str, np.ndarray]:
        """A data set as the density receives it, on the host, padded to `rows`.

        By default it is padded to the family's own length, doubled until it fits.
        """
        arrays = self.arrays(data)
        dtype = jnp.result_type(float)
        if not self.exchangeable:
            arrays = [array.astype(dtype) for array in arrays]
            return arrays[0] if self.names is None else dict(zip(self.names, arrays, strict=True))
        count = len(arrays[0])
        rows = self.room([count]) if rows is None else rows
        padded = {}
        for name, array in zip(self.names or (), arrays, strict=True):
            room = np.zeros((rows - count, *array.shape[1:]))
            padded[name] = np.concatenate([array, room]).astype(dtype)
        return padded | {MASK: np.arange(rows) < count}

    def room(self, lengths: Sequence[int]) -> int:
        """The length to pad to, so that few programs serve all lengths."""
        rows = self.rows
        while self.exchangeable and rows < max(lengths):
            rows *= 2
        return rows

    def stacked(
        self, data_sets: Sequence[DataSet], rows: int | None = None
    ) -> np.ndarray | dict[str, np.ndarray]:
        """Data sets as one pytree of arrays with a leading axis, on the host."""
        if rows is None:
            rows = self.room([self.length(data) for data in data_sets])
        parts = [self.padded(data, rows) for data in data_sets]
        return jax.tree.map(lambda *leaves: np.stack(leaves), *parts)

    def joined(self, old: DataSet, new: DataSet) -> DataSet:
        """The observations of two data sets as one."""
        check(
            self.exchangeable,
            "data sets can be joined only where rows are exchangeable observations; declare the "
            "family with exchangeable=True",
        )
        first, second = self.arrays(old), self.arrays(new)
        both = [np.concatenate(pair) for pair in zip(first, second, strict=True)]
        return dict(zip(self.names or (), both, strict=True))


def layout_of(data_sets: Sequence[DataSet], exchangeable: bool | None) -> Layout:
    """The layout that data sets share, or say how they differ."""
    every = [arrays_of(data) for data in data_sets]
    masked = any(MASK in found for found in every)
    shapes = {tuple((name, array.shape) for name, array in _sorted(found)) for found in every}
    exchangeable = (masked or len(shapes) > 1) if exchangeable is None else exchangeable
    first = every[0]
    names = None if None in first else tuple(str(name) for name, _ in _sorted(first))
    if not exchangeable:
        return Layout(names, tuple(array.shape for _, array in _sorted(first)), False, 0)
    check(
        names is not None,
        "data sets of exchangeable rows must be dicts of arrays, such as {'y': y}, since "
        "log_density is given data['mask'] too, got arrays",
    )
    scalars = [name for name, array in _sorted(first) if array.ndim == 0]
    check(not scalars, f"every array needs one row per observation, but {scalars} are scalars")
    rows = max(max((len(array) for _, array in _sorted(found)), default=1) for found in every)
    inner = tuple(array.shape[1:] for _, array in _sorted(first))
    return Layout(names, inner, True, max(rows, 1))


def standard_form(layout: Layout, data: DataSet) -> Observed:
    """Stacked simulated data sets as the density receives them.

    Numbers are floats; where rows are exchangeable they have a mask, and are zero outside it.
    """
    dtype = jnp.result_type(float)
    if not isinstance(data, Mapping):
        return jnp.asarray(data, dtype)
    values = {name: jnp.asarray(v, dtype) for name, v in data.items() if name != MASK}
    if not layout.exchangeable:
        return values
    shape = next(iter(values.values())).shape[:2]
    mask = jnp.asarray(data.get(MASK, jnp.ones(shape, bool)), bool)
    for name, array in values.items():
        values[name] = jnp.where(mask.reshape(*shape, *[1] * (array.ndim - 2)), array, 0.0)
    values[MASK] = mask
    room = layout.rows - shape[1]
    return {n: jnp.pad(v, [(0, 0), (0, room)] + [(0, 0)] * (v.ndim - 2)) for n, v in values.items()}


def arrays_of(data: DataSet) -> Found:
    """The arrays of a data set by name; under None where it is one array."""
    named: Mapping[str | None, ArrayLike] = (
        {str(name): array for name, array in data.items()}
        if isinstance(data, Mapping)
        else {None: data}
    )
    try:
        found = {name: np.asarray(array) for name, array in named.items()}
    except (TypeError, ValueError) as error:
        raise InputError(
            "a data set must be an array or a dict of arrays; data= takes a list of them, got "
            f"{type(data).__name__}"
        ) from error
    check(bool(found), "a data set must hold at least one array, got an empty dict")
    for name, array in found.items():
        where = "a data set" if name is None else f"{name} of a data set"
        check(array.dtype.kind in "biuf", f"{where} must hold numbers, got {array.dtype}")
    return found


def _sorted(found: Found) -> list[tuple[str | None, np.ndarray]]:
    return sorted((pair for pair in found.items() if pair[0] != MASK), key=lambda p: str(p[0]))


def _named(names: tuple[str | None, ...] | None) -> str:
    return "one array" if names is None else f"a dict of {', '.join(map(str, names))}"

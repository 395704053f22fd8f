"""Parts of a density that a mixture is fitted to: one domain of its symmetries, one block of it."""

from collections.abc import Callable

import numpy as np

from involutive._xla.batched import BatchedDensity


class FoldedDensity:
    """A density on one fundamental domain of its symmetries, -inf elsewhere."""

    def __init__(self, density: BatchedDensity, fold: Callable[[np.ndarray], np.ndarray]):
        self.density, self.fold, self.dim, self.dtype = density, fold, density.dim, density.dtype

    @property
    def left(self) -> float:
        """Evaluations left."""
        return self.density.left

    def values(self, points: np.ndarray) -> np.ndarray:
        """The log density where a point is its own fold."""
        inside = np.isclose(self.fold(points), points).all(axis=1)
        values = np.full(len(points), -np.inf, points.dtype)
        if inside.any():
            values[inside] = self.density.values(points[inside])
        return values


class BlockDensity:
    """A density along one block of coordinates, the others held at a point."""

    def __init__(self, density: BatchedDensity, block: list[int], point: np.ndarray):
        self.density, self.block, self.point = density, block, point
        self.dim, self.dtype = len(block), density.dtype

    @property
    def left(self) -> float:
        """Evaluations left."""
        return self.density.left

    def values(self, points: np.ndarray) -> np.ndarray:
        """The log density with the block's coordinates replaced."""
        rows = np.tile(self.point, (len(points), 1)).astype(points.dtype)
        rows[:, self.block] = points
        return self.density.values(rows)

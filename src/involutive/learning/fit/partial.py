"""Restrictions of a density, to which mixtures are fitted: to one domain or to one block."""

from collections.abc import Callable

import numpy as np

from involutive._xla.batched import BatchedDensity


class FoldedDensity:
    """A density restricted to one fundamental domain of its symmetries; -inf elsewhere."""

    def __init__(self, density: BatchedDensity, fold: Callable[[np.ndarray], np.ndarray]):
        self.density, self.fold, self.dim, self.dtype = density, fold, density.dim, density.dtype

    @property
    def left(self) -> float:
        """Evaluations left."""
        return self.density.left

    def values(self, points: np.ndarray) -> np.ndarray:
        """The log density of points inside the domain, which folding leaves alone."""
        inside = np.isclose(self.fold(points), points).all(axis=1)
        values = np.full(len(points), -np.inf, points.dtype)
        if inside.any():
            values[inside] = self.density.values(points[inside])
        return values


class BlockDensity:
    """A density as a function of one block of coordinates, the others fixed at a point."""

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

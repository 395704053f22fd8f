"""The parents of a hierarchy, found from the density's Hessians.

The children C are normal given the parents J if the Hessian of log p within C does not depend on
C. At first every coordinate is in C. The coordinate that takes part in most entries that change
becomes a parent, until no entry changes any more. A child is made a parent too if it couples others
so closely that the children's precision matrix is ill-conditioned in this floating-point precision.
"""

import numpy as np

from involutive._xla.batched import BatchedDensity
from involutive.learning.settings import StructureSettings


def parents_of(
    density: BatchedDensity, points: np.ndarray, settings: StructureSettings
) -> list[int]:
    """The parents of a hierarchy with few parents; an empty list if the density has none.

    Args:
        density: the target.
        points: `(n, dim)`, points that cover it.
        settings: which change of an entry counts, and the maximum number of parents.
    """
    dim = density.dim
    if dim < 3 or dim > settings.most_dim:
        return []
    changed = _changes(density, points, settings) > settings.changes
    children, parents = np.ones(dim, bool), list[int]()
    while True:
        within = changed & children[:, None, None] & children[:, None] & children
        if not within.any():
            break
        part = within.sum(axis=(1, 2)) + within.sum(axis=(0, 1)) + within.sum(axis=(0, 2))
        worst = int(np.argmax(part))
        parents.append(worst)
        children[worst] = False
    if not parents or len(parents) > settings.most_parents:
        return []
    parents += _ties(density, points, children, settings)
    return parents if len(parents) <= min(settings.most_parents, dim - 2) else []


def _ties(
    density: BatchedDensity, points: np.ndarray, children: np.ndarray, settings: StructureSettings
) -> list[int]:
    """Children to remove so that the precision matrix of the others is well conditioned."""
    count = settings.conditioned
    rows = points[:: max(len(points) // count, 1)][:count]
    precision, left, ties = -density.hessians(rows).astype(np.float64), children.copy(), []
    most = settings.digits / float(np.finfo(density.dtype).eps)
    while left.sum() > 1:
        within = precision[:, left][:, :, left]
        root = np.sqrt(np.abs(np.einsum("nii->ni", within)))
        with np.errstate(all="ignore"):
            scaled = within / (root[:, :, None] * root[:, None, :])
        scaled = scaled[np.isfinite(scaled).all(axis=(1, 2))]
        if not len(scaled):
            break
        if np.quantile(np.linalg.cond(scaled), settings.conditioned_share) <= most:
            break
        coupling = np.abs(scaled).sum(axis=2).mean(axis=0)
        ties.append(int(np.flatnonzero(left)[np.argmax(coupling)]))
        left[ties[-1]] = False
    return ties


def _changes(
    density: BatchedDensity, points: np.ndarray, settings: StructureSettings
) -> np.ndarray:
    """`(k, i, j)`: relative change of entry i, j of the Hessian when x_k moves."""
    spread = np.median(np.abs(points - np.median(points, axis=0)), axis=0) + 1e-6
    count = settings.hessian_points
    rows = points[:: max(len(points) // count, 1)][:count]
    moves = np.concatenate([np.zeros((1, density.dim)), np.diag(settings.hessian_step * spread)])
    moved = (rows[:, None] + moves[None]).reshape(-1, density.dim).astype(density.dtype)
    hessians = density.hessians(moved).astype(np.float64)
    hessians = hessians.reshape(len(rows), 1 + density.dim, density.dim, density.dim)
    diagonal = np.abs(np.einsum("nkii->nki", hessians))
    size = np.sqrt(diagonal[..., :, None] * diagonal[..., None, :]).max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        change = np.abs(hessians[:, 1:] - hessians[:, :1]) / np.maximum(size, 1e-12)
    return np.nan_to_num(change, nan=np.inf).max(axis=0)

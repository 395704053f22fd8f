"""Which coordinates are the parents of a hierarchy, read off the density's second derivatives.

The children C are normal given the parents J if the Hessian of log p within C does not depend on
C. Starting with every coordinate in C, the one that takes part in most of what changes becomes a
parent, until nothing changes any more. A child that ties others so closely that the precision of
the children cannot be factorised in these numbers becomes a parent too.
"""

import numpy as np

from involutive._xla.batched import BatchedDensity

POINTS = 6  # at which Hessians are compared; a guess
STEP = 0.5  # of a coordinate's spread, by which it is moved; a guess
CHANGES = 0.02  # of the diagonal, from which an entry counts as changed; a guess
MOST_DIM = 64  # coordinates for which Hessians at every step are affordable; a guess
CONDITIONED = 64  # points at which the children's precision is factorised; a guess
DIGITS = 1e-3  # relative error of that factorisation that is allowed; a guess
MOST_PARENTS = 6  # of which a mixture is still fitted well; a guess


def parents_of(density: BatchedDensity, points: np.ndarray) -> list[int]:
    """The parents, few of them; none where the density is no such hierarchy.

    Args:
        density: the target.
        points: `(n, dim)` of where it lives.
    """
    dim = density.dim
    if dim < 3 or dim > MOST_DIM:
        return []
    changed = _changes(density, points) > CHANGES
    children, parents = np.ones(dim, bool), list[int]()
    while True:
        within = changed & children[:, None, None] & children[:, None] & children
        if not within.any():
            break
        part = within.sum(axis=(1, 2)) + within.sum(axis=(0, 1)) + within.sum(axis=(0, 2))
        worst = int(np.argmax(part))
        parents.append(worst)
        children[worst] = False
    if not parents or len(parents) > MOST_PARENTS:
        return []
    parents += _ties(density, points, children)
    return parents if len(parents) <= MOST_PARENTS and len(parents) < dim - 1 else []


def _ties(density: BatchedDensity, points: np.ndarray, children: np.ndarray) -> list[int]:
    """Children without which the precision of the others is well conditioned, at most points."""
    rows = points[:: max(len(points) // CONDITIONED, 1)][:CONDITIONED]
    precision, left, ties = -density.hessians(rows).astype(np.float64), children.copy(), []
    most = DIGITS / float(np.finfo(density.dtype).eps)
    while left.sum() > 1:
        within = precision[:, left][:, :, left]
        root = np.sqrt(np.abs(np.einsum("nii->ni", within)))
        with np.errstate(all="ignore"):
            scaled = within / (root[:, :, None] * root[:, None, :])
        scaled = scaled[np.isfinite(scaled).all(axis=(1, 2))]
        if not len(scaled) or np.quantile(np.linalg.cond(scaled), 0.9) <= most:
            break
        coupling = np.abs(scaled).sum(axis=2).mean(axis=0)
        ties.append(int(np.flatnonzero(left)[np.argmax(coupling)]))
        left[ties[-1]] = False
    return ties


def _changes(density: BatchedDensity, points: np.ndarray) -> np.ndarray:
    """`(k, i, j)`: by how much entry i, j of the Hessian changes when x_k moves, per diagonal."""
    spread = np.median(np.abs(points - np.median(points, axis=0)), axis=0) + 1e-6
    rows = points[:: max(len(points) // POINTS, 1)][:POINTS]
    moves = np.concatenate([np.zeros((1, density.dim)), np.diag(STEP * spread)])
    moved = (rows[:, None] + moves[None]).reshape(-1, density.dim).astype(density.dtype)
    hessians = density.hessians(moved).astype(np.float64)
    hessians = hessians.reshape(len(rows), 1 + density.dim, density.dim, density.dim)
    diagonal = np.abs(np.einsum("nkii->nki", hessians))
    size = np.sqrt(diagonal[..., :, None] * diagonal[..., None, :]).max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        change = np.abs(hessians[:, 1:] - hessians[:, :1]) / np.maximum(size, 1e-12)
    return np.nan_to_num(change, nan=np.inf).max(axis=0)

"""Which points lie on the same hill of a log density: climbs first, then paths between their ends.

Some points climb. Two ends lie on one hill if the log density along the straight segment between
them does not fall by more than `DROP` below the lower end, or if a chain of such segments joins
them. A climb leaves a ridge only slowly, so ends, and points half-way up, are spread along curved
hills (a ring, a banana) and the segments follow them.

Points far out in a tail see several tops. So segments join hills in the order of the lowest density
along them, the highest first, and never two hills that both rise more than `DEEPEST` above it: that
is clustering by topological persistence (Chazal et al. 2013).
"""

import numpy as np
from scipy.spatial import KDTree

from involutive._xla.batched import BatchedDensity
from involutive.diagnostics.climb import climb_by_gradient

STEPS = (12, 60)  # gradients to the points half-way up, and from there to the ends; a guess
DROP = 0.2  # nats; a guess: a dip that deep is called a valley
DEEPEST = 2.0  # nats; a guess: what lies that far below both tops is no path between them
PLACES = 12  # points at which a segment is looked at; a guess
NEIGHBOURS = 8  # segments from each point; a guess
MOST = 400  # points between which segments are tried; the others belong to the nearest
CLOSE = 1e-2  # distance, in units of length, below which ends are one point; a guess
PAIRS = 4  # nearest pairs of points tried between two groups
BULK = (0.05, 0.95)  # quantiles whose distance is the unit of length; a guess: tails may be heavy
SDS = 3.29  # that distance of a normal, in sds


def widths(points: np.ndarray) -> np.ndarray:
    """A unit of length for every coordinate: the sd of a normal with the same bulk."""
    low, high = np.quantile(points.astype(np.float64), BULK, axis=0)
    bulk = (high - low) / SDS
    return np.maximum(np.where(bulk > 0, bulk, points.std(axis=0)), 1e-12)


def hills(rows: BatchedDensity, points: np.ndarray, uphill: bool = True) -> np.ndarray:
    """Number the hill that every point lies on.

    Args:
        rows: the log density.
        points: `(n, dim)`, all of finite density.
        uphill: whether points climb first; not for densities without a gradient.

    Returns:
        `(n,)`, numbers from 0 on.
    """
    scale = widths(points)
    sets = [points]
    if uphill:
        white = points / scale
        count = min(6, len(points))
        reach = np.maximum(KDTree(white).query(white, k=count)[0][:, -1], 1e-6)
        for steps in STEPS:
            sets.append(climb_by_gradient(rows, sets[-1], scale, reach, steps)[0])
        sets = sets[1:]
    cloud = np.concatenate(sets)
    marks = _spread_out(cloud / scale)
    values = rows.values(cloud[marks]).astype(np.float64)
    graph = Hills(values)
    _join_neighbours(rows, graph, cloud[marks], values, scale)
    far, nearest = KDTree(cloud[marks] / scale).query(cloud / scale)
    near = (far <= CLOSE * np.sqrt(cloud.shape[1])).reshape(len(sets), -1)
    nearest = nearest.reshape(len(sets), -1)
    for stage, close in zip(nearest[:-1], near[:-1], strict=True):
        # a climb never goes down: its stages lie on one hill
        kept = close & near[-1]
        lower = np.minimum(values[stage[kept]], values[nearest[-1][kept]])
        graph.join(stage[kept], nearest[-1][kept], lower)
    _join_groups(rows, graph, cloud[marks], values, scale)
    return np.unique(graph.labels()[nearest[-1]], return_inverse=True)[1]


class Hills:
    """Sets of points that grow together, each with its highest log density.

    Args:
        values: the log density of every point.
    """

    def __init__(self, values: np.ndarray):
        self._label = np.arange(len(values))
        self._top = np.array(values, np.float64)

    def join(self, first: np.ndarray, second: np.ndarray, lowest: np.ndarray) -> None:
        """Put the points of every pair into one group, unless what lies between is a valley.

        Args:
            first, second: the points.
            lowest: the lowest log density on the way.
        """
        for at in np.argsort(-lowest, kind="stable"):
            one, other = self._label[first[at]], self._label[second[at]]
            least = min(self._top[one], self._top[other])
            if one != other and lowest[at] >= least - DEEPEST:
                self._label[self._label == other] = one
                self._top[one] = max(self._top[one], self._top[other])

    def labels(self) -> np.ndarray:
        """The group of every point."""
        return self._label


def _spread_out(white: np.ndarray) -> np.ndarray:
    """Indices of at most `MOST` points that leave no other far away: each the furthest so far."""
    chosen = [0]
    apart = np.sum((white - white[0]) ** 2, axis=1)
    enough = CLOSE**2 * white.shape[1]
    while len(chosen) < MOST and apart.max() > enough:
        chosen.append(int(np.argmax(apart)))
        apart = np.minimum(apart, np.sum((white - white[chosen[-1]]) ** 2, axis=1))
    return np.array(chosen)


def _join_neighbours(
    rows: BatchedDensity, graph: Hills, points: np.ndarray, values: np.ndarray, scale: np.ndarray
) -> None:
    if len(points) < 2:
        return
    count = min(NEIGHBOURS + 1, len(points))
    near = np.asarray(KDTree(points / scale).query(points / scale, k=count)[1])[:, 1:]
    first = np.repeat(np.arange(len(points)), count - 1)
    _join_level(rows, graph, points, values, first, near.ravel())


def _join_groups(
    rows: BatchedDensity, graph: Hills, points: np.ndarray, values: np.ndarray, scale: np.ndarray
) -> None:
    """Try segments between groups, at their nearest points and at their tops, until none joins."""
    white = points / scale
    before = -1
    while (names := np.unique(graph.labels())).size != before and names.size > 1:
        before = names.size
        members = [np.flatnonzero(graph.labels() == name) for name in names]
        first, second = [], []
        for i, a in enumerate(members):
            for b in members[i + 1 :]:
                apart = np.linalg.norm(white[a][:, None] - white[b][None], axis=2)
                best = np.argsort(apart, axis=None)[:PAIRS]
                first += [*a[best // b.size], a[np.argmax(values[a])]]
                second += [*b[best % b.size], b[np.argmax(values[b])]]
        _join_level(rows, graph, points, values, np.array(first), np.array(second))


def _join_level(
    rows: BatchedDensity,
    graph: Hills,
    points: np.ndarray,
    values: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
) -> None:
    """Join the pairs between which the density does not drop."""
    share = (np.arange(PLACES) + 0.5) / PLACES
    between = (
        points[first][:, None] * (1 - share)[:, None] + points[second][:, None] * share[:, None]
    )
    looked = rows.values(between.reshape(-1, points.shape[1]).astype(rows.dtype))
    low = np.nan_to_num(looked.astype(np.float64), nan=-np.inf).reshape(len(first), PLACES).min(1)
    ends = np.minimum(values[first], values[second])
    level = low >= ends - DROP
    graph.join(first[level], second[level], np.minimum(low, ends)[level])

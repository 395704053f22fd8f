"""Find the symmetries of a density by trying, and check them on fresh points.

A permutation that leaves p alone leaves points with equal coordinates alone. So with b = c·1 the
values V_ik = log p(b + δ e_i + δ' e_k) satisfy V_ik = V_σ(i)σ(k): they name, for an exchange of i
and j, the other coordinates that have to be exchanged with them.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from involutive._xla.batched import GRADIENT, OutOfBudget, in_blocks
from involutive._xla.compilation import jit_once
from involutive.core.keys import KeyLike, as_key, generator
from involutive.core.types import ArrayLike
from involutive.involutions.rotations import Rotation, Rotations, rotations_of
from involutive.involutions.symmetries import Symmetries
from involutive.targets.target import Target

POINTS = 12  # at which a candidate is tried, and as many fresh ones at the end. A guess
WIDTH = 1.5  # their standard deviation without draws. A guess
ROUNDING = 400.0  # multiples of the precision by which equal densities may differ. A guess
TURNED = 1e-5  # relative difference after a rotation, which a solver found. A guess
BATCH = 4096  # points evaluated at once
EQUATIONS = 3  # points per unknown of a rotation. A guess
MOST_DIM = 40  # dimensions up to which rotations are looked for: dim² unknowns. A guess
MOST_ROTATIONS = 8  # groups of rotations that are kept. A guess


def symmetries(target: Target, *, key: KeyLike = 0, points: ArrayLike | None = None) -> Symmetries:
    """Find exchanges, sign flips and rotations of coordinates that leave a density unchanged.

    Args:
        target: the density.
        key: an int seed or a JAX key, for the points at which the density is compared.
        points: `(n, dim)` draws to use instead, for densities that vanish far from them.

    Returns:
        The symmetries found: `str` lists them, iteration gives them as involutions, `SymmetryMove`
        makes a kernel of them. None is taken for granted: kernels compute the acceptance ratio.

    Example:
        >>> import jax.numpy as jnp, involutive as inv
        >>> curve = lambda a, b: -((a - b**2) ** 2) - a**2 - b**2
        >>> target = inv.Target(lambda x: curve(x[0], x[1]) + curve(x[2], x[3]) + x[0] * x[2], 4)
        >>> print(inv.symmetries(target, key=0))
        2 interchangeable groups of coordinates: (0, 1), (2, 3)
        sign flip of coordinates 1, 3, each alone
    """
    return symmetries_counted(target, key, points)[0]


def symmetries_counted(
    target: Target, key: KeyLike, points: ArrayLike | None, deadline: float = float("inf")
) -> tuple[Symmetries, int]:
    """The symmetries, and the density evaluations that it took to find them.

    Raises:
        OutOfBudget: past the deadline, by `time.perf_counter()`.
    """
    tried = _Trial(target, generator(as_key(key)), points, deadline)
    if not tried.usable:
        return Symmetries(target.dim), tried.evaluations
    labels = _labels(tried)
    flips = _flips(tried, labels)
    tried.refresh()
    labels = [rows for rows in labels if all(tried.holds(s) for s in _exchanges(rows, target.dim))]
    flips = [flip for flip in flips if tried.holds(_flip(flip))]
    found = Symmetries(target.dim, labels, flips or None, _rotations(tried, target))
    return found, tried.evaluations


def most_evaluations(target: Target) -> int:
    """About how many density evaluations a search for symmetries takes at most.

    Exchanges of every pair of coordinates and of groups of them, and gradients for rotations.
    """
    dim = target.dim
    turning = GRADIENT * EQUATIONS * (dim * dim + dim) if dim <= MOST_DIM else 0
    return 2 * POINTS * dim * (dim + 4) + turning


Map = tuple[np.ndarray, np.ndarray]  # indices and signs


class _Trial:
    """Points, their log densities, and whether a signed permutation leaves those alone."""

    def __init__(
        self, target: Target, rng: np.random.Generator, points: ArrayLike | None, deadline: float
    ):
        self.dim, self._rng, self.evaluations = target.dim, rng, 0
        self._deadline = deadline
        self._given = None if points is None else np.asarray(points, float)
        self._density: Callable[[Array], Array] = jit_once(jax.vmap(_plain(target)))
        self.refresh()

    def refresh(self) -> None:
        """Take fresh points."""
        if self._given is None:
            self.points = WIDTH * self._rng.normal(size=(POINTS, self.dim))
        else:
            rows = self._rng.choice(len(self._given), min(POINTS, len(self._given)), replace=False)
            # between two draws: equal coordinates of one would hide that a flip changes them
            weight = self._rng.uniform(0.7, 1.0, size=(rows.size, 1))
            self.points = weight * self._given[rows]
        self.values = self.evaluate(self.points)
        self.usable = bool(np.isfinite(self.values).sum() >= 2 and np.ptp(self._finite()) > 0)

    def around(self, count: int) -> np.ndarray:
        """As many points as are asked for; draws that were given get a tenth of their spread."""
        noise = self._rng.normal(size=(count, self.dim))
        if self._given is None:
            return WIDTH * noise
        rows = self._given[self._rng.integers(len(self._given), size=count)]
        return rows + 0.1 * np.maximum(self._given.std(axis=0), 1e-6) * noise

    def _finite(self) -> np.ndarray:
        return self.values[np.isfinite(self.values)]

    def evaluate(self, points: np.ndarray) -> np.ndarray:
        if time.perf_counter() > self._deadline:
            raise OutOfBudget
        out, self.evaluations = [], self.evaluations + len(points)
        for start in range(0, len(points), BATCH):
            part = points[start : start + BATCH]
            # powers of two: few shapes to compile, and few points for one call to repeat
            size = min(BATCH, 1 << max(len(part) - 1, 1).bit_length())
            out.append(in_blocks(self._density, np.asarray(part, float), size))
        return np.concatenate(out).astype(np.float64)

    def equal(self, a: np.ndarray, b: np.ndarray, slack: float = 0.0) -> np.ndarray:
        """Which densities are equal to rounding, or to a relative difference of `slack`."""
        slack = max(slack, ROUNDING * float(jnp.finfo(jnp.result_type(float)).eps))
        with np.errstate(invalid="ignore"):
            near = np.abs(a - b) <= slack * (1 + np.abs(a) + self.dim)
        near &= np.isfinite(a) & np.isfinite(b)  # |a - b| and the slack are both infinite else
        return near | (a == b) | (np.isnan(a) & np.isnan(b))

    def hold(self, maps: list[Map]) -> list[bool]:
        """Which of several signed permutations leave all densities alone."""
        if not maps:
            return []
        moved = np.stack([signs * self.points[:, sigma] for sigma, signs in maps])
        return [self.unchanged(row) for row in moved]

    def unchanged(self, moved: np.ndarray, slack: float = 0.0) -> bool:
        """Whether the points have the same densities where they were moved to."""
        return bool(self.equal(self.evaluate(moved), self.values, slack).all())

    def holds(self, one: Map) -> bool:
        return self.hold([one])[0]


def _plain(target: Target) -> Callable[[Array], Array]:
    return lambda x: jnp.asarray(target.log_density(x), x.dtype)


def _exchanges(rows: np.ndarray, dim: int) -> Iterator[Map]:
    """The exchanges of every group with the first."""
    for row in rows[1:]:
        sigma = np.arange(dim)
        sigma[rows[0]], sigma[row] = row, rows[0]
        yield sigma, np.ones(dim)


def _flip(flip: np.ndarray) -> Map:
    return np.arange(flip.size), np.where(flip, -1.0, 1.0)


# ── Exchanges ───────────────────────────────────────────────────────────────────────────────────


def _labels(tried: _Trial) -> list[np.ndarray]:
    """Index matrices with interchangeable rows, disjoint, the finest first."""
    free = np.ones(tried.dim, bool)
    found: list[np.ndarray] = []
    for rows in (*_single(tried), *_regular(tried.dim), *_by_values(tried)):
        if not free[rows].all():
            continue
        held = tried.hold(list(_exchanges(rows, tried.dim)))
        kept = rows[[True, *held]]
        if len(kept) >= 2:
            found.append(kept)
            free[kept] = False
    return found


def _single(tried: _Trial) -> Iterator[np.ndarray]:
    """Classes of coordinates that can be exchanged one by one."""
    left = list(range(tried.dim))
    while left:
        first = left.pop(0)
        maps = [next(_exchanges(np.array([[first], [j]]), tried.dim)) for j in left]
        same = [j for j, held in zip(left, tried.hold(maps), strict=True) if held]
        if same:
            yield np.array([[first], *[[j] for j in same]])
            left = [j for j in left if j not in same]


def _regular(dim: int) -> Iterator[np.ndarray]:
    """Neighbouring coordinates as groups (particles), and strided ones (vectors of parameters)."""
    for width in range(2, dim // 2 + 1):
        if dim % width == 0:
            rows = np.arange(dim).reshape(-1, width)
            yield from (rows, np.arange(dim).reshape(width, -1).T)


def _by_values(tried: _Trial) -> Iterator[np.ndarray]:
    """Groups that the values at nearly equal coordinates suggest."""
    table = _table(tried)
    if table is None:
        return
    dim, same = tried.dim, tried.equal
    seen = np.zeros(dim, bool)
    for i in range(dim):
        if seen[i]:
            continue
        maps = []
        for j in range(i + 1, dim):
            sigma = _extended(table, same, i, j) if not seen[j] else None
            if sigma is not None and tried.holds((sigma, np.ones(dim))):
                maps.append(sigma)
        if not maps:
            continue
        support = [set(np.flatnonzero(s != np.arange(dim))) for s in maps]
        mine = set.intersection(*support) if len(maps) > 1 else {
            a for a in support[0] if a < maps[0][a]
        }  # fmt: skip
        first = np.array(sorted(mine))
        rows = np.array([first, *[s[first] for s in maps]])
        if len(mine) * 2 == len(support[0]) and len(set(rows.ravel())) == rows.size:
            seen[rows] = True
            yield rows


def _table(tried: _Trial) -> np.ndarray | None:
    """`(bases, dim, dim)` values at c·1 + δ e_i + δ' e_k, or None where they say nothing."""
    dim, eye = tried.dim, np.eye(tried.dim)
    spots = eye[:, None] * 0.61 + eye[None] * 0.37
    values = [tried.evaluate((c + spots).reshape(-1, dim)).reshape(dim, dim) for c in (0.3, -0.45)]
    return np.stack(values) if np.isfinite(values).all() else None


def _extended(table: np.ndarray, same: Any, i: int, j: int) -> np.ndarray | None:
    """The exchange of i and j with all that has to be exchanged with them, if there is one."""
    dim = table.shape[1]
    if not same(table[:, i, i], table[:, j, j]).all():
        return None

    def profile(k: int, a: int = i, b: int = j) -> np.ndarray:
        return np.stack([table[:, a, k], table[:, b, k], table[:, k, a], table[:, k, b]])

    def mirrored(k: int) -> np.ndarray:
        return profile(k, j, i)

    sigma = np.full(dim, -1)
    sigma[i], sigma[j] = j, i
    for k in range(dim):
        if sigma[k] >= 0:
            continue
        if same(profile(k), mirrored(k)).all():
            sigma[k] = k
            continue
        partners = [
            m for m in range(dim)
            if sigma[m] < 0 and m != k and same(profile(m), mirrored(k)).all()
            and same(table[:, m, m], table[:, k, k]).all()
        ]  # fmt: skip
        if not partners:
            return None
        sigma[k], sigma[partners[0]] = partners[0], k
    return sigma


# ── Sign flips ──────────────────────────────────────────────────────────────────────────────────


def _flips(tried: _Trial, labels: list[np.ndarray]) -> list[np.ndarray]:
    """Sets of coordinates whose signs may change together: alone, by columns, and all."""
    dim = tried.dim
    single = [np.arange(dim) == i for i in range(dim)]
    held = tried.hold(list(map(_flip, single)))
    found = [flip for flip, holds in zip(single, held, strict=True) if holds]
    alone = np.sum(found, axis=0).astype(bool) if found else np.zeros(dim, bool)
    sets = [np.isin(np.arange(dim), part) for part in _sets(dim, labels)]
    sets = [part & ~alone for part in sets]
    covered = alone.copy()
    for flip in sets:
        if flip.any() and not (covered & flip).any() and tried.holds(_flip(flip)):
            found.append(flip)
            covered |= flip
    return found


def _sets(dim: int, labels: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Candidates: groups and columns of labels, regular blocks, strides, all coordinates."""
    for rows in labels:
        yield from rows
        yield from rows.T
    for width in range(2, dim):
        if dim % width == 0:
            yield from np.arange(dim).reshape(-1, width)
            yield from np.arange(dim).reshape(-1, width).T
    yield np.arange(dim)


# ── Rotations ───────────────────────────────────────────────────────────────────────────────────


def _rotations(tried: _Trial, target: Target) -> Rotations:
    """One-parameter groups of rotations, from gradients at points around those that are tried."""
    dim = tried.dim
    if not target.has_gradient or dim < 2 or dim > MOST_DIM:
        return Rotations(dim)
    points = tried.around(EQUATIONS * (dim * dim + dim))
    tried.evaluations += GRADIENT * len(points)
    slopes = np.asarray(jit_once(jax.vmap(jax.grad(_plain(target))))(jnp.asarray(points, float)))
    found = rotations_of(points, slopes.astype(np.float64))
    # a subset of many serves: products of rotations reach the others
    return Rotations(dim, [group for group in found if _turns(tried, group)][:MOST_ROTATIONS])


def _turns(tried: _Trial, group: Rotation) -> bool:
    """Whether a rotation by one angle leaves all densities alone."""
    alone = Rotations(tried.dim, [group])
    angle = jnp.ones(1)
    moved = jax.vmap(lambda x: alone.turned(x, angle))(jnp.asarray(tried.points, float))
    return tried.unchanged(np.asarray(moved), TURNED)

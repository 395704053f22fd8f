"""Ascents without gradients, whose every evaluation is a draw of a known normal.

From a point c, pairs `c ± r_i u_i` are evaluated, with (u_i) a random orthonormal basis and r_i/σ
chi-distributed, so that each is a draw of N(c, σ² I). Of a quadratic log density the pairs give the
slope along every u_i exactly, and the curvature, which corrects an estimate B of the Hessian:
`u_iᵀ B u_i` becomes what was seen, and differences of gradients correct B along the way that was
gone (symmetric rank one). The step is `|B|⁻¹ g`, of at most the trusted length. With gradients the
pairs are not needed.

Units are sds of X, in every coordinate.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from involutive._xla.batched import BatchedDensity
from involutive.learning.find.climbs import Climbed, laplace, local_scales
from involutive.learning.fit.mixture import Components
from involutive.learning.frugal.archive import evaluated
from involutive.learning.settings import FrugalSettings


class Frame(NamedTuple):
    """Units of length: mean and sd of X in every coordinate."""

    centre: np.ndarray
    scale: np.ndarray

    def whiten(self, points: np.ndarray) -> np.ndarray:
        """Points in sds of X."""
        return (points - self.centre) / self.scale

    def colour(self, points: np.ndarray) -> np.ndarray:
        """Points as they are."""
        return self.centre + self.scale * points


@dataclass
class Trail:
    """What ascents evaluate as they go, so that nothing is lost when they are cut short."""

    density: BatchedDensity
    frame: Frame
    points: list[np.ndarray] = field(default_factory=list)
    log_p: list[np.ndarray] = field(default_factory=list)
    normals: list[Components] = field(default_factory=list)

    def draw(self, places: np.ndarray, centres: np.ndarray, sds: np.ndarray) -> np.ndarray:
        """Evaluate places `(m, k, dim)`, draws of N(centre, sd² I) of each of m centres."""
        rows = self.frame.colour(places.reshape(-1, places.shape[2]))
        # as the density sees them, so that points and values belong together
        rows = rows.astype(self.density.dtype).astype(np.float64)
        values = evaluated(self.density, rows)
        covariances = (sds[:, None] * self.frame.scale)[:, :, None] ** 2 * np.eye(rows.shape[1])
        counts = np.full(len(centres), np.log(places.shape[1]))
        self.points.append(rows)
        self.log_p.append(values)
        self.normals.append(Components(counts, self.frame.colour(centres), covariances))
        return values.reshape(places.shape[:2])

    def normal(self, means: np.ndarray, roots: np.ndarray, noise: np.ndarray) -> None:
        """Evaluate draws `mean + root z` of one normal per mean, `(m, k, dim)` noise z."""
        rows = means[:, None] + np.einsum("nij,nkj->nki", roots, noise)
        rows = rows.reshape(-1, means.shape[1]).astype(self.density.dtype).astype(np.float64)
        values = evaluated(self.density, rows)
        counts = np.full(len(means), np.log(noise.shape[1]))
        self.points.append(rows)
        self.log_p.append(values)
        self.normals.append(Components(counts, means, roots @ np.swapaxes(roots, 1, 2)))


class Slopes(NamedTuple):
    """Gradients, and curvatures along the axes of a basis (columns), none with true gradients."""

    gradients: np.ndarray
    curvatures: np.ndarray | None = None
    basis: np.ndarray | None = None


def ascend(
    trail: Trail,
    starts: np.ndarray,
    heights: np.ndarray,
    rng: np.random.Generator,
    settings: FrugalSettings,
    gradients: bool,
) -> Climbed:
    """Ascend from every start, whose log density is known, to the top of its mode."""
    count, dim = starts.shape
    x, f = trail.frame.whiten(starts), heights.copy()
    hessian = np.zeros((count, dim, dim))
    trust = np.full(count, settings.trust * np.sqrt(dim))
    before = [np.zeros((count, dim)), np.full((count, dim), np.nan)]  # positions and gradients
    fresh = np.ones(count, bool)
    going = np.arange(count)
    for _ in range(settings.ascent_steps):
        scales = _probe_distances(hessian[going], fresh[going], settings)
        slopes = _slopes(trail, x[going], f[going], scales, rng, settings, gradients)
        new = _update_hessians(
            hessian[going], fresh[going], x[going], slopes, *(b[going] for b in before)
        )
        hessian[going] = new
        before[0][going], before[1][going] = x[going], slopes.gradients
        fresh[going] = False
        steps, hoped = _steps(new, slopes.gradients, trust[going])
        at, risen = _line_search(trail, x[going], f[going], steps, new, rng, settings)
        rise = risen - f[going]
        less, more = settings.trust_change
        with np.errstate(invalid="ignore"):
            failed = ~(rise > settings.tries[-1] * hoped)
        length = np.linalg.norm(steps, axis=1)
        trust[going] = np.where(
            failed, less * np.minimum(trust[going], length), more * trust[going]
        )
        better = rise > 0
        x[going[better]], f[going[better]] = at[better], risen[better]
        lost = trust[going] < settings.probe_least
        going = going[(hoped > settings.ascent_rise) & ~lost & np.isfinite(hoped)]
        if not len(going):
            break
    return _as_climbed(trail.frame, starts, x, f, hessian, settings)


def _probe_distances(
    hessian: np.ndarray, fresh: np.ndarray, settings: FrugalSettings
) -> np.ndarray:
    """How far to probe for slopes: the shortest local scale, within bounds."""
    shortest = local_scales(hessian)[0].min(axis=1)
    near = np.clip(settings.probe_scale * shortest, settings.probe_least, settings.probe)
    return np.where(fresh, settings.probe, near)


def _slopes(
    trail: Trail,
    x: np.ndarray,
    f: np.ndarray,
    distance: np.ndarray,
    rng: np.random.Generator,
    settings: FrugalSettings,
    gradients: bool,
) -> Slopes:
    count, dim = x.shape
    if gradients:
        rows = trail.frame.colour(x).astype(trail.density.dtype)
        found = trail.density.gradients(rows)[1].astype(np.float64) * trail.frame.scale
        return Slopes(np.nan_to_num(found, posinf=0.0, neginf=0.0))
    basis = np.linalg.qr(rng.normal(size=(count, dim, dim)))[0]
    sds = distance / np.sqrt(dim)
    radii = sds[:, None] * np.sqrt(rng.chisquare(dim, size=(count, dim)))
    moves = np.swapaxes(basis, 1, 2) * radii[:, :, None]  # one row per axis
    places = np.concatenate([x[:, None] + moves, x[:, None] - moves], axis=1)
    values = trail.draw(places, x, sds)
    up, down = values[:, :dim], values[:, dim:]
    with np.errstate(invalid="ignore"):
        along = (up - down) / (2 * radii)
        curved = (up + down - 2 * f[:, None]) / radii**2
    along, curved = (np.nan_to_num(part, posinf=0.0, neginf=0.0) for part in (along, curved))
    return Slopes(np.einsum("nij,nj->ni", basis, along), curved, basis)


def _update_hessians(
    hessian: np.ndarray,
    fresh: np.ndarray,
    x: np.ndarray,
    slopes: Slopes,
    x_before: np.ndarray,
    g_before: np.ndarray,
) -> np.ndarray:
    """The Hessians after what was seen: the change of the gradient, and curvatures."""
    moved, turned = x - x_before, slopes.gradients - g_before
    squares = np.sum(moved**2, axis=1)
    known = ~fresh & (squares > 0) & np.isfinite(turned).all(axis=1)
    if slopes.curvatures is None and (first := known & ~hessian.any(axis=(1, 2))).any():
        # one scale for all axes, until more is known
        size = np.sum(moved * turned, axis=1)[first] / squares[first]
        hessian = hessian.copy()
        hessian[first] = -np.abs(size)[:, None, None] * np.eye(x.shape[1])
    rest = np.where(known[:, None], turned - np.einsum("nij,nj->ni", hessian, moved), 0.0)
    along = np.sum(rest * moved, axis=1)
    size = np.linalg.norm(rest, axis=1) * np.sqrt(squares)
    usable = known & (np.abs(along) > 1e-6 * size) & (size > 0)
    divisor = np.where(usable, along, 1.0)
    outer = rest[:, :, None] * rest[:, None, :] / divisor[:, None, None]
    hessian = hessian + np.where(usable[:, None, None], outer, 0.0)
    if slopes.curvatures is None or slopes.basis is None:
        return hessian
    seen = np.einsum("nji,njk,nki->ni", slopes.basis, hessian, slopes.basis)
    return hessian + np.einsum(
        "nij,nj,nkj->nik", slopes.basis, slopes.curvatures - seen, slopes.basis
    )


def _steps(
    hessian: np.ndarray, gradients: np.ndarray, trust: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`|B|⁻¹ g` of at most the trusted length, and the rise that it promises."""
    scales, axes = local_scales(hessian)
    along = np.einsum("nij,ni->nj", axes, gradients)
    slope = np.linalg.norm(gradients, axis=1, keepdims=True)
    # along a flat axis no further than a step as steep as this one may be long
    most = np.sqrt(trust[:, None] / np.maximum(slope, 1e-300))
    steps = along * np.minimum(scales, np.maximum(most, 1e-12)) ** 2
    length = np.linalg.norm(steps, axis=1)
    shorter = np.minimum(trust / np.maximum(length, 1e-300), 1.0)
    hoped = np.sum(along * steps, axis=1) * shorter * (1 - 0.5 * shorter)
    return np.einsum("nij,nj->ni", axes, steps * shorter[:, None]), hoped


def _line_search(
    trail: Trail,
    x: np.ndarray,
    f: np.ndarray,
    steps: np.ndarray,
    hessian: np.ndarray,
    rng: np.random.Generator,
    settings: FrugalSettings,
) -> tuple[np.ndarray, np.ndarray]:
    """The highest of some places along the step, each with a little noise of known density."""
    shortest = np.minimum(local_scales(hessian)[0].min(axis=1), np.linalg.norm(steps, axis=1))
    sds = settings.try_noise * np.maximum(shortest, settings.probe_least) / np.sqrt(x.shape[1])
    best, height = x, np.full(len(x), -np.inf)
    left = np.arange(len(x))
    for length in settings.tries:  # shorter ones only where the longer did not rise
        centres = x[left] + length * steps[left]
        places = centres + sds[left, None] * rng.normal(size=centres.shape)
        values = trail.draw(places[:, None], centres, sds[left])[:, 0]
        higher = values > height[left]
        best, height = best.copy(), height.copy()
        best[left[higher]], height[left[higher]] = places[higher], values[higher]
        left = left[~(height[left] > f[left])]
        if not len(left):
            break
    return best, height


def _as_climbed(
    frame: Frame,
    starts: np.ndarray,
    x: np.ndarray,
    f: np.ndarray,
    hessian: np.ndarray,
    settings: FrugalSettings,
) -> Climbed:
    """Tops with scales and axes as climbs with gradients have them."""
    scales, axes = local_scales(hessian)
    scales = np.clip(scales, settings.probe_least, settings.widest)
    roots = frame.scale[:, None] * axes * scales[:, None, :]
    squares, axes = np.linalg.eigh(roots @ np.swapaxes(roots, 1, 2))
    scales = np.sqrt(np.maximum(squares, 1e-300))
    tops = frame.colour(x)
    return Climbed(starts, tops, tops, laplace(f, scales), scales, axes)

"""Ascents without gradients, of which every evaluation is a draw of a known normal.

From a point c, pairs `c ± r_i u_i` are evaluated, with (u_i) a random orthonormal basis and r_i/σ
chi-distributed, so that each is a draw of N(c, σ² I). For a quadratic log density the pairs give
the slope and the curvature along every u_i exactly. They correct an estimate B of the Hessian:
`u_iᵀ B u_i` becomes the observed curvature, and the difference of successive gradients corrects B
along the last step (symmetric rank one). The step is `|B|⁻¹ g`, of at most the trusted length. If
the density has gradients, the pairs are not needed.

The unit of every coordinate is the sd of X.
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
        """Points in the coordinates of the density, from sds of X."""
        return self.centre + self.scale * points


@dataclass
class Trail:
    """All evaluations of ascents so far, so that none is lost when ascents are cut short."""

    density: BatchedDensity
    frame: Frame
    points: list[np.ndarray] = field(default_factory=list)
    log_p: list[np.ndarray] = field(default_factory=list)
    normals: list[Components] = field(default_factory=list)

    def draw(self, places: np.ndarray, centres: np.ndarray, sds: np.ndarray) -> np.ndarray:
        """Evaluate places `(m, k, dim)`, draws of N(centre, sd² I) of each of m centres."""
        rows = self.frame.colour(places.reshape(-1, places.shape[2]))
        # rounded as the density sees them, so that points and values agree
        rows = rows.astype(self.density.dtype).astype(np.float64)
        values = evaluated(self.density, rows)
        covariances = (sds[:, None] * self.frame.scale)[:, :, None] ** 2 * np.eye(rows.shape[1])
        counts = np.full(len(centres), np.log(places.shape[1]))
        self.points.append(rows)
        self.log_p.append(values)
        self.normals.append(Components(counts, self.frame.colour(centres), covariances))
        return values.reshape(places.shape[:2])

    def normal(self, means: np.ndarray, roots: np.ndarray, noise: np.ndarray) -> None:
        """Evaluate draws `mean + root z` of one normal per mean, from noise z `(m, k, dim)`."""
        rows = means[:, None] + np.einsum("nij,nkj->nki", roots, noise)
        rows = rows.reshape(-1, means.shape[1]).astype(self.density.dtype).astype(np.float64)
        values = evaluated(self.density, rows)
        counts = np.full(len(means), np.log(noise.shape[1]))
        self.points.append(rows)
        self.log_p.append(values)
        self.normals.append(Components(counts, means, roots @ np.swapaxes(roots, 1, 2)))


class Slopes(NamedTuple):
    """Gradients; without true gradients also curvatures along the columns of a basis."""

    gradients: np.ndarray
    curvatures: np.ndarray | None = None
    basis: np.ndarray | None = None


def ascend_quasi_newton(
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
        trust[going] = _adapted_trust(trust[going], steps, rise, hoped, settings)
        better = rise > 0
        x[going[better]], f[going[better]] = at[better], risen[better]
        lost = trust[going] < settings.probe_least
        going = going[(hoped > settings.ascent_rise) & ~lost & np.isfinite(hoped)]
        if not len(going):
            break
    return _as_climbed(trail.frame, starts, x, f, hessian, settings)


def _adapted_trust(
    trust: np.ndarray,
    steps: np.ndarray,
    rise: np.ndarray,
    hoped: np.ndarray,
    settings: FrugalSettings,
) -> np.ndarray:
    """Trusted lengths of the next steps: shorter after a step that hardly rose, else longer."""
    less, more = settings.trust_change
    with np.errstate(invalid="ignore"):
        failed = ~(rise > settings.tries[-1] * hoped)
    length = np.linalg.norm(steps, axis=1)
    return np.where(failed, less * np.minimum(trust, length), more * trust)


def _probe_distances(
    hessian: np.ndarray, fresh: np.ndarray, settings: FrugalSettings
) -> np.ndarray:
    """Distances at which slopes are probed: the shortest local scale, within bounds."""
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
    """Update Hessians by the change of the gradient and by the observed curvatures."""
    moved, turned = x - x_before, slopes.gradients - g_before
    squares = np.sum(moved**2, axis=1)
    known = ~fresh & (squares > 0) & np.isfinite(turned).all(axis=1)
    if slopes.curvatures is None and (first := known & ~hessian.any(axis=(1, 2))).any():
        # a first guess with the same curvature along all axes
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
    """Steps `|B|⁻¹ g` of at most the trusted length, and the rise that the quadratic predicts."""
    scales, axes = local_scales(hessian)
    along = np.einsum("nij,ni->nj", axes, gradients)
    slope = np.linalg.norm(gradients, axis=1, keepdims=True)
    # bounds the step along an axis of little curvature
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
    """The highest of some places along the step, each perturbed by noise of known density."""
    shortest = np.minimum(local_scales(hessian)[0].min(axis=1), np.linalg.norm(steps, axis=1))
    sds = settings.try_noise * np.maximum(shortest, settings.probe_least) / np.sqrt(x.shape[1])
    best, height = x, np.full(len(x), -np.inf)
    left = np.arange(len(x))
    for length in settings.tries:  # a shorter one only where the longer did not rise
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
    """The ends of ascents in the same form as climbs with gradients."""
    scales, axes = local_scales(hessian)
    scales = np.clip(scales, settings.probe_least, settings.widest)
    roots = frame.scale[:, None] * axes * scales[:, None, :]
    squares, axes = np.linalg.eigh(roots @ np.swapaxes(roots, 1, 2))
    scales = np.sqrt(np.maximum(squares, 1e-300))
    tops = frame.colour(x)
    return Climbed(starts, tops, tops, laplace(f, scales), scales, axes)

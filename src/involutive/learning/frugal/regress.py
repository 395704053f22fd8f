"""Tops and Hessians of modes by regression on evaluations near them, without new evaluations."""

import numpy as np

from involutive.learning.find.climbs import Climbed, laplace
from involutive.learning.fit.mixture import Components
from involutive.learning.frugal.archive import Archive
from involutive.learning.settings import FrugalSettings, LearnSettings
from involutive.learning.weights import relative


def refine_by_regression(archive: Archive, modes: Climbed, settings: LearnSettings) -> Climbed:
    """Refine tops and Hessians of modes by regression, where a quadratic fits well.

    The evaluations near a top, and nearer to it than to other tops, give `log p`, which is
    regressed on the terms of a quadratic. For a normal mode this is exact.
    """
    if not len(modes.tops):
        return modes
    dim, frugal = modes.tops.shape[1], settings.frugal
    inverse = modes.axes / modes.scales[:, None, :]
    rows = np.flatnonzero(np.isfinite(archive.log_p))
    squares = np.stack([
        np.sum(((archive.points[rows] - top) @ root) ** 2, axis=1)
        for top, root in zip(modes.tops, inverse, strict=True)
    ])  # fmt: skip
    nearest, radius = np.argmin(squares, axis=0), (np.sqrt(dim) + frugal.regressed_radius) ** 2
    found = list[tuple[np.ndarray, ...]]()
    for k in range(len(modes.tops)):
        near = rows[(nearest == k) & (squares[k] < radius)]
        mode = tuple(np.asarray(part[k]) for part in modes[1:])
        white = (archive.points[near] - modes.tops[k]) @ inverse[k]
        found.append(_quadratic(white, archive.log_p[near], mode, frugal))
    return Climbed(modes.starts, *(np.stack(part) for part in zip(*found, strict=True)))


def _quadratic(
    white: np.ndarray,
    values: np.ndarray,
    mode: tuple[np.ndarray, ...],
    settings: FrugalSettings,
) -> tuple[np.ndarray, ...]:
    """A mode (top, point, log mass, scales, axes) by a quadratic; unchanged if none fits well."""
    top, _, _, scales, axes = mode
    dim = len(top)
    i, j = np.triu_indices(dim)
    if len(white) < settings.regressed_points * (1 + dim + len(i)):
        return mode
    features = np.concatenate([np.ones((len(white), 1)), white, white[:, i] * white[:, j]], axis=1)
    found = np.linalg.lstsq(features, values, rcond=1e-10)[0]
    rest = float(np.sqrt(np.mean((features @ found - values) ** 2)))
    hessian = np.zeros((dim, dim))
    hessian[i, j] = found[1 + dim :]
    precisions, turned = np.linalg.eigh(-(hessian + hessian.T))
    if rest > settings.regressed_rest or precisions.min() < settings.regressed_least:
        return mode
    slope = found[1 : 1 + dim]
    shift = turned @ ((turned.T @ slope) / precisions)
    if np.sum(shift**2) > (np.sqrt(dim) + settings.regressed_radius) ** 2:
        return mode
    root = axes * scales
    wide = root @ turned / np.sqrt(precisions)
    spread, axes = np.linalg.eigh(wide @ wide.T)
    scales, top = np.sqrt(np.maximum(spread, 1e-300)), top + root @ shift
    mass = laplace(found[:1] + 0.5 * shift @ slope, scales[None])[0]
    return top, top, np.asarray(mass), scales, axes


def laplace_components(climbed: Climbed, settings: LearnSettings) -> Components:
    """One normal per mode, with the inverse Hessian as covariance and its share of the mass."""
    tops, factors, log_masses = climbed.laplace(settings.search)
    weights = np.maximum(relative(log_masses), settings.fit.least_share)
    covariances = factors @ np.swapaxes(factors, 1, 2)
    return Components(np.log(weights / weights.sum()), tops, covariances)

"""Exact answers for the families of the experiment: all but one coordinate integrates by hand.

Given f, a light curve is linear in (a, b, c) with normal priors and noise; given τ, the groups of
the hierarchy are normal. What is left is one integral, done on a grid.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from involutive.core.statistics import log_mean_exp
from involutive.experiments.amortised_families import NOISE

GRID = 4000  # points of the integral over the parameter that is not solved for; a guess
WIDEST = 14.0  # of τ, seven sds of its prior


@dataclass(frozen=True)
class Exact:
    """The exact log evidence, and the exact probability of an event.

    Attributes:
        log_z: the log of the integral of the density.
        chance: the posterior probability of f > 1/2, the alias, or of τ > 1.
    """

    log_z: float
    chance: float


def exact_light_curve(data: dict[str, np.ndarray]) -> Exact:
    """The posterior of one light curve: f on a grid, the rest by hand."""
    t, y = data["t"][data["mask"]].astype(float), data["y"][data["mask"]].astype(float)
    f = 0.1 + 0.8 * (np.arange(GRID) + 0.5) / GRID
    phase = 2 * np.pi * f[:, None] * t
    waves = np.stack([np.cos(phase), np.sin(phase), np.ones_like(phase)], axis=1)
    inner = np.eye(3) + waves @ waves.transpose(0, 2, 1) / NOISE**2
    along = waves @ y / NOISE**2
    fitted = np.einsum("gi,gi->g", along, np.linalg.solve(inner, along[..., None])[..., 0])
    log_p = 0.5 * fitted - 0.5 * np.linalg.slogdet(inner)[1] - 0.5 * y @ y / NOISE**2
    return _answer(log_p, f > 0.5)


def exact_hierarchy(data: dict[str, np.ndarray]) -> Exact:
    """The posterior of one data set of the hierarchy: τ on a grid, the rest by hand."""
    y, s = data["y"].astype(float), data["s"].astype(float)
    tau = WIDEST * (np.arange(GRID) + 0.5) / GRID
    covariance = (tau[:, None, None] ** 2 + s**2) * np.eye(len(y)) + 4.0
    solved = np.linalg.solve(covariance, np.broadcast_to(y[:, None], (GRID, len(y), 1)))[..., 0]
    log_p = -0.5 * solved @ y - 0.5 * np.linalg.slogdet(covariance)[1]
    prior = np.log(np.sqrt(2 / np.pi) / 2 * WIDEST) - tau**2 / 8
    return _answer(log_p + prior, tau > 1.0)


def _answer(log_p: np.ndarray, inside: np.ndarray) -> Exact:
    log_z = log_mean_exp(log_p)
    return Exact(log_z, float(np.mean(np.where(inside, np.exp(log_p - log_z), 0.0))))


def event(name: str, values: dict[str, Any]) -> np.ndarray:
    """Whether draws lie where `Exact.chance` is the probability of."""
    return np.asarray(values["f"] > 0.5 if name == "light curves" else values["tau"] > 1.0)

"""How much of a target p lies where a proposal q has nothing: what no draw of q can tell.

Chains that start from q, and weights of draws of q, are blind to a mode that q has missed. So
points are scattered wider than q, each climbs the density, and where one ends with a ratio p/q
above every ratio that was seen among q's draws, the mass around it is estimated: by importance
sampling from a Student-t mixture shaped by the Hessians there, of p alone where q is too low.
"""

from dataclasses import dataclass, field

import numpy as np

from involutive._xla.batched import BatchedDensity, BatchedDistribution
from involutive.core.statistics import log_mean_exp
from involutive.diagnostics.climb import STEEPEST, climb_blind, climb_by_gradient

STARTS = 512  # climbs; measured by `python -m involutive.bench.evidence --refuse`
BLIND = 200  # climbs of a density without a gradient; a guess
STEPS = 100  # gradients of a climb; a guess: most end after thirty
WIDER = (1.0, 2.0, 4.0)  # how much further than q the starts lie, from its centre; a guess
HILLS = 32  # uncovered hills whose mass is estimated
DRAWS = 256  # draws of each
FREEDOM = 5.0  # degrees of freedom of the Student-t
ABOVE = 3.0  # nats above log Z from which p/q is called high; a guess


@dataclass(frozen=True)
class MissedMass:
    """Mass of the target that lies where the proposal has next to none.

    Attributes:
        log_mass: the logarithm of the integral of p there; -inf if nothing was found.
        hills: `(k, dim)`, tops of what was found, the densest first; empty if nothing was.
    """

    log_mass: float = -np.inf
    hills: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def point(self) -> np.ndarray | None:
        """The densest point of what was found, or None."""
        return self.hills[0] if len(self.hills) else None


def missed(
    p: BatchedDensity, q: BatchedDistribution, drawn: np.ndarray, wide: np.ndarray,
    log_z: float, top: float,
    rng: np.random.Generator, gradient: bool = True, climbs: int = STARTS,
) -> MissedMass:  # fmt: skip
    """Look for mass of p that q does not cover.

    Args:
        p, q: log density of the target, and the proposal.
        drawn: draws of q, `(n, dim)`.
        wide: further points to start from, such as draws of X.
        log_z: an estimate of log Z from q's draws.
        top: the largest log p/q among q's draws.
        rng: for the starts and the Student-t draws.
        gradient: whether the density has one; without it climbs are fewer and blind.
        climbs: how many start from draws of q, beside those from `wide`.
    """
    drawn = drawn[np.isfinite(drawn).all(axis=1)]  # one that overflowed would hide all hills
    scale = np.maximum(drawn.std(axis=0), 1e-12).astype(np.float64)
    starts = np.concatenate([_wider(drawn, climbs, rng), wide]).astype(p.dtype)
    lengths = np.ones(0)
    if gradient:
        reach = np.full(len(starts), np.sqrt(p.dim))
        ends, values = climb_by_gradient(p, starts, scale, reach, STEPS)
    else:
        starts = starts[rng.permutation(len(starts))[:BLIND]]
        ends, values, lengths = climb_blind(p, starts, scale, STEPS, rng)
    level = max(top, log_z + ABOVE)
    high = np.isfinite(values) & (values > q.values(ends) + level)
    if not high.any():
        return MissedMass()
    hills = _distinct(ends[high], values[high], scale)
    if gradient:
        factors = np.stack([_factor(h, scale) for h in p.hessians(hills).astype(np.float64)])
    else:
        width = max(float(np.median(lengths[high])), 1e-3)
        factors = np.tile(np.diag(scale * width), (len(hills), 1, 1))
    log_mass = _mass(p, q, hills, factors, level, rng)
    return MissedMass(log_mass, hills)


def _wider(drawn: np.ndarray, climbs: int, rng: np.random.Generator) -> np.ndarray:
    """Draws of q, and the same blown up around their centre."""
    centre = drawn.mean(axis=0)
    each = climbs // len(WIDER)
    rows = [drawn[rng.integers(len(drawn), size=each)] for _ in WIDER]
    return np.concatenate(
        [centre + factor * (part - centre) for factor, part in zip(WIDER, rows, strict=True)]
    )


def _distinct(points: np.ndarray, values: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """At most `HILLS` points apart from each other, spread over what was found; highest first."""
    order = np.argsort(-values)
    points = points[order]
    kept = [0]
    apart = np.linalg.norm((points - points[0]) / scale, axis=1)
    while len(kept) < min(HILLS, len(points)) and apart.max() > 1e-2 * np.sqrt(points.shape[1]):
        kept.append(int(np.argmax(apart)))
        new = np.linalg.norm((points - points[kept[-1]]) / scale, axis=1)
        apart = np.minimum(apart, new)
    return points[kept]


def _mass(
    p: BatchedDensity, q: BatchedDistribution, hills: np.ndarray, factors: np.ndarray, level: float,
    rng: np.random.Generator,
) -> float:  # fmt: skip
    """`log ∫ p` over where p/q is high, by draws of a Student-t mixture at the hills."""
    count, dim = hills.shape
    noise = rng.normal(size=(count, DRAWS, dim)) / np.sqrt(
        rng.chisquare(FREEDOM, size=(count, DRAWS, 1)) / FREEDOM
    )
    points = hills[:, None] + np.einsum("kij,knj->kni", factors, noise)
    points = points.reshape(-1, dim).astype(p.dtype)
    density = np.full(len(points), -np.inf)
    for hill, factor in zip(hills, factors, strict=True):
        density = np.logaddexp(density, _log_student(points - hill, factor))
    value = p.values(points).astype(np.float64)
    known = q.values(points).astype(np.float64)
    outside = value > known + (level - ABOVE / 2)
    weights = np.where(np.isfinite(value) & outside, value - density + np.log(count), -np.inf)
    return log_mean_exp(weights)


def _factor(hessian: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """A square root of `(-Hessian)⁻¹`; no direction longer than `scale`.

    An entry that has overflowed tells nothing of the width there, and counts as zero.
    """
    scaled = np.nan_to_num(-hessian * scale[:, None] * scale, posinf=0.0, neginf=0.0)
    scaled = np.clip(scaled, -STEEPEST, STEEPEST)
    bend, axes = np.linalg.eigh((scaled + scaled.T) / 2)
    return scale[:, None] * axes / np.sqrt(np.maximum(bend, 1.0))


def _log_student(apart: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """The log density of the multivariate Student-t with that scale matrix."""
    from math import lgamma

    dim = apart.shape[1]
    white = np.linalg.solve(factor, apart.T.astype(np.float64))
    inside = 0.5 * (FREEDOM + dim) * np.log1p(np.sum(white**2, axis=0) / FREEDOM)
    constant = lgamma((FREEDOM + dim) / 2) - lgamma(FREEDOM / 2)
    constant -= 0.5 * dim * np.log(FREEDOM * np.pi) + np.linalg.slogdet(factor)[1]
    return constant - inside

"""What is measured on a ladder of replicas: barrier, schedule, round trips and the evidence.

With ℓ = log p - log q at a draw of p_β, neighbours β < β' give two estimates of the same ratio of
normalising constants,

    log Z_β'/Z_β = log E_β exp((β'-β) ℓ) = -log E_β' exp(-(β'-β) ℓ),

whose sums over the ladder are log Z forward and backward, as the reference is normalised. A replica
that has not converged makes the two differ, so their gap is part of the error.
"""

from itertools import pairwise

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.interpolate import PchipInterpolator
from scipy.special import logsumexp

from involutive.core.errors import check
from involutive.core.types import ArrayLike


class Ladder(eqx.Module):
    """Measurements of a ladder after its adaptation, when everything is fixed.

    Attributes:
        betas: the schedule from the reference (0) to the target (1).
        swap_acceptance: acceptance rate of exchanges of every pair of neighbours.
        local_acceptance: acceptance rate of the local moves of every replica but the hot one.
        barrier: Λ, the sum of the rejection rates; about `2 Λ + 1` replicas are enough.
        round_trips: hot → cold → hot, of all replicas of all ladders.
        trips_per_scan: round trips of one ladder per scan; at most `1 / (2 + 2 Λ)`.
        log_z: the log evidence, the mean of forward and backward.
        log_z_error: the larger of its jackknife error over ladders and half the gap of the two.
        log_z_forward, log_z_backward: stepping stones from the reference and from the target.
        scans: scans of each ladder that were measured.
        evaluations: density evaluations of adaptation and measurement, a gradient counted as three.

    Example:
        >>> import involutive as inv
        >>> plain = inv.tempered(inv.targets.mog2(), rounds=0)
        >>> plain.ladder is None  # adaptation, `inv.adapt_ladder`, has measured nothing yet
        True
    """

    betas: Float[Array, " replicas"]
    swap_acceptance: Float[Array, " pairs"]
    local_acceptance: Float[Array, " pairs"]
    barrier: Float[Array, ""]
    round_trips: Int[Array, ""]
    trips_per_scan: Float[Array, ""]
    log_z: Float[Array, ""]
    log_z_error: Float[Array, ""]
    log_z_forward: Float[Array, ""]
    log_z_backward: Float[Array, ""]
    scans: Int[Array, ""]
    evaluations: Float[Array, ""]

    def __str__(self) -> str:
        return (
            f"{self.betas.size} replicas, barrier {float(self.barrier):.2f}, exchanges accepted "
            f"{float(self.swap_acceptance.min()):.2f} to {float(self.swap_acceptance.max()):.2f}, "
            f"{int(self.round_trips)} round trips ({float(self.trips_per_scan):.3f} per scan and "
            f"ladder), log Z {float(self.log_z):.3f} ± {float(self.log_z_error):.3f}, "
            f"{float(self.evaluations):.3g} evaluations"
        )


def measured(
    betas: Array, swaps: np.ndarray, moves: np.ndarray, trips: int, log_weights: np.ndarray,
    evaluations: float,
) -> Ladder:  # fmt: skip
    """The measurements of a round, from ℓ as `(scans, ladders, replicas)`."""
    scans, ladders, _ = log_weights.shape
    forward, backward, error = stepping_stones(log_weights, np.asarray(betas))
    both = 0.5 * (forward + backward)
    swaps = np.asarray(swaps, float)
    number = lambda value: jnp.asarray(value, float)  # noqa: E731
    return Ladder(
        betas=jnp.asarray(betas),
        swap_acceptance=number(swaps),
        local_acceptance=number(moves),
        barrier=number(np.sum(1 - swaps)),
        round_trips=jnp.asarray(trips),
        trips_per_scan=number(trips / (scans * ladders)),
        log_z=number(both),
        log_z_error=number(error),
        log_z_forward=number(forward),
        log_z_backward=number(backward),
        scans=jnp.asarray(scans),
        evaluations=number(evaluations),
    )


def stepping_stones(log_weights: np.ndarray, betas: np.ndarray) -> tuple[float, float, float]:
    """log Z forward, log Z backward, and the error of their mean.

    Args:
        log_weights: `(scans, ladders, replicas)`, log p - log q at the replicas.
        betas: the schedule.

    Returns:
        The two estimates, and the larger of the jackknife error over ladders and half their gap.
    """
    values, steps = np.asarray(log_weights, np.float64), np.diff(np.asarray(betas, np.float64))
    values = np.where(np.isnan(values), -np.inf, values)
    # log of the mean weight of each ladder, from which jackknife estimates follow
    up = _log_means(steps * values[..., :-1])
    down = _log_means(-steps * values[..., 1:])
    forward, backward = _joined(up).sum(), -_joined(down).sum()
    count = values.shape[1]
    left_out = np.array(
        [
            0.5 * (_joined(np.delete(up, i, 0)).sum() - _joined(np.delete(down, i, 0)).sum())
            for i in range(count)
        ]
        if count > 1
        else [0.0]
    )
    jackknife = np.sqrt((count - 1) * np.mean((left_out - left_out.mean()) ** 2))
    gap = abs(forward - backward) / 2
    return float(forward), float(backward), float(max(jackknife, gap))


def _log_means(values: np.ndarray) -> np.ndarray:
    return logsumexp(values, axis=0) - np.log(values.shape[0])


def _joined(log_means: np.ndarray) -> np.ndarray:
    return logsumexp(log_means, axis=0) - np.log(log_means.shape[0])


def equal_rejection(betas: ArrayLike, swap_acceptance: ArrayLike, replicas: int) -> np.ndarray:
    """The schedule of `replicas` replicas whose neighbours have equal rejection rates.

    The cumulative rejection Λ(β) is interpolated by a monotone cubic through the measured ladder,
    and inverted at equal steps.
    """
    check(replicas >= 2, f"a ladder has at least two replicas, got {replicas}")
    betas = np.asarray(betas, np.float64)
    rejected = np.maximum(1 - np.asarray(swap_acceptance, np.float64), 1e-4)
    barrier = np.concatenate([[0.0], np.cumsum(rejected)])
    goal = np.linspace(0, barrier[-1], replicas)
    fine = np.concatenate([np.linspace(a, b, 65)[:-1] for a, b in pairwise(betas)] + [[1.0]])
    found = np.interp(goal, PchipInterpolator(betas, barrier)(fine), fine)
    found[0], found[-1] = 0.0, 1.0
    least = 1e-6 / replicas  # keeps tiny first steps of a schedule apart after rounding
    return np.maximum.accumulate(found + least * np.arange(replicas)) / (1 + least * (replicas - 1))


def trip_rate(swap_acceptance: ArrayLike) -> float:
    """Round trips per scan for these rates: `1 / (2 + 2 Σ r/(1-r))`, r the rejection rates."""
    accepted = np.clip(np.asarray(swap_acceptance, np.float64), 1e-6, 1.0)
    return float(1 / (2 + 2 * np.sum((1 - accepted) / accepted)))

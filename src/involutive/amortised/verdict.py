"""The verdict on each data set: effective draws, evidence, modes, and whether to trust them.

Weights of q's draws, chains that start from q and from elsewhere, and annealed particles that do
not depend on q are three views of one posterior. Each can fail to see what another sees, so that
the verdict trusts a data set only where all of them agree.
"""

from dataclasses import dataclass

import numpy as np

from involutive.amortised.program import Ran
from involutive.amortised.settings import ManySettings
from involutive.core.statistics import ess, log_mean_exp, mcse, pareto_k, rhat
from involutive.core.types import Number
from involutive.diagnostics.coverage import ABOVE
from involutive.diagnostics.estimators import beyond, bridge, effective_share, importance
from involutive.diagnostics.evidence import APART, LARGEST_K, LEAST_SIZE
from involutive.diagnostics.findings import LEAST_ESS
from involutive.diagnostics.measured import Estimate


@dataclass(frozen=True)
class SetVerdict:
    """The verdict on one data set.

    Attributes:
        trusted: whether nothing speaks against its draws.
        reasons: what speaks against them, in words.
        ess: effective draws, the minimum over coordinates, |x|² and the heaviest mode.
        ess_per_draw: the same per draw.
        r_hat: the maximum over the same quantities.
        acceptance: the mean acceptance rate of the global move.
        efficiency: the effective share of the proposal's draws by their weights.
        pareto_k: Pareto's k of those weights.
        log_z: the log evidence by bridge sampling.
        log_z_error: its standard error.
        mode_weights: the share of draws in every mode, the heaviest first.
        mode_errors: their Monte Carlo errors.
        learned: whether the proposal was learned for this data set alone, after the network's
            failed.

    Example:
        >>> import involutive as inv
        >>> inv.SetVerdict(True, (), 900.0, 0.45, 1.002, 0.7, 0.6, 0.2, -3.1, 0.02).trusted
        True
    """

    trusted: bool
    reasons: tuple[str, ...]
    ess: Number
    ess_per_draw: Number
    r_hat: Number
    acceptance: Number
    efficiency: Number
    pareto_k: Number
    log_z: Number
    log_z_error: Number
    mode_weights: tuple[Number, ...] = (1.0,)
    mode_errors: tuple[Number, ...] = (0.0,)
    learned: bool = False


def judged(ran: Ran, scale: np.ndarray, settings: ManySettings) -> tuple[SetVerdict, np.ndarray]:
    """The verdict on one data set, and the mode of every draw `(chains, draws)`.

    `scale` are sds of positions, by which |x|² is made comparable.
    """
    forward = np.asarray(ran.forward, np.float64)
    labels, weights, errors = modes(ran, settings)
    total = ran.log_density.size
    if not np.isfinite(forward).any():
        reason = "the density is finite at none of the proposal's draws"
        nothing = SetVerdict(False, (reason,), 0.0, 0.0, np.inf, 0.0, 0.0, np.inf, np.nan, np.inf)
        return nothing, labels
    effective, ratio = mixing(np.asarray(ran.positions, np.float64), labels, scale)
    joined, reasons = _evidence(ran, forward, settings)
    k, share = pareto_k(forward), effective_share(forward)
    if k >= LARGEST_K:
        reasons.append(f"Pareto k of the weights is {k:.2f} (below {LARGEST_K} is reliable)")
    if share * forward.size < LEAST_SIZE:
        size = f"{share * forward.size:.0f} of {forward.size}"
        reasons.append(f"only {size} draws of the proposal are effective")
    if not effective >= LEAST_ESS:
        reasons.append(f"only {effective:.0f} effective draws (at least {LEAST_ESS:.0f} needed)")
    if not ratio <= settings.largest_r_hat:
        reasons.append(f"chains disagree: R-hat {ratio:.3f} (at most {settings.largest_r_hat})")
    found = SetVerdict(
        not reasons, tuple(reasons), effective, effective / total, ratio,
        float(np.mean(ran.acceptance_rate)), share, k, joined.log_z, joined.error,
        tuple(weights.tolist()), tuple(errors.tolist()),
    )  # fmt: skip
    return found, labels


def mixing(positions: np.ndarray, labels: np.ndarray, scale: np.ndarray) -> tuple[float, float]:
    """The minimum ESS and the maximum R-hat over coordinates, |x|² and the heaviest mode."""
    squares = np.sum((positions / scale) ** 2, axis=2, keepdims=True)
    parts = [positions, squares]
    if labels.max() > 0:
        parts.append((labels == 0)[..., None].astype(float))
    values = np.concatenate(parts, axis=2)
    return float(np.nanmin(ess(values))), float(np.nanmax(rhat(values)))


def _evidence(ran: Ran, forward: np.ndarray, settings: ManySettings) -> tuple[Estimate, list[str]]:
    """log Z by bridge sampling, and where weights, chains and particles see different mass."""
    backward = np.asarray(ran.backward, np.float64)
    backward = np.where(np.isfinite(backward), backward, -np.inf)
    more = beyond(forward)
    important, joined = (
        Estimate(z, float(np.hypot(error, more)))
        for z, error in (importance(forward), bridge(forward, backward))
    )
    reasons = []
    gap, noise = abs(important.log_z - joined.log_z), np.hypot(important.error, joined.error)
    if not gap <= APART * noise + 1e-6:
        reasons.append(
            f"importance sampling and bridge sampling differ by {gap:.2g} in log Z, "
            f"{gap / noise:.0f} standard errors"
        )
    unseen = float(np.mean(backward > forward.max()))
    if unseen > settings.unseen:
        reasons.append(f"the proposal has too little mass at {unseen:.1%} of the chains' draws")
    level = max(float(forward.max()), log_mean_exp(forward) + ABOVE)
    count = int(np.sum(np.asarray(ran.outside) > level))
    if count >= settings.outside:
        size = np.asarray(ran.outside).size
        reasons.append(f"the proposal has too little mass at {count} of {size} annealed particles")
    return joined, reasons


def modes(ran: Ran, settings: ManySettings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mode of every draw, the weights of the modes, the heaviest first, and their errors.

    Components of q are one mode if the density does not dip on the way between them, directly or
    by way of others; a draw belongs to the component that is most responsible for it.
    """
    of = _joined(np.asarray(ran.barrier), np.asarray(ran.weights), settings)
    labels = of[np.asarray(ran.component)]
    counts = np.bincount(labels.ravel(), minlength=of.max() + 1)
    order = np.argsort(-counts, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    labels = place[labels]
    weights = counts[order][counts[order] > 0] / labels.size
    if weights.size == 1:
        return labels, weights, np.zeros(1)
    inside = np.stack([labels == number for number in range(weights.size)], axis=2)
    return labels, weights, np.nan_to_num(mcse(inside.astype(float)))


def _joined(barrier: np.ndarray, weights: np.ndarray, settings: ManySettings) -> np.ndarray:
    """The number of the mode of each component; light ones join the nearest heavy one."""
    count = len(weights)
    low = np.where(np.isfinite(barrier), barrier, np.inf)
    of = np.arange(count)
    heavy = weights >= settings.lightest
    for i in range(count):
        for j in range(i):
            if heavy[i] and heavy[j] and min(low[i, j], low[j, i]) < settings.dip:
                of[of == of[i]] = of[j]
    for i in np.flatnonzero(~heavy):
        row = np.where(heavy, low[i], np.inf)
        of[i] = of[int(np.argmin(row))] if heavy.any() else 0
    return np.unique(of, return_inverse=True)[1]

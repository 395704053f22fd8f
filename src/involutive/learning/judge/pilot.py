"""Pilot chains: they measure a learned kernel from separate starts.

Three chains in four start from the proposal, one from elsewhere: from X, at its widths, or from
starts of climbs. If all of them started from the proposal, R-hat would compare the proposal with
itself, and every chain could miss a mode that the proposal misses.
"""

import time
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Key

from involutive.auxiliary.hierarchical import evaluations_within
from involutive.core.statistics import ess, rhat, rhat_between
from involutive.core.types import Number
from involutive.kernel.kernel import AbstractKernel
from involutive.kernel.replicas import Tempered
from involutive.learning.problem import Spending
from involutive.learning.settings import JudgeSettings
from involutive.sampling.runner import Chains
from involutive.sampling.sample import CHUNK
from involutive.sampling.trace import Trace


@dataclass(frozen=True)
class Pilot:
    """The metrics of pilot chains.

    Attributes:
        acceptance: mean acceptance probability.
        ess_per_draw: effective draws per draw, the minimum over coordinates and |x|².
        effective: effective draws of all pilot chains, the same minimum.
        r_hat: R-hat, the maximum over coordinates and |x|².
        groups: nested R-hat between the two groups of starts, NaN with one group.
        chains: number of chains.
        settings: thresholds of the metrics.
    """

    acceptance: Number
    ess_per_draw: Number
    effective: Number
    r_hat: Number
    groups: Number
    chains: int
    settings: JudgeSettings

    @property
    def agree(self) -> bool:
        """Whether chains agree, wherever they started."""
        apart = np.isfinite(self.groups) and self.groups > self.allowed_groups
        return self.r_hat <= self.allowed and not apart

    @property
    def enough(self) -> bool:
        """Whether there are enough effective draws to rely on ESS and R-hat."""
        return self.effective >= self.settings.least_ess

    @property
    def allowed(self) -> float:
        """The maximum R-hat of chains that agree; with few effective draws R-hat is noisier.

        For m half chains that agree it is about 1 + m / (2 ESS).
        """
        noise = self.chains / max(self.effective, 1.0)
        return self.settings.largest_rhat + self.settings.rhat_noise * noise

    @property
    def allowed_groups(self) -> float:
        """The maximum nested R-hat of two groups that agree.

        Only two means are compared, so its noise depends on the effective draws alone and not on
        the number of chains.
        """
        noise = 1 / max(self.effective, 1.0)
        return self.settings.largest_groups + self.settings.groups_noise * noise


def run_chains(
    kernel: AbstractKernel,
    states: np.ndarray,
    steps: int,
    key: Key[Array, ""],
    spending: Spending,
    least: int | None = None,
) -> Trace:
    """Run chains for `steps` steps, or until the allowance ends after `least` of them.

    Past the deadline, `past_steps` are enough.

    Returns:
        The trace, arrays of `(chains, steps, …)`.
    """
    # the same chunks as in `sample`, which then reuses the compiled program
    devices = spending.problem.devices
    settings = spending.problem.settings.judge
    chains = Chains(kernel, key, range(len(states)), capacity=CHUNK, devices=devices)
    chains.start(states)
    cost = len(states) * evaluations_per_step(kernel)
    left = spending.allowance.evaluations - spending.evaluations
    most = int(np.clip(left / cost, 1, settings.first_steps))
    parts, done = [], 0
    while done < steps:
        count = min(most, steps - done)
        enough = least is None or done >= min(least, settings.past_steps)
        over = spending.evaluations + cost * count > spending.allowance.evaluations
        if parts and (over or (enough and not spending.allows())):
            break
        began = time.perf_counter()
        parts.append(chains.advance(count))
        done += count
        spending.note(cost * count)
        most = _affordable(spending, cost, (time.perf_counter() - began) / count)
    return jax.tree.map(lambda *rows: np.concatenate(rows, axis=1), *parts)


def _affordable(spending: Spending, cost: int, seconds: Number) -> int:
    """How many steps the allowance has room for, at that many evaluations and seconds per step."""
    left = spending.allowance.evaluations - spending.evaluations
    by_time = spending.allowance.seconds / max(seconds, 1e-9)
    first = spending.problem.settings.judge.first_steps
    return int(np.clip(min(left / cost, max(by_time, first)), 1, CHUNK))


def evaluations_per_step(kernel: AbstractKernel, of_proposal: bool = True) -> int:
    """Density evaluations per step; a gradient counts as three.

    Args:
        kernel: the kernel.
        of_proposal: whether to count those that a proposal makes, as a hierarchy does.
    """
    if isinstance(kernel, Tempered):
        within = evaluations_within(kernel.reference) if of_proposal else 0
        return kernel.evaluations_per_step * (1 + within)
    parts = getattr(kernel, "kernels", (kernel,))
    return sum(_evaluations_of_part(part, of_proposal) for part in parts)


def _evaluations_of_part(part: AbstractKernel, of_proposal: bool) -> int:
    steps = int(getattr(getattr(part, "involution", None), "num_steps", 0))
    law = getattr(part, "auxiliary", None)
    # a draw of q, its log density, and that of the present state
    within = 3 * evaluations_within(law) if of_proposal and law is not None else 0
    return within + (1 + 3 * (steps + 1) if steps else 1)


def pilot_metrics(
    trace: Trace, warmup: int, elsewhere: np.ndarray, settings: JudgeSettings
) -> Pilot:
    """The metrics of chains; `elsewhere` marks those that did not start from the proposal."""
    positions = trace.position[:, warmup:].astype(np.float64)
    squares = np.sum(positions**2, axis=2, keepdims=True)
    values = np.concatenate([positions, squares], axis=2)
    sizes = np.nan_to_num(ess(values), nan=0.0)
    effective, total = float(sizes.min()), positions.shape[0] * positions.shape[1]
    ratios = rhat(values)
    return Pilot(
        acceptance=float(trace.acceptance_rate[:, warmup:].mean()),
        ess_per_draw=min(effective / total, 1.0),
        effective=effective,
        r_hat=float(np.nanmax(ratios)) if np.isfinite(ratios).any() else float("inf"),
        groups=rhat_between(values, elsewhere),
        chains=len(positions),
        settings=settings,
    )

"""Rounds of chains and training, and the local move beside the proposal."""

from dataclasses import dataclass

from involutive.core.types import Number
from involutive.learning.settings.checks import check_not_negative


@dataclass(frozen=True)
class RefineSettings:
    """Sizes and thresholds of rounds and of local moves.

    Args:
        longer: factor on the steps of chains whose proposal is very poor. [a guess]
        gains: factor of effective draws that a round must gain to be followed by another. [a guess]
        judged: fresh draws that the previous proposal is scored on. [a guess]
        same: share of the spread within which quantiles of two sets of draws count as equal.
            [a guess]
        same_quantiles: the quantiles of every coordinate that are compared. [a guess]
        training_seconds: seconds left below which nothing is trained, since training and metrics
            must be compiled. [measured by `python -m involutive.bench.budgets`]
        hopeless: effective draws per draw below which further rounds are not tried. [a guess]
        hopeless_rounds: rounds after which that is asked. [a guess]
        local_share: probability of a local move in the chains of a round. [a guess]
        tuning_points: draws that the step size of a local move is tuned on. [a guess]
        tuning_rounds: updates of the step size. [a guess]
        tuning_moves: steps per update. [a guess]
        tuning_leaps: leapfrog steps of HMC while it is tuned. [a guess]
        tuning_gain: change of log step per excess of the acceptance rate, at first. [a guess]
        tuning_decay: update i has that gain divided by 1 + tuning_decay·i. [a guess]
        factor_points: draws from which the scale within modes is estimated. [a guess]
        factor_components: mixture components that separate the modes for that. [a guess]
        hmc_step: first step of HMC, times dim^(-1/4), in the scale within modes. [a guess]
        hmc_acceptance: acceptance rate that HMC is tuned to. [standard: near-optimal]
        walk_step: first step of a random walk, times dim^(-1/2). [standard: 2.38/√d]
        walk_acceptance: acceptance rate that a random walk is tuned to. [standard: near-optimal]
        path: length of a trajectory of HMC, about a quarter of a unit Gaussian's period.
            [standard: π/2]
        leap_bounds: minimum and maximum leapfrog steps of a trajectory. [a guess]

    Raises:
        InputError: if a number is negative.

    Example:
        >>> import involutive as inv
        >>> inv.LearnSettings(refine=inv.RefineSettings(gains=1.05)).refine.gains
        1.05
    """

    longer: int = 4
    gains: Number = 1.1
    judged: int = 2000
    same: Number = 0.1
    same_quantiles: tuple[Number, Number] = (0.1, 0.9)
    training_seconds: Number = 12.0
    hopeless: Number = 0.005
    hopeless_rounds: int = 2
    local_share: Number = 0.5
    tuning_points: int = 128
    tuning_rounds: int = 30
    tuning_moves: int = 3
    tuning_leaps: int = 4
    tuning_gain: Number = 2.0
    tuning_decay: Number = 0.3
    factor_points: int = 4096
    factor_components: int = 24
    hmc_step: Number = 0.9
    hmc_acceptance: float = 0.8
    walk_step: Number = 2.38
    walk_acceptance: float = 0.3
    path: Number = 1.5
    leap_bounds: tuple[int, int] = (2, 24)

    def __post_init__(self) -> None:
        check_not_negative(self)

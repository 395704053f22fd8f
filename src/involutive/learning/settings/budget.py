"""How a budget is divided among the stages, and the minimum sizes of a small one."""

from dataclasses import dataclass

from involutive.core.types import Number
from involutive.learning.settings.checks import check_not_negative


@dataclass(frozen=True)
class BudgetSettings:
    """How learning divides its budget among stages, and the minimum sizes of a small budget.

    Args:
        default_seconds: wall time if no budget is given, far more than the default sizes need.
            [a guess]
        usual_seconds: wall time that the default sizes take on two cores, compilation included.
            [a guess]
        usual_evaluations: density evaluations that the default sizes take. [a guess]
        least_evaluations: density evaluations below which no search is made. [a guess]
        least_scale: smallest factor by which a small budget shrinks the sizes. [a guess]
        search: share of the budget after which the search must have ended. [a guess]
        fit: the same for the fit of a mixture. [a guess]
        structure: the same for proposals with structure. [a guess]
        rounds: the same for rounds. [a guess]
        pilot: the same for the pilot chains. [a guess]
        replicas: the same for replicas. [a guess]
        look: the same for the final search. [a guess]
        least_climbers: minimum climbers of a search. [a guess]
        least_search_draws: minimum draws of X among which places to climb from are chosen.
            [a guess]
        least_particles: minimum particles of annealing. [a guess]
        least_fit_draws: minimum weighted draws that a mixture is fitted to at once. [a guess]
        least_round_chains: minimum chains of a round. [a guess]
        least_round_steps: minimum steps of those chains. [a guess]
        least_updates: minimum updates of a training. [a guess]
        least_rounds: minimum of `most_rounds`. [a guess]
        rounds_power: power of the factor on chains and updates by which the number of rounds and
            the steps of a round shrink. [a guess]

    Raises:
        InputError: if a number is negative.

    Example:
        >>> import involutive as inv
        >>> shares = inv.BudgetSettings(search=0.5, fit=0.6)
        >>> inv.LearnSettings(budget=shares).budget.search
        0.5
    """

    default_seconds: Number = 300.0
    usual_seconds: Number = 30.0
    usual_evaluations: Number = 8e6
    least_evaluations: int = 2000
    least_scale: Number = 0.002
    search: Number = 0.35
    fit: Number = 0.5
    structure: Number = 0.6
    rounds: Number = 0.7
    pilot: Number = 0.8
    replicas: Number = 0.93
    look: Number = 1.0
    least_climbers: int = 64
    least_search_draws: int = 256
    least_particles: int = 256
    least_fit_draws: int = 4096
    least_round_chains: int = 64
    least_round_steps: int = 20
    least_updates: int = 50
    least_rounds: int = 1
    rounds_power: Number = 0.5

    def __post_init__(self) -> None:
        check_not_negative(self)

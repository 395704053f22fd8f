"""How a budget is shared out among the stages, and what sizes it allows."""

from dataclasses import dataclass

from involutive.core.types import Number
from involutive.learning.settings.checks import check_not_negative


@dataclass(frozen=True)
class BudgetSettings:
    """How learning shares out its budget, and the smallest sizes that a small budget leaves.

    Args:
        default_seconds: wall time where no budget is given; what the default sizes need is far
            less. [a guess]
        usual_seconds: wall time that the default sizes take on two cores, compilation included.
            [a guess]
        usual_evaluations: density evaluations that the default sizes take. [a guess]
        least_evaluations: density evaluations below which nothing can be found, let alone measured.
            [a guess]
        least_scale: smallest factor by which a small budget shrinks the sizes. [a guess]
        search: share of the budget after which the search must have ended. [a guess]
        fit: the same for the fit of a mixture. [a guess]
        structure: the same for proposals with structure. [a guess]
        rounds: the same for rounds. [a guess]
        pilot: the same for the pilot chains. [a guess]
        replicas: the same for replicas. [a guess]
        look: the same for the last look. [a guess]
        least_climbers: fewest climbers of a search made smaller. [a guess]
        least_search_draws: fewest draws of X among which places to climb from are picked. [a guess]
        least_particles: fewest particles of annealing. [a guess]
        least_fit_draws: fewest weighted draws that a mixture is fitted to at once. [a guess]
        least_round_chains: fewest chains of a round. [a guess]
        least_round_steps: fewest steps of those chains. [a guess]
        least_updates: fewest updates of a training. [a guess]

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

    def __post_init__(self) -> None:
        check_not_negative(self)

"""Sizes of `strategy="bootstrap"`, the paper's way to learn without draws."""

from dataclasses import dataclass

from involutive.core.types import Number
from involutive.learning.settings.checks import check_not_negative


@dataclass(frozen=True)
class BootstrapSettings:
    """Sizes of `learn(..., strategy="bootstrap")`.

    Args:
        auxiliary: minimum auxiliary dimensions. [the paper's in two dimensions]
        auxiliary_per_dim: auxiliary dimensions per dimension of the target. [a guess]
        starts: draws of X that chains start from. [a guess]
        first_step: step of the first random walk, in sds of X. [a guess]
        chance: probability of a local move in the kernel that is returned. [a guess]
        rounds: rounds of the full schedule. [A-NICE-MC's ten]
        least_rounds: minimum rounds of a small budget. [a guess]
        updates: updates per round of the full schedule. [a guess]
        least_updates: minimum updates per round. [a guess]
        looks: evaluations on held-out draws per round. [a guess]
        draws: draws per chain and round of the full schedule. [a guess]
        least_draws: minimum draws per chain and round. [a guess]
        burn_in: steps discarded before those draws. [a guess]
        least_burn_in: minimum steps discarded. [a guess]

    Raises:
        InputError: if a number is negative.

    Example:
        >>> import involutive as inv
        >>> inv.LearnSettings(bootstrap=inv.BootstrapSettings(rounds=5)).bootstrap.rounds
        5
    """

    auxiliary: int = 30
    auxiliary_per_dim: int = 2
    starts: int = 64
    first_step: Number = 0.5
    chance: Number = 0.3
    rounds: int = 10
    least_rounds: int = 2
    updates: int = 300
    least_updates: int = 20
    looks: int = 5
    draws: int = 500
    least_draws: int = 50
    burn_in: int = 200
    least_burn_in: int = 20

    def __post_init__(self) -> None:
        check_not_negative(self)

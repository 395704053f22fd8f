"""Replicas: the ladder from the learned proposal to the target."""

from dataclasses import dataclass

from involutive.core.types import Number
from involutive.learning.settings.checks import check_not_negative


@dataclass(frozen=True)
class ReplicaSettings:
    """Sizes of the ladder of replicas that is tried where the proposal alone does not mix.

    Args:
        wide: weight of X beside q in the reference. [a guess]
        first: replicas of the first round. [a guess]
        spacing: power of the evenly spaced inverse temperatures of the first round. [a guess]
        step: first step of a local move, times dim^(-1/4), in the scale within modes. [a guess]
        leaps: leapfrog steps per local move. [a guess]
        ladders: ladders that adapt together. [a guess]
        scans: scans of the first round of adaptation. [a guess]
        rounds: rounds of adaptation, each twice as long as the one before. [a guess]
        trips_per_draw: round trips per draw that scans are repeated for. [a guess]
        most_scans: maximum scans per draw. [a guess]
        adapting: share of the stage's time that adaptation may take. [a guess]
        least_seconds: seconds left below which no ladder is tried. [a guess]
        suffices: effective draws per draw of a measured kernel that make rounds needless. [a guess]
        again: factor that rounds must gain for another ladder. [a guess]

    Raises:
        InputError: if a number is negative.

    Example:
        >>> import involutive as inv
        >>> inv.LearnSettings(replicas=inv.ReplicaSettings(leaps=4)).replicas.leaps
        4
    """

    wide: float = 0.1
    first: int = 6
    spacing: Number = 2
    step: Number = 0.5
    leaps: int = 8
    ladders: int = 32
    scans: int = 25
    rounds: int = 4
    trips_per_draw: Number = 0.4
    most_scans: int = 8
    adapting: Number = 0.6
    least_seconds: Number = 5.0
    suffices: Number = 0.2
    again: Number = 2.0

    def __post_init__(self) -> None:
        check_not_negative(self)

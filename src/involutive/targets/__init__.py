"""Densities to sample: `Target`, and benchmarks with known answers."""

from involutive.targets.benchmarks import (
    correlated_gaussian,
    eight_modes,
    funnel,
    gaussian,
    mixture,
    mog2,
    mog2_1d,
    mog6,
    ring,
    ring5,
    two_modes,
)
from involutive.targets.target import Modes, Target

__all__ = [
    "Modes",
    "Target",
    "correlated_gaussian",
    "eight_modes",
    "funnel",
    "gaussian",
    "mixture",
    "mog2",
    "mog2_1d",
    "mog6",
    "ring",
    "ring5",
    "two_modes",
]


def __dir__() -> list[str]:
    return list(__all__)

"""Distributions of the auxiliary variable π: normal, mixtures, products of blocks, heavy tails."""

from involutive.auxiliary.mixtures import (
    ConditionalNormal,
    GaussianMixture,
    Joined,
    ManyNormal,
    OffersLogGain,
    drawn,
    for_many,
    log_gain,
    noted_log_prob,
    standard_normal,
)
from involutive.auxiliary.tries import MultipleTry

__all__ = [
    "ConditionalNormal",
    "GaussianMixture",
    "Joined",
    "ManyNormal",
    "MultipleTry",
    "OffersLogGain",
    "drawn",
    "for_many",
    "log_gain",
    "noted_log_prob",
    "standard_normal",
]

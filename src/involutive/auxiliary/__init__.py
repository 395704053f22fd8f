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

__all__ = [
    "ConditionalNormal",
    "GaussianMixture",
    "Joined",
    "ManyNormal",
    "OffersLogGain",
    "drawn",
    "for_many",
    "log_gain",
    "noted_log_prob",
    "standard_normal",
]

"""The reasons for a verdict: how learning searched for modes that chains may have missed.

Chains that all start from the learned proposal agree with each other also where the proposal has
missed a mode. So some chains start elsewhere, later searches look for more, and the integral of
the density is estimated twice: by annealing from X, and by the weights of the proposal.
"""

from typing import Any

import numpy as np

from involutive.core.statistics import rhat_between
from involutive.diagnostics.findings import LARGEST_RHAT, Finding, Metrics
from involutive.sampling.starts import started_elsewhere

MISSED = 0.01  # share of the mass that the final search may find to be missed; a guess
NATS = 2.0  # by which annealing may see more mass than the proposal's weights; a guess
LEAST_EFFECTIVE = 100.0  # effective draws below which a mean weight has no known error; a guess


def starts_disagree(metrics: Metrics) -> Finding | None:
    """Chains that started elsewhere than the proposal, against those that started from it."""
    draws = metrics.draws
    if not draws.provenance.get("elsewhere"):
        return None
    first, last = draws.provenance["chains"]
    elsewhere = started_elsewhere(np.arange(first, last))
    squares = np.sum(draws.positions**2, axis=2, keepdims=True)
    values = np.concatenate([draws.positions, squares], axis=2).astype(np.float64)
    apart = rhat_between(values, elsewhere)
    most = LARGEST_RHAT["nested_r_hat"]
    if not apart > most:
        return None
    problem = (
        f"Chains that start away from the proposal disagree with those that start from it: nested "
        f"R-hat is {apart:.3g} between the groups (at most {most})."
    )
    remedy = (
        "learn with initial= that covers every mode, or a larger budget=: the proposal has missed "
        "something, or chains take longer to forget their start."
    )
    return Finding("starts disagree", problem, remedy)


def search_missed(metrics: Metrics) -> Finding | None:
    """What the search saw and the proposal does not cover."""
    looked = metrics.draws.provenance.get("looked")
    if not looked:
        return None
    gap, outside = _gap(looked), looked.get("missed") or 0.0
    if outside > MISSED:
        problem = (
            f"About {outside:.0%} of the mass lies where neither the proposal nor its pilot chains "
            "go, according to the final search of learning."
        )
    elif looked.get("new"):
        problem = (
            f"A second search during learning reached {looked['new']} places that the proposal "
            "does not cover."
        )
    elif gap > NATS and not _too_uneven(looked):
        problem = (
            f"Annealing saw {gap:.1f} nats more mass than the weights of the proposal: "
            "a mode or a tail is missing."
        )
    else:
        return None
    return Finding("search found more", problem, "learn with a larger budget=, or initial=.")


def _gap(looked: dict[str, Any]) -> float:
    """Nats by which annealing saw more mass than the weights of the proposal; NaN if unknown."""
    seen, weighed = looked.get("log_z_search"), looked.get("log_z_weights")
    return float("nan") if seen is None or weighed is None else seen - weighed


def _too_uneven(looked: dict[str, Any]) -> bool:
    """Whether weights of the proposal are too uneven to tell from log Z that a mode is missing.

    With few effective draws they underestimate log Z, whatever the chains visit. The mean of
    log p/q at the chains' draws overestimates it, so that annealing must not exceed that either.
    """
    worth, most = looked.get("effective"), looked.get("log_z_chains")
    if worth is None or most is None or worth >= LEAST_EFFECTIVE:
        return False
    return looked["log_z_search"] <= most + NATS


def not_compared(metrics: Metrics) -> str | None:
    """In words, that weights of the proposal cannot tell what is missing; None if they can."""
    looked = metrics.draws.provenance.get("looked")
    if not looked or not _gap(looked) > NATS:
        return None
    return "The weights of the proposal are too uneven to tell whether a mode is missing"


def behind(metrics: Metrics) -> str | None:
    """In words, what was done to find what chains may have missed; None if it tells too little."""
    looked = metrics.draws.provenance.get("looked")
    if not looked or not looked.get("places") or not_compared(metrics) is not None:
        return None
    widths = looked.get("widths") or [1.0]
    chains = metrics.draws.num_chains // 4
    if looked.get("frugal"):
        return None
    apart = (
        f"{chains} chains that started away from the proposal agree with the others, "
        if metrics.draws.provenance.get("elsewhere") and chains > 1
        else ""
    )
    return (
        f"{apart}climbs started at {min(widths):g} to {max(widths):g} times the width of the "
        "initial distribution, and the final search, which compared the density with the proposal "
        f"at {looked['places']:,} places and climbed from {looked['climbs']:,}, found no missed "
        f"mass above {MISSED:.0%}"
    )


def looked_frugally(metrics: Metrics) -> str | None:
    """In words, how briefly frugal learning searched; None if learning was not frugal.

    Of n ascents that end in known modes, one that fewer than 3/n of the starts lead to may have
    been missed, at 95 % (the rule of three).
    """
    looked = metrics.draws.provenance.get("looked")
    if not looked or not looked.get("frugal"):
        return None
    most = max(int(looked["climbs"]) // 3, 1)
    return (
        f"Learning was frugal: {looked['places']:,} evaluations and {looked['climbs']} ascents "
        f"searched for modes; a mode that fewer than one start in {most} leads to may be missed"
    )

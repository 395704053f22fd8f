"""Figures that speak for a run: ESS per draw, mode weights, R-hat, and the summary made of them.

Acceptance alone says nothing about mixing: an orbit of period two is always accepted and explores
nothing. The figure that counts is the rank-normalised bulk ESS per draw, the least over the
coordinates, |x|² and the mode indicators.
"""

from typing import Any, NamedTuple

import numpy as np
from jax.scipy.special import ndtri

from involutive.errors import InputError, check
from involutive.sampling.draws import Draws
from involutive.sampling.findings import Evidence, judge
from involutive.sampling.quantities import Quantities, quantities
from involutive.sampling.summary import Summary

MANY_CHAINS = 16  # from here on nested R-hat has groups of chains to compare
SHORT = 200  # draws a chain below which classic R-hat measures length rather than agreement
INTERVAL = (0.05, 0.95)


class EssPerDraw(NamedTuple):
    """The least bulk ESS per draw, the quantity it belongs to, and that of every quantity."""

    least: float
    quantity: str
    each: dict[str, float]


class ModeWeights(NamedTuple):
    """The share of draws in every mode, the exact weights, and `½ Σ |share - exact|`."""

    share: np.ndarray
    exact: np.ndarray
    total_variation: float


def ess_per_draw(draws: Draws) -> EssPerDraw:
    """Rank-normalised bulk ESS over the number of draws, for every judged quantity.

    A quantity without a figure (fewer than four draws of a chain) counts as zero.
    """
    return _ess_per_draw(_quantities(draws))


def mode_weights(draws: Draws) -> ModeWeights:
    """How often each mode was visited, beside its exact weight."""
    found = _quantities(draws)
    if found.mode is None or found.weights is None:
        raise InputError(
            f"mode_weights needs a target that names its modes, {draws.target.name} does not; "
            "pass modes= to Target"
        )
    return _mode_weights(found.mode, found.weights)


def nested_rhat(values: np.ndarray, superchains: Any = None) -> float:
    """Nested R-hat (Margossian et al. 2024) of `(chains, draws)`, for many short chains.

    Chains are grouped into superchains that began near each other. With B the variance of the
    superchains' means and W the mean variance inside a superchain, it is `sqrt(1 + B/W)`: how much
    is still remembered of the start, whatever the length of one chain. Rank-normalised, on halves
    of chains, the larger of the bulk's and the folded values', as R-hat is. The halves of all
    chains are compared too, since a drift common to all makes no group differ.

    Args:
        values: one quantity.
        superchains: the group of every chain, all of one size; by default `sqrt(chains)` groups of
            chains whose first values are neighbours.
    """
    values = np.asarray(values, np.float64)
    chains, draws = values.shape
    if draws < 4 or not np.isfinite(values).all() or np.ptp(values) == 0:
        return float("nan")
    groups = _neighbours(values[:, 0]) if superchains is None else np.asarray(superchains)
    check(groups.shape == (chains,), f"superchains must name {chains} groups, got {groups.shape}")
    kept = groups >= 0
    half = draws // 2
    split = np.concatenate([values[kept, :half], values[kept, -half:]])
    doubled = np.concatenate([groups[kept], groups[kept]])
    halves = np.repeat([0, 1], kept.sum())
    folded = np.abs(split - np.median(split))
    scores = [_normal_scores(split), _normal_scores(folded)]
    return max(_nested(z, ids) for z in scores for ids in (doubled, halves))


def summarise(draws: Draws, superchains: Any = None) -> Summary:
    """Judge a run: a table of figures, what is wrong in plain words, and a verdict."""
    found = _quantities(draws)
    rows = found.scalars() | found.shape()
    figures = _figures(rows, draws, superchains)
    per_draw = _ess_per_draw(found, figures["ess_bulk"])
    weights = None
    if found.mode is not None and found.weights is not None:
        weights = _mode_weights(found.mode, found.weights)
    short = draws.num_chains >= MANY_CHAINS and draws.num_samples < SHORT
    evidence = Evidence(
        draws=draws,
        names=list(rows),
        figures=figures,
        rhat="nested_r_hat" if short else "r_hat",
        ess_per_draw=per_draw.least,
        slowest=per_draw.quantity,
        share=None if weights is None else weights.share,
        exact=None if weights is None else weights.exact,
    )
    return Summary(evidence=evidence, findings=judge(evidence))


def _quantities(draws: Draws) -> Quantities:
    check(isinstance(draws, Draws), f"draws must come from inv.sample, got {type(draws).__name__}")
    return draws.derived or quantities(draws.target, draws.positions)


def _ess_per_draw(found: Quantities, known: dict[str, float] | None = None) -> EssPerDraw:
    from involutive.interop.arviz import ess

    total = found.positions.shape[0] * found.positions.shape[1]
    known = known or {}
    each = {
        name: (known[name] if name in known else float(ess(values))) / total
        for name, values in found.judged().items()
    }
    each = {name: float(np.nan_to_num(value)) for name, value in each.items()}
    slowest = min(each, key=lambda name: each[name])
    return EssPerDraw(each[slowest], slowest, each)


def _mode_weights(mode: np.ndarray, weights: tuple[float, ...]) -> ModeWeights:
    exact = np.asarray(weights)
    share = np.bincount(mode.ravel(), minlength=exact.size) / mode.size
    return ModeWeights(share, exact, float(0.5 * np.abs(share - exact).sum()))


def _figures(
    rows: dict[str, np.ndarray], draws: Draws, superchains: Any
) -> dict[str, dict[str, float]]:
    """Every figure of the table, by its name and the quantity's."""
    from involutive.interop.arviz import ess, mcse, rhat

    values = np.stack([np.asarray(row, np.float64) for row in rows.values()], axis=2)
    low, high = np.quantile(values, INTERVAL, axis=(0, 1))
    tail = ess(values, "tail")
    # an indicator has no tails: its 5% and 95% quantiles are 0 or 1
    tail[[name.startswith("mode ") for name in rows]] = np.nan
    columns = {
        "mean": values.mean(axis=(0, 1)),
        "sd": values.std(axis=(0, 1)),
        "5%": low,
        "95%": high,
        "ess_bulk": ess(values),
        "ess_tail": tail,
        "r_hat": rhat(values),
        "mcse": mcse(values),
    }
    if draws.num_chains >= MANY_CHAINS:
        nested = [nested_rhat(row, superchains) for row in rows.values()]
        columns["nested_r_hat"] = np.array(nested)
    return {
        name: dict(zip(rows, map(float, column), strict=True)) for name, column in columns.items()
    }


def _neighbours(first: np.ndarray) -> np.ndarray:
    """Group chains by their first values into equal groups; -1 for the few that are left over."""
    count = max(2, int(np.sqrt(first.size)))
    size = first.size // count
    groups = np.full(first.size, -1)
    order = np.argsort(first, kind="stable")[: count * size]
    groups[order] = np.arange(count * size) // size
    return groups


def _nested(values: np.ndarray, groups: np.ndarray) -> float:
    names, sizes = np.unique(groups, return_counts=True)
    check(
        names.size >= 2 and sizes.min() == sizes.max(),
        f"superchains must be at least two groups of one size, got sizes {sizes.tolist()}",
    )
    means, variances = values.mean(axis=1), values.var(axis=1, ddof=1)
    members = [groups == name for name in names]
    between = np.var([means[m].mean() for m in members], ddof=1)
    within = np.mean([means[m].var(ddof=1) + variances[m].mean() for m in members])
    return float(np.sqrt(1 + between / within)) if within > 0 else float("inf")


def _normal_scores(values: np.ndarray) -> np.ndarray:
    """Φ⁻¹((rank - 3/8) / (n + 1/4)), ties at their mean rank."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    rank = np.cumsum(count) - (count - 1) / 2
    scores = (rank - 0.375) / (values.size + 0.25)
    return np.asarray(ndtri(scores), np.float64)[place.reshape(values.shape)]

"""Metrics of a run: ESS per draw, mode weights, R-hat, and the summary made of them.

Acceptance alone says nothing about mixing: an orbit of period two is always accepted and explores
nothing. The metric that counts is the rank-normalised bulk ESS per draw, the minimum over the
coordinates, |x|² and the mode indicators.
"""

from typing import NamedTuple

import numpy as np

from involutive.core.errors import InputError, check
from involutive.core.statistics import ess, mcse, nested_rhat, rhat
from involutive.core.types import ArrayLike
from involutive.diagnostics.circular import circular_figures
from involutive.diagnostics.findings import Metrics, judge
from involutive.diagnostics.search import search_missed, starts_disagree
from involutive.diagnostics.summary import Summary
from involutive.sampling.draws import Draws
from involutive.sampling.quantities import Quantities, quantities

MANY_CHAINS = 16  # from which nested R-hat has groups of chains to compare; a guess
SHORT = 200  # draws per chain below which classic R-hat measures length rather than agreement
INTERVAL = (0.05, 0.95)  # levels of the quantiles in the table
MOST = 200_000  # draws of all chains that are diagnosed; beyond, every k-th. A guess


class EssPerDraw(NamedTuple):
    """The minimum bulk ESS per draw, the quantity it belongs to, and that of every quantity."""

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

    A quantity without an ESS (fewer than four draws per chain) counts as zero.
    """
    return _ess_per_draw(_quantities(draws))


def mode_labels(draws: Draws) -> np.ndarray:
    """The mode of every draw, `(chains, draws)`; zeros where the target names no modes."""
    found = _quantities(draws).mode
    return np.zeros(draws.log_density.shape, int) if found is None else found


def mode_weights(draws: Draws) -> ModeWeights:
    """How often each mode was visited, beside its exact weight."""
    found = _quantities(draws)
    if found.mode is None or found.weights is None:
        raise InputError(
            f"mode_weights needs a target that names its modes, {draws.target.name} does not; "
            "pass modes= to Target"
        )
    return _mode_weights(found.mode, found.weights)


def summarise(draws: Draws, superchains: ArrayLike | None = None) -> Summary:
    """Judge a run: a table of metrics, what is wrong in plain words, and a verdict.

    Of very many draws every k-th is diagnosed, and the summary says so. ESS is that of the draws
    diagnosed, so that the run has at least as many effective draws.
    """
    every = max(1, -(-draws.log_density.size // MOST))
    found = _quantities(draws, slice(None, None, every))
    rows = found.scalars() | found.shape()
    figures = _figures(rows, draws, superchains, found.angles())
    if every == 1:
        per_draw = _ess_per_draw(found, figures["ess_bulk"])
    else:  # what neighbouring draws are worth shows in draws that are neighbours
        last = slice(-max(MOST // draws.num_chains, 1), None)
        per_draw = _ess_per_draw(_quantities(draws, last))
    weights = None
    if found.mode is not None and found.weights is not None:
        weights = _mode_weights(found.mode, found.weights)
    short = draws.num_chains >= MANY_CHAINS and draws.num_samples < SHORT
    metrics = Metrics(
        draws=draws,
        names=list(rows),
        figures=figures,
        rhat="nested_r_hat" if short else "r_hat",
        ess_per_draw=per_draw.least,
        slowest=per_draw.quantity,
        share=None if weights is None else weights.share,
        exact=None if weights is None else weights.exact,
        every=every,
    )
    return Summary(metrics=metrics, findings=judge(metrics, (starts_disagree, search_missed)))


def _quantities(draws: Draws, part: slice = slice(None)) -> Quantities:
    check(isinstance(draws, Draws), f"draws must come from inv.sample, got {type(draws).__name__}")
    if draws.derived is not None:
        return draws.derived.part(part)
    return quantities(draws.target, draws.positions[:, part])


def _ess_per_draw(found: Quantities, known: dict[str, float] | None = None) -> EssPerDraw:
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
    rows: dict[str, np.ndarray],
    draws: Draws,
    superchains: ArrayLike | None,
    angles: dict[str, tuple[float, float]],
) -> dict[str, dict[str, float]]:
    """Every metric of the table, by its name and the quantity's."""
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
    figures = {
        name: dict(zip(rows, map(float, column), strict=True)) for name, column in columns.items()
    }
    for name, ends in angles.items():
        turned = circular_figures(rows[name], ends, INTERVAL, superchains)
        for column in figures:
            figures[column][name] = turned[column]
    return figures

"""Figures of an angle: nothing in them depends on where the circle is cut.

The mean direction is that of `C = mean(cos), S = mean(sin)`, and with `R = |(C, S)|` the sd is
`sqrt(-2 log R)` (Mardia & Jupp 2000). Quantiles are of the turn from the mean direction. ESS and
R-hat are the worse of those of the cosine and the sine. The error of the mean direction is that of
`sin(turn from the mean) / R`, to first order.
"""

import numpy as np

from involutive.core.statistics import ess, mcse, nested_rhat, rhat
from involutive.core.types import ArrayLike
from involutive.sampling.quantities import as_turn, mean_turn


def circular_figures(
    values: np.ndarray,
    ends: tuple[float, float],
    interval: tuple[float, float],
    superchains: ArrayLike | None = None,
) -> dict[str, float]:
    """Return the metrics of one angle, in its own units.

    Args:
        values: `(chains, draws)`, on the circle with those ends.
        ends: two numbers that are one place.
        interval: the levels of the two quantiles.
        superchains: the group of every chain, for nested R-hat.

    Returns:
        Each figure by the name of its column in the summary.
    """
    turn = as_turn(values, ends)
    mean = mean_turn(turn)
    unit = (ends[1] - ends[0]) / (2 * np.pi)
    off = np.mod(turn - mean + np.pi, 2 * np.pi) - np.pi
    length = resultant(turn)
    both = np.stack([np.cos(turn), np.sin(turn)], axis=2)
    low, high = np.quantile(off, interval)

    def place(at: float) -> float:
        return float(ends[0] + unit * np.mod(at, 2 * np.pi))

    return {
        "mean": place(mean),
        "sd": float(unit * np.sqrt(-2 * np.log(length))),
        "5%": place(mean + low),
        "95%": place(mean + high),
        "ess_bulk": float(np.min(ess(both))),
        "ess_tail": float(np.min(ess(both, "tail"))),
        "r_hat": float(np.max(rhat(both))),
        "mcse": float(unit * mcse(np.sin(off)) / length),
        "nested_r_hat": max(nested_rhat(part, superchains) for part in np.moveaxis(both, 2, 0)),
    }


def circular_mean_sd(values: np.ndarray, ends: tuple[float, float]) -> tuple[float, float]:
    """The mean direction and the circular sd of one angle, in its own units."""
    turn = as_turn(values, ends)
    unit = (ends[1] - ends[0]) / (2 * np.pi)
    mean = ends[0] + unit * mean_turn(turn)
    return float(mean), float(unit * np.sqrt(-2 * np.log(resultant(turn))))


def resultant(turn: np.ndarray) -> float:
    """The mean length R of directions in radians, within (0, 1]: 1 where all are the same."""
    length = float(np.hypot(np.cos(turn).mean(), np.sin(turn).mean()))
    return min(max(length, np.finfo(float).tiny), 1.0)

"""The judge: correct first, then how fast. A wrong sampler has no effective draws.

Correct means: the share of draws in every mode is within a total variation of 0.03 of the exact
weights, the share of draws below each exact quantile (of every coordinate and of |x|²) is right,
and so are the means. A run with few effective draws is allowed the error that so few draws have,
up to twice the error of a right one; beyond that it is called unclear, not correct.

Effective draws are ArviZ's rank-normalised bulk ESS, the least over coordinates, |x|² and mode
indicators.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from involutive.bench.targets import LEVELS, Reference, with_square
from involutive.core.statistics import ess
from involutive.sampling.quantities import judged
from involutive.targets.target import Target

MODE_ERROR = 0.03  # total variation that is right
WORST_MODE_ERROR = 0.10  # and that is wrong however few the draws
QUANTILE_ERROR, WORST_QUANTILE_ERROR = 0.02, 0.10  # of a probability
MEAN_ERROR, WORST_MEAN_ERROR = 0.05, 0.30  # of a standard deviation
UNCLEAR = 2.0  # times what is right, from which a run that may be unlucky is not called correct
SCORE = 5.0  # standard errors, for the largest of many
NOT_FINITE = "draws that are not finite"
NO_REFERENCE = "no exact draws and no long run that converged to compare with"
GOALS = (1_000, 10_000, 100_000)  # effective draws that seconds and evaluations are given for
MOST = 1 << 18  # draws judged, of all chains together


@dataclass(frozen=True)
class Verdict:
    """The figures of one run of one peer; `wrong` and `unclear` say what is, or are empty."""

    wrong: str
    unclear: str
    draws: int
    ess: float
    mode_error: float | None
    quantile_error: float
    mean_error: float | None
    setup_seconds: float
    sampling_seconds: float
    ess_per_draw: float
    ess_per_second: float
    ess_per_second_in_all: float
    evaluations_per_ess: float | None
    evaluations: float | None
    evaluations_to: dict[str, float | None]
    mode_shares: list[float] | None
    seconds_to: dict[str, float]
    extrapolated: dict[str, bool]

    @property
    def correct(self) -> bool:
        return not self.wrong and not self.unclear

    def as_dict(self) -> dict[str, Any]:
        """The verdict as plain data."""
        return asdict(self) | {"correct": self.correct}


def judge(
    target: Target, known: Reference | None, draws: np.ndarray, figures: dict[str, Any]
) -> Verdict:
    """Judge draws `(chains, draws, dim)` and the seconds and evaluations they took.

    Without a reference nothing can be called correct: the run is unclear.
    """
    total = draws.shape[0] * draws.shape[1]
    kept = _kept(draws, figures["exchangeable"])
    judged_total = kept.shape[0] * kept.shape[1]
    values = judged(target, kept)
    finite = bool(np.isfinite(kept).all())
    least = min(float(np.nan_to_num(ess(row))) for row in values.values()) if finite else 0.0
    mode_error = _mode_error(target, values)
    quantile_error, mean_error = _errors(known, kept) if finite and known else (math.nan, math.nan)
    moments = known is not None and known.moments
    errors = (mode_error, quantile_error, mean_error if moments else 0.0)
    wrong, unclear = _said(target, known, least, errors) if finite else (NOT_FINITE, "")
    effective = 0.0 if wrong or unclear else least * total / judged_total
    setup, sampling = figures["setup_seconds"], figures["sampling_seconds"]
    rate = effective / sampling if sampling > 0 else 0.0
    costs = (figures["setup_evaluations"], figures["sampling_evaluations"])
    total_cost = None if None in costs else sum(costs)
    each = costs[1] / effective if total_cost is not None and effective else None
    return Verdict(
        wrong=wrong,
        unclear=unclear,
        draws=total,
        ess=effective,
        mode_error=mode_error,
        quantile_error=quantile_error,
        mean_error=mean_error if moments else None,
        setup_seconds=setup,
        sampling_seconds=sampling,
        ess_per_draw=effective / total,
        ess_per_second=rate,
        ess_per_second_in_all=effective / (setup + sampling),
        evaluations_per_ess=each,
        evaluations=total_cost,
        evaluations_to={str(g): None if each is None else costs[0] + g * each for g in GOALS},
        mode_shares=None if target.modes is None else _shares(target, values).tolist(),
        seconds_to={str(goal): setup + goal / rate if rate else math.inf for goal in GOALS},
        extrapolated={str(goal): effective < goal for goal in GOALS},
    )


def _kept(draws: np.ndarray, exchangeable: bool) -> np.ndarray:
    """At most `MOST` draws, the last of every chain; in random order where there is none."""
    if exchangeable:
        order = np.random.default_rng(0).permutation(draws.shape[1])
        draws = draws[:, order]
    return draws[:, -max(MOST // draws.shape[0], 8) :]


def _mode_error(target: Target, values: dict[str, np.ndarray]) -> float | None:
    if target.modes is None:
        return None
    share = _shares(target, values)
    return float(0.5 * np.abs(share - np.asarray(target.modes.weights)).sum())


def _shares(target: Target, values: dict[str, np.ndarray]) -> np.ndarray:
    """The share of draws in every mode."""
    count = 0 if target.modes is None else len(target.modes.weights)
    return np.array([values[f"mode {k}"].mean() for k in range(count)])


def _errors(known: Reference, kept: np.ndarray) -> tuple[float, float]:
    """The largest error of a probability, and of a mean in standard deviations."""
    values = with_square(kept).reshape(-1, kept.shape[2] + 1)
    shares = np.stack([(values <= row).mean(axis=0) for row in known.quantiles])
    shift = np.abs(values.mean(axis=0) - known.mean) / known.sd
    return float(np.abs(shares - np.asarray(LEVELS)[:, None]).max()), float(shift.max())


def _said(
    target: Target,
    known: Reference | None,
    effective: float | int,
    errors: tuple[float | None, float, float],
) -> tuple[str, str]:
    """In words what is wrong, and what is unclear; at most one of the two."""
    if known is None:
        return "", NO_REFERENCE
    wrong = _wrong(target, known, effective, errors)
    return wrong, "" if wrong else _unclear(effective, errors)


def _wrong(
    target: Target,
    known: Reference,
    effective: float | int,
    errors: tuple[float | None, float, float],
) -> str:
    """In words what is wrong, or nothing."""
    mode_error, quantile_error, mean_error = errors
    noise = math.sqrt(1 / max(effective, 1.0) + 1 / known.draws)
    if mode_error is not None and target.modes is not None:
        weights = np.asarray(target.modes.weights)
        expected = 0.4 * float(np.sqrt(weights * (1 - weights)).sum()) * noise  # E|N(0,1)|/2
        if mode_error > min(max(MODE_ERROR, 2.5 * expected), WORST_MODE_ERROR):
            return f"mode weights off by {mode_error:.3f}"
    if quantile_error > min(max(QUANTILE_ERROR, SCORE * 0.5 * noise), WORST_QUANTILE_ERROR):
        return f"a quantile off by {quantile_error:.3f}"
    if mean_error > min(max(MEAN_ERROR, SCORE * noise), WORST_MEAN_ERROR):
        return f"a mean off by {mean_error:.2f} sd"
    return ""


def _unclear(effective: float | int, errors: tuple[float | None, float, float]) -> str:
    """In words that a run is too short for its errors to be told from noise, or nothing."""
    limits = (MODE_ERROR, QUANTILE_ERROR, MEAN_ERROR)
    far = any(
        e is not None and e > UNCLEAR * limit for e, limit in zip(errors, limits, strict=True)
    )
    return f"{effective:.0f} effective draws are too few to tell" if far else ""

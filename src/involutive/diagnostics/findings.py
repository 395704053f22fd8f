"""What can be wrong with a run, in plain words, each with what to try.

Every check looks at the metrics and returns a finding or None. A serious finding means that the
draws should not be used as they are; other findings are for information.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from involutive.sampling.draws import Draws

# Learning judges its pilot chains by these numbers too (`JudgeSettings`).
# R-hat's is standard: Vehtari et al. (2021); nested R-hat's is a guess
LARGEST_RHAT = {"r_hat": 1.01, "nested_r_hat": 1.02}
LEAST_ESS = 400.0  # below it ESS and R-hat are themselves uncertain (Vehtari et al. 2021)
DISAGREE = 1.1  # R-hat above which more draws are not the remedy; a guess
LEAST_CHAINS, LEAST_DRAWS = 2, 8  # from which agreement of chains can be judged; a guess
EXPECTED = 20  # draws that a mode should have had, for a mode without any to count; a guess
MODE_ERROR, MODE_SCORE = 0.02, 5.0  # total variation, and standard errors of one weight; guesses
RESTING, RESTING_SHARE = 20, 0.2  # draws without a move, and their share of a run; guesses
RETURNING = 100  # draws in total, from which a return is not due to chance; a guess
LAGS = 8  # the longest period that is looked for; a guess
RETURN, SURE_RETURN = 0.5, 0.1  # of the distance of neighbours, at a return; guesses
SLOW = 0.1  # effective draws per draw up to which `RETURN` is enough; a guess
ACCEPTED, NOWHERE = 0.6, 0.01  # acceptance of moves that lead nowhere, and ESS per draw; guesses
NONFINITE, IRREVERSIBLE = 0.01, 0.05  # shares of proposals above which it is serious; guesses
COARSE, TOO_COARSE = 0.01, 0.05  # nats between float32 log densities: named, serious; guesses
TYPICAL = 0.9  # share of the draws whose log densities are no larger in size than judged; a guess


class Finding(NamedTuple):
    """One problem: a short name, what was found, and what to try."""

    kind: str
    problem: str
    remedy: str
    serious: bool = True

    def __str__(self) -> str:
        return f"{self.problem} Try: {self.remedy}"


@dataclass(frozen=True, repr=False)
class Metrics:
    """The input of the checks.

    Attributes:
        draws: the run.
        names: the rows of the table.
        figures: its columns, each a dict by the name of the row.
        rhat: the R-hat that judges this run: `r_hat`, or `nested_r_hat` for many short chains.
        ess_per_draw: the minimum bulk ESS per draw over coordinates, |x|² and modes.
        slowest: the quantity it belongs to.
        share, exact: visited and exact weights of the modes, where known.
        every: k, where every k-th draw was diagnosed because there are very many.
    """

    draws: Draws
    names: list[str]
    figures: dict[str, dict[str, float]]
    rhat: str
    ess_per_draw: float
    slowest: str
    share: np.ndarray | None = None
    exact: np.ndarray | None = None
    every: int = 1

    @property
    def total(self) -> int:
        """The number of draws of all chains."""
        return self.draws.num_chains * self.draws.num_samples

    @property
    def acceptance(self) -> float:
        """The mean probability of acceptance; never to be shown without `ess_per_draw`."""
        return float(np.mean(self.draws.acceptance_rate))

    def worst(self, figure: str, largest: bool) -> tuple[str, float]:
        """The quantity with the largest or smallest value of a metric, constants left out."""
        spread, column = self.figures["sd"], self.figures[figure]
        varied = {n: column[n] for n in self.names if spread[n] > 0 and np.isfinite(column[n])}
        if not varied:
            return self.names[0], float("nan")
        name = (max if largest else min)(varied, key=lambda n: varied[n])
        return name, varied[name]


def judge(
    metrics: Metrics, more: Sequence[Callable[[Metrics], Finding | None]] = ()
) -> list[Finding]:
    """Run every check, and `more`; serious findings come first."""
    checks = (*CHECKS, *more)
    found = [finding for check in checks if (finding := check(metrics)) is not None]
    return sorted(found, key=lambda finding: not finding.serious)


def _too_few(metrics: Metrics) -> Finding | None:
    chains, draws = metrics.draws.num_chains, metrics.draws.num_samples
    if draws >= LEAST_DRAWS and chains >= LEAST_CHAINS:
        return None
    problem = f"{chains} chain(s) of {draws} draw(s) are too few to tell whether they agree."
    return Finding("too few", problem, "at least 4 chains of 100 draws.", draws < LEAST_DRAWS)


def _stopped(metrics: Metrics) -> Finding | None:
    chains = np.flatnonzero(metrics.draws.stopped)
    if chains.size == 0:
        return None
    problem = (
        f"{chains.size} of {metrics.draws.num_chains} chains ({_listed(chains)}) met a density of "
        "+inf and were stopped."
    )
    remedy = "a bounded density: no chain can leave a point where the density is +inf."
    return Finding("stopped chains", problem, remedy)


def _disagree(metrics: Metrics) -> Finding | None:
    name, value = metrics.worst(metrics.rhat, largest=True)
    most = LARGEST_RHAT[metrics.rhat]
    if not value > most:
        return None
    label = "nested R-hat" if metrics.rhat.startswith("nested") else "R-hat"
    problem = f"The chains disagree: {label} is {value:.3g} for {name} (at most {most})."
    return Finding("chains disagree", problem, _agreement(metrics))


def _agreement(metrics: Metrics) -> str:
    """In words, what makes chains agree, by what is known of the run and its kernel."""
    if metrics.total < LEAST_ESS:
        return f"at least {LEAST_ESS:.0f} draws in total; shorter runs seldom agree."
    if metrics.draws.provenance.get("looked"):
        between = "and the learned proposal moves between them too seldom: use a larger budget=."
    else:
        between = "so learn a proposal (inv.learn) that moves between them."
    return (
        "more warm-up and more draws if R-hat falls as chains grow longer; if it does not, the "
        f"chains are in different modes, {between}"
    )


def _modes(metrics: Metrics) -> Finding | None:
    if metrics.share is None or metrics.exact is None:
        return None
    share, exact = metrics.share, metrics.exact
    missed = np.flatnonzero((share == 0) & (exact * metrics.total > EXPECTED))
    sizes = np.array([metrics.figures["ess_bulk"][f"mode {k}"] for k in range(exact.size)])
    noise = np.sqrt(exact * (1 - exact) / np.maximum(sizes, 1.0))
    distance = float(0.5 * np.abs(share - exact).sum())
    beyond = np.abs(share - exact) > MODE_SCORE * noise
    off = distance > MODE_ERROR and bool(beyond.any())
    if missed.size == 0 and not off:
        return None
    what = f"mode(s) {_listed(missed)} were never visited" if missed.size else "far more than noise"
    problem = f"The mode weights are {distance:.3f} in total variation from the exact ones: {what}."
    remedy = "a learned proposal, or chains started in every mode; HMC alone does not change modes."
    return Finding("mode weights", problem, remedy)


def _stuck(metrics: Metrics) -> Finding | None:
    positions = metrics.draws.positions
    count = positions.shape[1]
    if count < RESTING:
        return None
    longest = _longest_rest(np.any(np.diff(positions, axis=1) != 0, axis=2))
    chains = np.flatnonzero(longest >= max(RESTING, RESTING_SHARE * count))
    if chains.size == 0:
        return None
    problem = (
        f"{chains.size} of {positions.shape[0]} chains ({_listed(chains)}) stood still for a fifth "
        f"of the run or more; the longest rest was {int(longest.max())} of {count} draws."
    )
    remedy = (
        "mix in local moves, inv.Mixture([kernel, inv.random_walk(target, scale)], [0.8, 0.2]), or "
        "train longer: chains get stuck where the proposal is too narrow."
    )
    return Finding("stuck chains", problem, remedy)


def _low_ess(metrics: Metrics) -> Finding | None:
    worst = [(*metrics.worst(kind, largest=False), kind) for kind in ("ess_bulk", "ess_tail")]
    constant = [name for name in metrics.names if metrics.figures["sd"][name] == 0]
    rest = f" {_listed(constant)} never changed." if len(constant) == len(metrics.names) else ""
    low = [(name, value, kind) for name, value, kind in worst if value < LEAST_ESS]
    if not low and not rest:
        return None
    name, value, kind = min(low, key=lambda row: row[1]) if low else (metrics.names[0], 0.0, "ess")
    label = {"ess_bulk": "bulk ESS", "ess_tail": "tail ESS"}.get(kind, "ESS")
    problem = (
        f"Too few effective draws: {label} {value:.0f} of {metrics.total} draws for {name}.{rest}"
    )
    factor = math.ceil(LEAST_ESS / max(value, 1.0))
    _, ratio = metrics.worst(metrics.rhat, largest=True)
    more = f"inv.Until(ess={LEAST_ESS:.0f})"
    remedy = f"about {factor} times as many draws ({more}), or a better kernel."
    if ratio > DISAGREE and metrics.total >= LEAST_ESS:
        remedy = "a better kernel first: while chains disagree, more draws do not make them agree."
    return Finding("low ESS", problem, remedy)


def _periodic(metrics: Metrics) -> Finding | None:
    if metrics.total < RETURNING:
        return None  # so few draws return by chance
    apart = lag_distances(metrics.draws.positions)
    # ESS stops summing at the first negative correlation and so overlooks a return after it:
    # a nearly complete return counts whatever ESS says
    enough = RETURN if metrics.ess_per_draw <= SLOW else SURE_RETURN
    returns = np.flatnonzero(apart[1:] < enough * apart[:1])
    if returns.size == 0:
        return None
    problem = (
        f"The moves are periodic: draws {int(returns[0]) + 2} steps apart are closer than "
        f"neighbours. Acceptance {metrics.acceptance:.2f} comes with {metrics.ess_per_draw:.2g} "
        f"effective draws per draw ({metrics.slowest}), which a period can inflate."
    )
    remedy = (
        "mix in another kernel with inv.Mixture, give the proposal more auxiliary dimensions, and "
        "do not train on acceptance."
    )
    return Finding("periodic moves", problem, remedy)


def _nowhere(metrics: Metrics) -> Finding | None:
    if metrics.acceptance < ACCEPTED or metrics.ess_per_draw > NOWHERE or _periodic(metrics):
        return None
    problem = (
        f"Moves are accepted but lead nowhere: acceptance {metrics.acceptance:.2f} with "
        f"{metrics.ess_per_draw:.2g} effective draws per draw ({metrics.slowest})."
    )
    remedy = "longer moves (a larger step or scale), or a learned proposal if modes are far apart."
    return Finding("moves lead nowhere", problem, remedy, serious=False)


def _nonfinite(metrics: Metrics) -> Finding | None:
    share = _share(metrics, metrics.draws.nonfinite)
    if share == 0:
        return None
    problem = (
        f"The density was not a number at {_count(metrics.draws.nonfinite)} proposals "
        f"({share:.2%} of draws), which were rejected and counted."
    )
    remedy = (
        "return -inf outside the support, and compute in float64 (jax_enable_x64); the draws "
        "cover only places where the density is a number."
    )
    return Finding("non-finite densities", problem, remedy, share > NONFINITE)


def _round_trip(metrics: Metrics) -> Finding | None:
    share = _share(metrics, metrics.draws.irreversible)
    if share == 0:
        return None
    problem = (
        f"The involution did not return to its start at {_count(metrics.draws.irreversible)} "
        f"proposals ({share:.2%} of draws), which were rejected and counted."
    )
    remedy = (
        "float64 (jax_enable_x64), a lattice with fewer bits, or a rescaled target; network "
        "weights that became large in training are another cause."
    )
    return Finding("round-trip failures", problem, remedy, share > IRREVERSIBLE)


def _precision(metrics: Metrics) -> Finding | None:
    """Whether float32 resolves the log density of typical draws.

    A chain that starts far out has a few draws of a huge log density, where no decision is close.
    """
    values = metrics.draws.log_density[:, :: metrics.every]
    finite = np.abs(values[np.isfinite(values)])
    if values.dtype != np.float32 or finite.size == 0:
        return None
    size = float(np.quantile(finite, TYPICAL))
    spacing = float(np.spacing(np.float32(size)))
    if spacing < COARSE:
        return None
    problem = (
        f"The log density of typical draws reaches {size:.3g} in size, where float32 numbers are "
        f"{spacing:.2g} apart: log acceptance ratios are that uncertain."
    )
    remedy = "float64 (jax_enable_x64), or drop constants from the log density."
    return Finding("float32 log density", problem, remedy, spacing > TOO_COARSE)


def _interrupted(metrics: Metrics) -> Finding | None:
    known = metrics.draws.provenance
    reason = (known.get("until") or {}).get("reason", "goal")
    if not known.get("interrupted") and reason in ("goal", "interrupted"):
        return None
    why = "it was interrupted" if known.get("interrupted") else f"it reached its limit ({reason})"
    return Finding("ended early", f"The run ended before its goal: {why}.", "a longer run.", False)


CHECKS = (
    _stopped,
    _disagree,
    _modes,
    _stuck,
    _periodic,
    _low_ess,
    _too_few,
    _nonfinite,
    _round_trip,
    _precision,
    _nowhere,
    _interrupted,
)


def lag_distances(positions: np.ndarray, lags: int = LAGS) -> np.ndarray:
    """`E|x_{t+p} - x_t|² / 2Var` for p = 1 .. lags, averaged over the coordinates.

    It grows with p towards 1 for a chain that forgets, and falls back at p for a period of p.
    """
    scale = positions.std(axis=(0, 1))
    scaled = positions[..., scale > 0] / scale[scale > 0]
    lags = min(lags, positions.shape[1] - 1) if scaled.shape[2] else 0
    gaps = [scaled[:, p:] - scaled[:, :-p] for p in range(1, lags + 1)]
    return np.array([0.5 * float(np.mean(gap.astype(np.float64) ** 2)) for gap in gaps])


def _longest_rest(moved: np.ndarray) -> np.ndarray:
    """The maximum number of successive draws without a move, for every chain."""
    place = np.arange(moved.shape[1])
    return (place - np.maximum.accumulate(np.where(moved, place, -1), axis=1)).max(axis=1)


def _share(metrics: Metrics, counts: np.ndarray) -> float:
    return float(np.sum(counts)) / metrics.total


def _count(counts: np.ndarray) -> str:
    return f"{int(np.sum(counts)):,}"


def _listed(items: object, most: int = 6) -> str:
    names = [str(item) for item in np.asarray(items)]
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")

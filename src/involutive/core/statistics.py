"""Effective sample size, R-hat and Monte Carlo error of arrays `(chains, draws, ...)`.

ArviZ computes them; its two lines (0.x and 1.x) differ in defaults, which are fixed here. Nested
R-hat and the autocorrelation of many chains are written here, because ArviZ has neither.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType

import numpy as np
from scipy.special import ndtri

from involutive.core.errors import check
from involutive.core.types import ArrayLike

LEAST_DRAWS = 4  # fewer cannot be split into halves with a variance
EQUAL = 1e-4  # nats between log weights that are called equal: single precision gives no more
TAILS = (0.05, 0.95)  # 1.x would take other tails than 0.x


@cache
def arviz() -> ModuleType:
    """ArviZ, imported when it is first needed: it takes seconds. 0.23 announces 1.0 each time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return import_module("arviz")


def ess(values: np.ndarray, method: str = "bulk") -> np.ndarray:
    """Rank-normalised effective sample size, `method` "bulk" or "tail"; 0 for a constant.

    A quantity that never changed says nothing of how it varies under the target, so it counts as
    no effective draw, where ArviZ would count every draw.
    """
    options = {"prob": TAILS} if method == "tail" else {}
    return _each(values, lambda x: arviz().ess(x, method=method, **options), constant=0.0)


def rhat(values: np.ndarray) -> np.ndarray:
    """Rank-normalised split R-hat; NaN for a constant. One chain is cut into two."""

    def one(x: np.ndarray) -> ArrayLike:
        halves = x[:, : x.shape[1] // 2 * 2].reshape(2, -1) if len(x) == 1 else x
        moved = np.ptp(halves, axis=1).any()  # else there is no variance to divide by
        return arviz().rhat(halves) if moved else np.inf

    return _each(values, one, constant=np.nan)


def mcse(values: np.ndarray) -> np.ndarray:
    """Monte Carlo standard error of the mean; NaN for a constant."""
    return _each(values, lambda x: arviz().mcse(x, method="mean"), constant=np.nan)


def _each(
    values: np.ndarray, figure: Callable[[np.ndarray], ArrayLike], constant: float
) -> np.ndarray:
    values = np.asarray(values, np.float64)
    check(values.ndim >= 2, f"values must have shape (chains, draws, ...), got {values.shape}")
    columns = values.reshape(*values.shape[:2], -1)
    out = np.full(columns.shape[2], np.nan)
    least = LEAST_DRAWS * (2 if values.shape[0] == 1 else 1)
    for i in range(columns.shape[2]):
        column = columns[..., i]
        if column.shape[1] < least or not np.isfinite(column).all():
            continue
        if np.ptp(column) == 0:
            out[i] = constant
            continue
        # chains that never move have no variance to divide by
        with np.errstate(all="ignore"), _without_numba():
            out[i] = np.asarray(figure(column)).item()
    return out.reshape(values.shape[2:])


@contextmanager
def _without_numba() -> Iterator[None]:
    """To compile ArviZ's variance takes longer than all that is asked of it here."""
    numba = getattr(arviz(), "Numba", None)
    if numba is None or not numba.numba_flag:
        yield
        return
    numba.disable_numba()
    try:
        yield
    finally:
        numba.enable_numba()


def autocorrelation(values: np.ndarray, lags: int) -> np.ndarray:
    """Autocorrelation at lags 0 … `lags` of `(chains, draws)`, around the mean of all chains.

    A chain's own mean would hide that it never left its mode.
    """
    centred = values - values.mean()
    spread = np.mean(centred**2)
    draws = values.shape[1]
    shifted = (np.mean(centred[:, : draws - k] * centred[:, k:]) for k in range(lags + 1))
    return np.array(list(shifted)) / spread


def rhat_between(values: np.ndarray, elsewhere: np.ndarray) -> float:
    """The largest nested R-hat between two groups of chains, over quantities.

    Args:
        values: `(chains, draws, quantities)`.
        elsewhere: `(chains,)`, which chains started elsewhere than the others.

    Returns:
        How much the two groups disagree, 1 if not at all; NaN with fewer than two chains in one.
    """
    count = int(min(elsewhere.sum(), (~elsewhere).sum()))
    if count < 2:
        return float("nan")
    rows = np.concatenate([np.flatnonzero(elsewhere)[:count], np.flatnonzero(~elsewhere)[:count]])
    groups = np.repeat([0, 1], count)
    found = [nested_rhat(values[rows, :, i], groups) for i in range(values.shape[2])]
    return float(np.nanmax(found)) if np.isfinite(found).any() else float("nan")


def nested_rhat(values: np.ndarray, superchains: ArrayLike | None = None) -> float:
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


def pareto_k(log_weights: np.ndarray) -> float:
    """The shape k of a generalised Pareto distribution fitted to the largest weights.

    The fit is Zhang and Stephens' (2009), with the weak prior of Vehtari et al. (2024) that pulls
    k towards 0.5. Below 0.5 the weights have a variance; from 0.7 on a mean of them is not to be
    trusted at any practical number of draws.
    """
    finite = np.sort(log_weights[np.isfinite(log_weights)].astype(np.float64))
    tail = int(min(0.2 * finite.size, 3 * np.sqrt(finite.size)))
    if tail < 5:
        return float("inf")
    if finite[-1] - finite[-tail - 1] < EQUAL:
        return float("-inf")  # weights equal but for rounding have no tail
    top = np.exp(finite[-tail:] - finite[-1])
    excess = top - np.exp(finite[-tail - 1] - finite[-1])
    shape = _pareto_shape(np.maximum(excess, np.finfo(float).tiny))
    return float((tail * shape + 5.0) / (tail + 10.0))


def _pareto_shape(excess: np.ndarray) -> float:
    """The posterior mean of the shape, over a grid of the other parameter."""
    size = excess.size
    grid = 30 + int(np.sqrt(size))
    quartile = excess[int(size / 4 + 0.5) - 1]
    theta = 1 / excess[-1] + (1 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))) / (3 * quartile)
    shapes = np.mean(np.log1p(-theta[:, None] * excess), axis=1)
    profile = size * (np.log(-theta / shapes) - shapes - 1)
    with np.errstate(over="ignore"):
        chance = 1 / np.sum(np.exp(profile - profile[:, None]), axis=1)
    best = np.sum(theta * chance / chance.sum())
    return float(np.mean(np.log1p(-best * excess)))


def effective_size(weights: np.ndarray) -> float:
    """The effective sample size of importance weights, `(Σw)²/Σw²`; 0 if all are zero."""
    return float(weights.sum() ** 2 / max(np.sum(weights**2), 1e-300))


def log_mean_exp(values: np.ndarray) -> float:
    """`log mean exp(values)` in double precision; -inf if every value is."""
    wide = np.asarray(values, np.float64)
    top = wide.max(initial=-np.inf)
    return float(top + np.log(np.mean(np.exp(wide - top)))) if np.isfinite(top) else float(top)

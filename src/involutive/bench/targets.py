"""The default suite, and what exact draws of a target look like.

Every sampler is given the density and the initial law X, N(0, 3² I) in this suite, nothing else.
The reference is only for the judge: quantiles and moments of exact draws, or of a long run where
none exist.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from involutive import targets
from involutive.bench.entry import Entry
from involutive.bench.field import models
from involutive.bench.field.synthetic import gaussian_log_z
from involutive.targets.target import Target

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)  # of the quantiles that are judged


@dataclass(frozen=True)
class Reference:
    """What the draws are compared with: of every coordinate, and last of |x|².

    Attributes:
        quantiles: `(levels, dim + 1)`.
        mean, sd: `(dim + 1,)`.
        draws: how many draws it rests on, in effect.
        moments: whether means are compared; not where tails are so heavy that they do not settle.
        cloud: draws `(n, dim)` for distances between sets of draws.
    """

    quantiles: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    draws: float | int
    moments: bool
    cloud: np.ndarray | None = None


def with_square(positions: np.ndarray) -> np.ndarray:
    """Positions `(..., dim)` with |x|² as one more column."""
    wide = np.asarray(positions, np.float64)
    return np.concatenate([wide, np.sum(wide**2, axis=-1, keepdims=True)], axis=-1)


def summary(
    draws: np.ndarray, count: float | int, moments: bool = True, cloud: np.ndarray | None = None
) -> Reference:
    """Quantiles and moments of draws `(n, dim + 1)`."""
    quantiles = np.quantile(draws, LEVELS, axis=0)
    return Reference(quantiles, draws.mean(axis=0), draws.std(axis=0), count, moments, cloud)


def _entry(make: Callable[[], Target], **known: Any) -> Entry:
    return Entry(lambda data: make(), **known)


DEFAULT: dict[str, Entry] = {
    "mog2_1d": _entry(targets.mog2_1d, multimodal=True),
    "mog6": _entry(targets.mog6, multimodal=True),
    "ring5": _entry(targets.ring5, multimodal=True),
    "two_modes": _entry(lambda: targets.two_modes(10), log_z=gaussian_log_z(10), multimodal=True),
    "eight_modes": _entry(lambda: targets.eight_modes(20), multimodal=True),
    "breast_cancer": _entry(models.cancer, stored="breast_cancer"),
    "correlated": _entry(lambda: targets.correlated_gaussian(50)),
    "funnel": _entry(lambda: targets.funnel(10), heavy_tails=True),
}

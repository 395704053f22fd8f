"""What the benchmark samples: densities, and what exact draws of them look like.

Every sampler is given the density and the initial law X = N(0, 3² I), nothing else. The reference
is only for the judge: quantiles and moments of exact draws, or of a long run where none exist.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.resources import files
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from involutive import targets
from involutive.core.errors import check
from involutive.targets.target import Target

SPREAD = 3.0  # sd of the initial law, in every coordinate
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
EXACT_DRAWS = 200_000


@dataclass(frozen=True)
class Reference:
    """What the draws are compared with: of every coordinate, and last of |x|².

    Attributes:
        quantiles: `(levels, dim + 1)`.
        mean, sd: `(dim + 1,)`.
        draws: how many draws it rests on, in effect.
        moments: whether means are compared; not where tails are so heavy that they do not settle.
    """

    quantiles: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    draws: float | int
    moments: bool


def with_square(positions: np.ndarray) -> np.ndarray:
    """Positions `(..., dim)` with |x|² as one more column."""
    wide = np.asarray(positions, np.float64)
    return np.concatenate([wide, np.sum(wide**2, axis=-1, keepdims=True)], axis=-1)


def breast_cancer() -> Target:
    """Logistic regression: 30 standardised features and a constant, weights N(0, 1) a priori."""
    from sklearn.datasets import load_breast_cancer

    data: Any = load_breast_cancer()
    x, y = data.data, data.target
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    design = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    signs = 2.0 * y - 1.0
    rows = design * signs[:, None]  # p(y | w) = sigmoid(sign · design @ w)

    def log_density(w: Any) -> Any:
        fits = jax.nn.log_sigmoid(jnp.asarray(rows, w.dtype) @ w)
        return jnp.sum(fits) - 0.5 * jnp.sum(w**2)

    return Target(log_density, rows.shape[1], name="breast_cancer")


MAKERS: dict[str, Callable[[], Target]] = {
    "mog2_1d": targets.mog2_1d,
    "mog6": targets.mog6,
    "ring5": targets.ring5,
    "two_modes": partial(targets.two_modes, 10),
    "eight_modes": partial(targets.eight_modes, 20),
    "breast_cancer": breast_cancer,
    "correlated": partial(targets.correlated_gaussian, 50),
    "funnel": partial(targets.funnel, 10),
}
MULTIMODAL = ("mog2_1d", "mog6", "ring5", "two_modes", "eight_modes")
HEAVY_TAILS = ("funnel",)


def make(name: str) -> Target:
    """Return the benchmark target of that name."""
    check(name in MAKERS, f"a benchmark target must be one of {', '.join(MAKERS)}, got {name!r}")
    return MAKERS[name]()


@lru_cache
def reference(name: str) -> Reference:
    """What exact draws of a target look like."""
    target = make(name)
    if target.sample is None:
        return _stored(name)
    draws = with_square(np.asarray(target.sample(jr.key(0), EXACT_DRAWS)))
    return summary(draws, EXACT_DRAWS, moments=name not in HEAVY_TAILS)


def summary(draws: np.ndarray, count: float | int, moments: bool = True) -> Reference:
    """Quantiles and moments of draws `(n, dim + 1)`."""
    quantiles = np.quantile(draws, LEVELS, axis=0)
    return Reference(quantiles, draws.mean(axis=0), draws.std(axis=0), count, moments)


def _stored(name: str) -> Reference:
    """The reference of a long run, kept by `python -m involutive.bench.reference`, or made now."""
    path = files("involutive.bench") / f"{name}.json"
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
    else:
        from involutive.bench.reference import long_run

        kept = long_run(name)
    arrays = {key: np.asarray(kept[key]) for key in ("quantiles", "mean", "sd")}
    return Reference(draws=float(kept["draws"]), moments=True, **arrays)

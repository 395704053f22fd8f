"""What a peer is given and what it returns, with a clock that splits its time in two."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array
from scipy.special import ndtri

from involutive.bench.entry import SPREAD
from involutive.targets.target import Target

MOST_DRAWS = 400_000  # of all chains together: enough to measure any rate
LEAST_SECONDS = 3.0  # of sampling, for a rate that is not noise
LOWEST = -1e300  # log likelihood of points without one: nested samplers refuse -inf
GRADIENT = 3  # density evaluations a gradient counts as


@dataclass
class Task:
    """One run of one peer.

    Attributes:
        peer: its name in the table, since one file may serve two.
        target: the density.
        seed: fixes everything random.
        seconds: time after which no new chunk is begun.
        quick: use small sizes, to see that everything runs.
        spread: sd of X, where chains start and the prior of samplers that need one.
        evidence: whether log Z is asked for beside the draws.
    """

    peer: str
    target: Target
    seed: int
    seconds: float
    quick: bool
    spread: float = SPREAD
    evidence: bool = False
    began: float = field(default_factory=time.perf_counter)

    @property
    def key(self) -> Array:
        return jr.key(self.seed)

    @property
    def spent(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self.began

    def starts(self, count: int) -> Array:
        """Draws of the initial law, `(count, dim)`."""
        key = jr.fold_in(self.key, 12345)
        return self.spread * jr.normal(key, (count, self.target.dim))

    def log_initial(self, x: Array) -> Array:
        """`log N(x; 0, spread² I)` of one vector."""
        constant = x.shape[-1] * jnp.log(self.spread * jnp.sqrt(2 * jnp.pi))
        return -0.5 * jnp.sum((x / self.spread) ** 2) - constant

    def log_likelihood(self, x: Array) -> Array:
        """`log p/X` of one vector: with the prior X its evidence is ∫ p."""
        return jnp.asarray(self.target.log_density(x) - self.log_initial(x), float)

    def from_cube(self, u: np.ndarray) -> np.ndarray:
        """Points of X from points of the unit cube."""
        return self.spread * ndtri(np.clip(u, 1e-12, 1 - 1e-12))

    def size(self, full: int, quick: int) -> int:
        """A size, or the small one."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Integral:
    """What a sampler says of log Z, the log integral of the density.

    Attributes:
        log_z, error: the estimate and the standard error that the sampler states.
        repeats: estimates of the published protocol, ten of 2000 draws each; of this library.
        share: effective share of the importance weights.
        seconds, evaluations: spent on it beyond the draws.
        alone_seconds, alone_evaluations: what log Z takes from the start if draws are not wanted;
            None where it comes with the draws. Of this library.
        note: why there is no estimate, or why it is not trusted.
    """

    log_z: float | None
    error: float | None = None
    repeats: tuple[float, ...] = ()
    share: float | None = None
    seconds: float = 0.0
    evaluations: float = 0.0
    alone_seconds: float | None = None
    alone_evaluations: float | None = None
    note: str = ""


@dataclass(frozen=True)
class PeerRun:
    """What a peer made.

    Attributes:
        draws: `(chains, draws, dim)`.
        setup_seconds: compilation, warm-up, learning.
        sampling_seconds: of the draws alone.
        setup_evaluations, sampling_evaluations: of the density, a gradient counted as three; None
            where the peer does not say.
        exchangeable: draws of a run are in no order (particles), so the order is shuffled.
        learned_seconds: after which 0.9 of the final effective draws per draw were reached; of
            this library only.
        integral: log Z, where the sampler estimates it.
    """

    draws: np.ndarray
    setup_seconds: float
    sampling_seconds: float
    setup_evaluations: float | None = None
    sampling_evaluations: float | None = None
    exchangeable: bool = False
    learned_seconds: float | None = None
    integral: Integral | None = None


def keep_sampling(
    task: Task, chunk: Callable[[int], tuple[Any, float | None]], join: int = 1
) -> tuple[np.ndarray, float, float | None]:
    """Call `chunk(i) -> (draws (chains, n, dim), evaluations)` until time or draws are enough.

    Returns the draws joined along axis `join`, the seconds, and the evaluations.
    """
    parts: list[np.ndarray] = []
    began, evaluations = time.perf_counter(), 0.0
    while True:
        draws, spent = chunk(len(parts))
        parts.append(np.asarray(draws))
        evaluations = None if spent is None or evaluations is None else evaluations + spent
        seconds = time.perf_counter() - began
        total = sum(part.shape[0] * part.shape[1] for part in parts)
        measured = total >= MOST_DRAWS or (task.quick and len(parts) >= 2)
        if task.spent > task.seconds or (measured and (task.quick or seconds > LEAST_SECONDS)):
            return np.concatenate(parts, axis=join), seconds, evaluations


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and its seconds."""
    began = time.perf_counter()
    result = run()
    return result, time.perf_counter() - began


def of_rows(function: Callable[[Array], Array]) -> Callable[[np.ndarray], np.ndarray]:
    """A compiled function of rows, for samplers that live on the host; NaN becomes -1e300.

    Batches are padded to a power of two, so that a sampler whose batches differ in size compiles a
    few programs and not one per size.
    """
    rows = jax.jit(jax.vmap(lambda x: jnp.asarray(function(x), float)))

    def evaluate(x: np.ndarray) -> np.ndarray:
        x = np.atleast_2d(x)
        size = 1 << (len(x) - 1).bit_length()
        padded = np.concatenate([x, np.repeat(x[-1:], size - len(x), axis=0)])
        values = np.asarray(rows(jnp.asarray(padded, float)), np.float64)[: len(x)]
        return np.maximum(np.where(np.isnan(values), LOWEST, values), LOWEST)

    return evaluate


def equal_draws(points: np.ndarray, log_weights: np.ndarray, seed: int) -> np.ndarray:
    """Weighted draws as so many equal ones as their weights are worth, `(1, n, dim)`.

    The count is Kish's, `(Σw)²/Σw²`, which takes the sampler's word for independence.
    """
    weights = np.exp(log_weights - np.max(log_weights))
    weights = weights / weights.sum()
    worth = max(round(1 / np.sum(weights**2)), 1)
    places = (np.arange(worth) + np.random.default_rng(seed).random()) / worth
    rows = np.minimum(np.searchsorted(np.cumsum(weights), places), len(weights) - 1)
    return np.asarray(points)[rows][None]

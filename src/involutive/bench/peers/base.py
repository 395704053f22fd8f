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

from involutive.bench.targets import SPREAD
from involutive.targets.target import Target

MOST_DRAWS = 400_000  # of all chains together: enough to measure any rate
LEAST_SECONDS = 3.0  # of sampling, for a rate that is not noise
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
    """

    peer: str
    target: Target
    seed: int
    seconds: float
    quick: bool
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
        return SPREAD * jr.normal(key, (count, self.target.dim))

    def size(self, full: int, quick: int) -> int:
        """A size, or the small one."""
        return quick if self.quick else full


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
    """

    draws: np.ndarray
    setup_seconds: float
    sampling_seconds: float
    setup_evaluations: float | None = None
    sampling_evaluations: float | None = None
    exchangeable: bool = False
    learned_seconds: float | None = None


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


def log_density_of_rows(target: Target) -> Callable[[np.ndarray], np.ndarray]:
    """A compiled density of rows, for samplers that live on the host; NaN becomes -inf."""
    rows = jax.jit(jax.vmap(lambda x: jnp.asarray(target.log_density(x), float)))

    def evaluate(x: np.ndarray) -> np.ndarray:
        values = np.asarray(rows(jnp.asarray(x, float)), np.float64)
        return np.where(np.isnan(values), -np.inf, values)

    return evaluate


def log_initial(x: Array) -> Array:
    """`log N(x; 0, 3² I)` of one vector."""
    size = x.shape[-1]
    constant = size * jnp.log(SPREAD * jnp.sqrt(2 * jnp.pi))
    return -0.5 * jnp.sum((x / SPREAD) ** 2) - constant

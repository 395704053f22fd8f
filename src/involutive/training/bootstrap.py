"""The paper's bootstrap: train on the chain's own draws, refresh them as the chain improves.

Where no posterior draws exist, the training set is what chains from X have visited: at first with a
local kernel (HMC), then with the kernel that is being trained, mixed with the local one so that the
chain reaches what the network has not learned yet. At every refresh a share of the old draws is
discarded and the new ones join. The objective, its critics and optimisers live on between rounds.
A bootstrap learns what its chains have found; modes that no chain from X reaches stay unknown.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive.core.errors import check, check_count
from involutive.core.keys import KeyLike, as_key, generator
from involutive.kernel.classical import hmc
from involutive.kernel.composite import Mixture
from involutive.kernel.kernel import AbstractKernel, Kernel
from involutive.sampling.progress import Progress
from involutive.sampling.runner import Chains
from involutive.targets.target import Target
from involutive.training.fit import Fit, TrainConfig, fit
from involutive.training.objective import AbstractObjective

PILOT = 20  # steps a trial of an HMC step size takes
LEAPS = 10  # leapfrog steps of the default local kernel


def _round() -> TrainConfig:
    return TrainConfig(steps=500, chunk=250, patience=None)


@dataclass(frozen=True)
class BootstrapConfig:
    """The schedule; the defaults are those of A-NICE-MC's public code.

    Attributes:
        rounds: refreshes, each followed by training.
        train: how long each round trains.
        chains: chains that refresh the draws.
        draws: draws of each chain a refresh.
        burn_in: steps before them that are thrown away.
        discard: share of the old draws that a refresh removes.
        local: probability of a local move while refreshing with the trained kernel; 0 uses the
            trained kernel alone, as the paper does.
    """

    rounds: int = 10
    train: TrainConfig = field(default_factory=_round)
    chains: int = 32
    draws: int = 5000
    burn_in: int = 1000
    discard: float = 0.5
    local: float = 0.5

    def __post_init__(self) -> None:
        for name in ("rounds", "chains", "draws"):
            check_count(name, getattr(self, name))
        check_count("burn_in", self.burn_in, least=0)
        check(0 <= self.discard <= 1, f"discard must be in [0, 1], got {self.discard}")
        check(0 <= self.local < 1, f"local must be in [0, 1), got {self.local}")


@dataclass(frozen=True)
class Bootstrapped:
    """A kernel trained on its own draws.

    Attributes:
        fit: the last kernel, the history of all rounds (with `round` and the `refresh_acceptance`
            of the chains that made its draws), and in words whether the last round failed.
        samples: the draws it was last trained on, `(n, dim)`.
    """

    fit: Fit
    samples: np.ndarray

    @property
    def kernel(self) -> Kernel:
        """The trained kernel."""
        return self.fit.kernel


def bootstrap(
    kernel: Kernel,
    objective: AbstractObjective,
    *,
    key: KeyLike,
    first: AbstractKernel | None = None,
    config: BootstrapConfig | None = None,
    progress: bool | None = None,
    spent: Callable[[], bool] = lambda: False,
) -> Bootstrapped:
    """Train `kernel` by `objective` on draws that chains make themselves.

    Args:
        kernel: the kernel to train; its initial law starts the chains.
        objective: any objective, for example `Mgan()`.
        key: an int seed or a JAX key.
        first: the local kernel that makes the first draws; HMC with a step size found by trial
            if None, which needs finite gradients.
        config: the schedule.
        progress: show progress bars; by default on a terminal.
        spent: asked before every round but the first, which is not begun once it is true.
    """
    config = config or BootstrapConfig()
    key_local, key_rounds = jr.split(as_key(key))
    if first is None:
        first = local_hmc(kernel.target, key_local, kernel.initial)
    check(
        first.target.dim == kernel.target.dim,
        f"first must sample the kernel's target of dimension {kernel.target.dim}, "
        f"got one of dimension {first.target.dim}",
    )
    samples, memory, history, skipped, mover = None, None, [], 0, first
    outcome: Fit | None = None
    for number in range(config.rounds):
        if number and spent():
            break
        key_refresh, key_keep, key_fit = jr.split(jr.fold_in(key_rounds, number), 3)
        fresh, rate = refresh(mover, key_refresh, config, kernel.initial, progress)
        samples = merged(samples, fresh, key_keep, config.discard)
        label = f"round {number + 1} of {config.rounds}"
        outcome = fit(
            kernel, objective, samples, key=key_fit, config=config.train, progress=progress,
            label=label, memory=memory,
        )  # fmt: skip
        kernel, memory, skipped = outcome.kernel, outcome.memory, skipped + outcome.skipped
        row = {"round": float(number), "refresh_acceptance": rate}
        history += [row | entry for entry in outcome.history]
        mover = _moving(kernel, first, config.local)
    assert outcome is not None and samples is not None
    return Bootstrapped(Fit(kernel, history, skipped, outcome.diverged, memory), samples)


def refresh(
    kernel: AbstractKernel,
    key: Key[Array, ""],
    config: BootstrapConfig,
    initial: AbstractDistribution | None = None,
    progress: bool | None = None,
) -> tuple[np.ndarray, float]:
    """Run chains from X and return their draws `(chains · draws, dim)` and mean acceptance."""
    capacity = min(500, config.draws)
    chains = Chains(kernel, key, range(config.chains), capacity=capacity)
    chains.start(initial)
    kept, rates, done = [], [], -config.burn_in
    with Progress("refreshing draws", config.burn_in + config.draws, progress) as bar:
        while done < config.draws:
            count = min(capacity, config.draws - done if done >= 0 else -done)
            trace = chains.advance(count)
            if done >= 0:
                kept.append(trace.position)
                rates.append(trace.acceptance_rate)
            done += count
            bar.update(config.burn_in + done)
    positions = np.concatenate(kept, axis=1)
    return positions.reshape(-1, positions.shape[2]), float(np.concatenate(rates, axis=1).mean())


def merged(
    old: np.ndarray | None, new: np.ndarray, key: Key[Array, ""], discard: float
) -> np.ndarray:
    """Return the new draws and a random share `1 - discard` of the old ones."""
    if old is None:
        return new
    keep = generator(key).permutation(len(old))[: round((1 - discard) * len(old))]
    return np.concatenate([old[keep], new])


def local_hmc(
    target: Target,
    key: Key[Array, ""],
    initial: AbstractDistribution | None = None,
    chains: int = 32,
) -> Kernel:
    """HMC whose step size, among powers of two, is accepted nearest to 0.8 of the time."""
    found: list[tuple[float, float]] = []
    for step_size in 2.0 ** np.arange(2, -11, -1):
        # an array, so that only the first trial compiles
        kernel = hmc(target, jnp.asarray(step_size), LEAPS, initial=initial)
        trial = Chains(kernel, jr.fold_in(key, len(found)), range(chains), capacity=PILOT)
        trial.start(initial)
        rate = float(trial.advance(PILOT).acceptance_rate[:, PILOT // 2 :].mean())
        found.append((abs(rate - 0.8), float(step_size)))
        if rate > 0.9:
            break
    return hmc(target, min(found)[1], LEAPS, initial=initial)


def _moving(kernel: Kernel, first: AbstractKernel, local: float) -> AbstractKernel:
    return kernel if local == 0 else Mixture([kernel, first], [1 - local, local])

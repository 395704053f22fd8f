"""The training loop: one for all objectives.

Updates run in compiled chunks. After each chunk the held-out measure is taken; the parameters with
the best one are kept and returned, and training stops when it has not improved for `patience`
chunks. Acceptance from X and in stationarity and an estimate of the effective draws per draw are
recorded beside it, because acceptance alone says nothing about mixing.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key, PyTree

from involutive._xla.compilation import jit_long, jit_once
from involutive._xla.cost import much_work
from involutive._xla.program import program_of
from involutive.core.errors import check, check_count
from involutive.core.keys import KeyLike, as_key, split
from involutive.core.types import ArrayLike
from involutive.kernel.kernel import Kernel
from involutive.sampling.progress import Progress
from involutive.training.movement import movement
from involutive.training.objective import AbstractObjective
from involutive.training.samples import check_samples, split_samples

LONG = 5000  # updates that repay the longer compilation, which makes a critic's 1.5 times as fast


@dataclass(frozen=True)
class TrainConfig:
    """How long to train, and when to stop.

    Attributes:
        steps: maximum number of updates.
        chunk: updates between two evaluations of the held-out measure.
        patience: chunks without improvement before training stops; None never stops early.
        tolerance: the minimum improvement that counts.
        seconds: a limit on wall time, checked after every chunk; None for no limit.
        monitor: number of held-out points for acceptance rates and ESS; 0 for none.
        keep: the parameters with the "best" held-out measure, or the "last" ones, which suit a
            learning rate that falls to zero.
    """

    steps: int = 4000
    chunk: int = 200
    patience: int | None = 6
    tolerance: float = 1e-3
    seconds: float | int | None = None
    monitor: int = 512
    keep: str = "best"

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_count("chunk", self.chunk)
        check_count("monitor", self.monitor, least=0)
        if self.patience is not None:
            check_count("patience", self.patience)
        check(self.keep in ("best", "last"), f"keep must be best or last, got {self.keep!r}")
        limit = self.seconds
        check(limit is None or limit > 0, f"seconds must be positive, got {limit}")


class Rows(NamedTuple):
    """Data to train on and held-out data, as pytrees of arrays that were split before."""

    train: PyTree
    held: PyTree


@dataclass(frozen=True)
class Fit:
    """A trained kernel and how training went.

    Attributes:
        kernel: with the parameters that `TrainConfig.keep` names.
        history: one row per chunk: step, held_out, losses, acceptance rates, seconds.
        skipped: updates left out because a gradient was not finite.
        diverged: what went wrong, in words, if training made the kernel no better; else None.
        memory: the objective's state at the end; pass it to `fit` to continue.
    """

    kernel: PyTree
    history: list[dict[str, float]] = field(default_factory=list)
    skipped: int = 0
    diverged: str | None = None
    memory: PyTree = None

    @property
    def best(self) -> dict[str, float]:
        """The row of the history with the best held-out measure."""
        return min(self.history, key=lambda row: row["held_out"])


def _run_chunk(
    objective: AbstractObjective,
    kernel: PyTree,
    memory: PyTree,
    data: PyTree,
    key: Array,
    count: Array,
) -> tuple[PyTree, PyTree, PyTree]:
    """Make `count` updates, and return the sums of their metrics.

    The trip count is dynamic, so that one compilation serves chunks of every length.
    """
    arrays, static = eqx.partition((kernel, memory), eqx.is_array)

    def update(arrays: PyTree, i: Array) -> tuple[PyTree, PyTree]:
        kernel, memory = eqx.combine(arrays, static)
        kernel, memory, metrics = objective.update(kernel, memory, data, jr.fold_in(key, i))
        return eqx.filter((kernel, memory), eqx.is_array), metrics

    def one(i: Array, carry: tuple[PyTree, PyTree]) -> tuple[PyTree, PyTree]:
        arrays, metrics = update(carry[0], i)
        return arrays, jax.tree.map(jnp.add, carry[1], metrics)

    shapes = jax.eval_shape(update, arrays, jnp.asarray(0))[1]
    none = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    arrays, sums = jax.lax.fori_loop(0, count, one, (arrays, none))
    return *eqx.combine(arrays, static), sums


_run_often, _run_long = jit_once(_run_chunk), jit_long(_run_chunk)


def run_chunk(kernel: PyTree, steps: int) -> Callable[..., tuple[PyTree, PyTree, PyTree]]:
    """The compiled chunk of updates for a training of `steps`: optimised more if it runs long."""
    if not isinstance(kernel, Kernel):
        return _run_long if steps >= LONG else _run_often
    program = program_of(kernel.target.log_density, kernel.target.dim)
    return _run_long if steps >= LONG or much_work(program, kernel) else _run_often


@jit_once
def held_out(objective: AbstractObjective, kernel: PyTree, data: PyTree, key: Array) -> Array:
    return objective.held_out(kernel, data, key)


def fit(
    kernel: PyTree,
    objective: AbstractObjective,
    samples: ArrayLike | Rows,
    *,
    key: KeyLike,
    config: TrainConfig | None = None,
    progress: bool | None = None,
    label: str = "training",
    memory: PyTree = None,
    spent: Callable[[], bool] = lambda: False,
    part: tuple[int, int] | None = None,
) -> Fit:
    """Improve `kernel` by `objective` on (approximate) posterior draws `samples`.

    Args:
        kernel: the kernel to train; its target and initial distribution do not change. Or any other
            module that the objective knows how to improve.
        objective: what to improve.
        samples: draws `(n, dim)`; a share is held out. For a module that is no kernel, `Rows`.
        key: an int seed or a JAX key; training is deterministic given it.
        config: lengths and stopping rule.
        progress: show a progress bar; by default on a terminal.
        label: the bar's caption.
        memory: `Fit.memory` of an earlier call with this objective; None starts afresh.
        spent: called after every chunk; training ends once it returns true.
        part: updates made before and updates in all, if this is a part of a longer training.

    Returns:
        The trained kernel with the history of training.
    """
    config = config or TrainConfig()
    key_split, key_init, key_check, key_run = split(as_key(key), 4)
    if isinstance(samples, Rows):
        data, held = samples
    else:
        data, held = split_samples(check_samples(samples, kernel.target.dim), key_split)
    memory = objective.init(kernel, key_init) if memory is None else memory
    monitor, skipped, step = _Monitor(objective, kernel, held, config, key_check), 0, 0
    before, total = part or (0, config.steps)
    advance = run_chunk(kernel, total)
    with Progress(label, total, progress) as bar:
        while step < config.steps:
            count = min(config.chunk, config.steps - step)
            kernel, memory, sums = advance(
                objective, kernel, memory, data, jr.fold_in(key_run, step), jnp.asarray(count)
            )
            step += count
            skipped += round(float(sums.get("skipped", 0.0)))
            monitor.check(kernel, step, {name: float(x) / count for name, x in sums.items()})
            bar.update(before + step, **_shown(monitor.history[-1]))
            if monitor.stops() or spent():
                break
    history, best = monitor.history, monitor.best
    best = kernel if config.keep == "last" and np.isfinite(history[-1]["held_out"]) else best
    return Fit(best, history, skipped, _divergence(history, skipped, step), memory)


class _Monitor:
    """Measures a kernel on held-out draws after every chunk, and keeps the best one.

    Args:
        objective: has the held-out measure.
        kernel: the kernel before training, measured first.
        held: held-out draws.
        config: when an improvement counts, and when training stops.
        key: randomness, the same in every measurement, so that they can be compared.
    """

    def __init__(
        self,
        objective: AbstractObjective,
        kernel: PyTree,
        held: PyTree,
        config: TrainConfig,
        key: Key[Array, ""],
    ):
        self.objective, self.held, self.config, self.key = objective, held, config, key
        self.best, self.history = kernel, list[dict[str, float]]()
        self._stale, self._began = 0, time.perf_counter()
        self.history.append(self._row(kernel, 0, {}))
        self._lowest = self.history[0]["held_out"]

    def check(self, kernel: PyTree, step: int, losses: dict[str, float]) -> None:
        """Measure the kernel after `step` updates and add a row to the history."""
        self.history.append(self._row(kernel, step, losses))
        measure = self.history[-1]["held_out"]
        if measure < self._lowest - self.config.tolerance or not np.isfinite(self._lowest):
            self._lowest, self.best, self._stale = measure, kernel, 0
            return
        if measure < min(row["held_out"] for row in self.history[:-1]):
            self.best = kernel
        self._stale += 1

    def stops(self) -> bool:
        """Whether training has stopped improving, or its time is over."""
        patience, seconds = self.config.patience, self.config.seconds
        if patience is not None and self._stale >= patience:
            return True
        return seconds is not None and self.history[-1]["seconds"] > seconds

    def _row(self, kernel: PyTree, step: int, losses: dict[str, float]) -> dict[str, float]:
        key_measure, key_movement = (jr.fold_in(self.key, use) for use in range(2))
        measure = float(held_out(self.objective, kernel, self.held, key_measure))
        row = {"step": float(step), "held_out": measure, **losses}
        if self.config.monitor:
            row |= movement(kernel, self.held[: self.config.monitor], key_movement)
        return row | {"seconds": time.perf_counter() - self._began}


def _shown(row: dict[str, float]) -> dict[str, float]:
    """What the line of progress shows of a row, in words."""
    words = {"held_out": "loss", "ess": "ess_per_draw", "acceptance": "acceptance"}
    return {word: row[name] for name, word in words.items() if name in row}


def _divergence(history: list[dict[str, float]], skipped: int, steps: int) -> str | None:
    measures = np.array([row["held_out"] for row in history])
    if not np.isfinite(measures).any():
        return (
            "the held-out measure was never finite; lower the learning rate or rescale the target"
        )
    if skipped > steps / 2:
        return f"{skipped} of {steps} gradients were not finite; lower the learning rate"
    if len(history) > 1 and not np.nanmin(measures[1:]) < measures[0]:
        return (
            "training did not improve the held-out measure; lower the learning rate or train longer"
        )
    if history[-1].get("acceptance", 1.0) < 1e-4:
        return (
            "no proposal is accepted, so there is no gradient to learn from; start nearer the "
            "identity (last_scale) or lower the learning rate"
        )
    return None

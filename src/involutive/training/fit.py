"""The training loop: one for all objectives.

Updates run in compiled chunks. After each chunk the held-out measure is taken; the parameters with
the best one are kept and returned, and training stops when it has not improved for `patience`
chunks. Acceptance from X and in stationarity and an estimate of the effective draws per draw are
recorded beside it, because acceptance alone says nothing about mixing.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Float, Key

from involutive._xla.compilation import jit_long, jit_once, on_device
from involutive._xla.cost import much_work
from involutive._xla.program import program_of
from involutive.core.errors import InputError, check, check_count
from involutive.core.keys import KeyLike, as_key, generator, split
from involutive.kernel.kernel import AbstractKernel, Kernel
from involutive.sampling.progress import Progress
from involutive.training.objective import AbstractObjective

HELD_OUT = 0.15  # share of the data that training never sees
LEAST_ROWS = 20
LONG = 5000  # updates that repay the longer compilation: a critic's are half as fast again by it


@dataclass(frozen=True)
class TrainConfig:
    """How long to train, and when to stop.

    Attributes:
        steps: the most updates.
        chunk: updates between two looks at the held-out measure.
        patience: chunks without improvement before training stops; None never stops early.
        tolerance: the least improvement that counts.
        seconds: a limit on wall time, checked after every chunk; None for no limit.
        monitor: how many held-out points the acceptance and ESS figures use; 0 for none.
        keep: the parameters with the "best" held-out measure, or the "last": where a rate has
            fallen to zero they are settled, and those before them are not.
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
    """What an objective trains on and what it is judged by, as pytrees of arrays, made before."""

    train: Any
    held: Any


@dataclass(frozen=True)
class Fit:
    """A trained kernel and how training went.

    Attributes:
        kernel: with the parameters that `TrainConfig.keep` names.
        history: one row a chunk: step, held_out, losses, acceptance figures, seconds.
        skipped: updates left out because a gradient was not finite.
        diverged: in words, if training ended in a state worse than it began; else None.
        memory: what the objective remembers at the end; hand it to `fit` to go on.
    """

    kernel: Any
    history: list[dict[str, float]] = field(default_factory=list)
    skipped: int = 0
    diverged: str | None = None
    memory: Any = None

    @property
    def best(self) -> dict[str, float]:
        """The row of the history with the best held-out measure."""
        return min(self.history, key=lambda row: row["held_out"])


def _run_chunk(
    objective: AbstractObjective, kernel: Any, memory: Any, data: Any, key: Array, count: Array
) -> tuple[Any, Any, Any]:
    """Make `count` updates, and return the sums of their figures.

    The trip count is dynamic, so that one compilation serves chunks of every length.
    """
    arrays, static = eqx.partition((kernel, memory), eqx.is_array)

    def update(arrays: Any, i: Array) -> tuple[Any, Any]:
        kernel, memory = eqx.combine(arrays, static)
        kernel, memory, figures = objective.update(kernel, memory, data, jr.fold_in(key, i))
        return eqx.filter((kernel, memory), eqx.is_array), figures

    def one(i: Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        arrays, figures = update(carry[0], i)
        return arrays, jax.tree.map(jnp.add, carry[1], figures)

    shapes = jax.eval_shape(update, arrays, jnp.asarray(0))[1]
    none = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    arrays, figures = jax.lax.fori_loop(0, count, one, (arrays, none))
    return *eqx.combine(arrays, static), figures


_run_often, _run_long = jit_once(_run_chunk), jit_long(_run_chunk)


def run_chunk(kernel: Any, steps: int) -> Any:
    """Compiled chunks of updates for a training of so many: for speed, if there is much to do."""
    if not isinstance(kernel, Kernel):
        return _run_long if steps >= LONG else _run_often
    program = program_of(kernel.target.log_density, kernel.target.dim)
    return _run_long if steps >= LONG or much_work(program, kernel) else _run_often


@jit_once
def held_out(objective: AbstractObjective, kernel: Any, data: Any, key: Array) -> Array:
    return objective.held_out(kernel, data, key)


def fit(
    kernel: Any,
    objective: AbstractObjective,
    samples: Any,
    *,
    key: KeyLike,
    config: TrainConfig | None = None,
    progress: bool | None = None,
    label: str = "training",
    memory: Any = None,
    spent: Callable[[], bool] = lambda: False,
    part: tuple[int, int] | None = None,
) -> Fit:
    """Improve `kernel` by `objective` on (approximate) posterior draws `samples`.

    Args:
        kernel: the kernel to train; its target and initial law are left alone. Or any other module
            that the objective knows how to improve.
        objective: what to improve.
        samples: draws `(n, dim)`; a share is held out. For a module that is no kernel, `Rows`.
        key: an int seed or a JAX key; training is deterministic given it.
        config: lengths and stopping rule.
        progress: show a progress bar; by default on a terminal.
        label: the bar's caption.
        memory: `Fit.memory` of an earlier call with this objective; None starts afresh.
        spent: asked after every chunk; training ends once it is true.
        part: updates made before and updates in all, where this is a part of a longer training.

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
    best, stale, skipped, history = kernel, 0, 0, []
    began, step = time.perf_counter(), 0

    def look(kernel: Any, losses: dict[str, float]) -> dict[str, float]:
        # the same draws at every look, so that looks can be compared
        key_measure, key_movement = (jr.fold_in(key_check, use) for use in range(2))
        measure = float(held_out(objective, kernel, held, key_measure))
        row = {"step": float(step), "held_out": measure, **losses}
        if config.monitor:
            row |= movement(kernel, held[: config.monitor], key_movement)
        return row | {"seconds": time.perf_counter() - began}

    history.append(look(kernel, {}))
    lowest = measure = history[0]["held_out"]
    advance = run_chunk(kernel, config.steps)
    before, total = part or (0, config.steps)
    with Progress(label, total, progress) as bar:
        while step < config.steps:
            count = min(config.chunk, config.steps - step)
            kernel, memory, figures = advance(
                objective, kernel, memory, data, jr.fold_in(key_run, step), jnp.asarray(count)
            )
            step += count
            losses = {name: float(total) / count for name, total in figures.items()}
            skipped += round(float(figures.get("skipped", 0.0)))
            history.append(look(kernel, losses))
            measure = history[-1]["held_out"]
            if measure < lowest - config.tolerance or not np.isfinite(lowest):
                lowest, best, stale = measure, kernel, 0
            else:
                best = kernel if measure < min(r["held_out"] for r in history[:-1]) else best
                stale += 1
            bar.update(before + step, **_shown(history[-1]))
            if config.patience is not None and stale >= config.patience:
                break
            late = config.seconds is not None and history[-1]["seconds"] > config.seconds
            if late or spent():
                break
    best = kernel if config.keep == "last" and np.isfinite(measure) else best
    return Fit(best, history, skipped, _divergence(history, skipped, step), memory)


@jit_once
def _one_step(kernel: AbstractKernel, positions: Array, keys: Array) -> tuple[Array, Array]:
    states = jax.vmap(kernel.init)(positions)
    moved, info = jax.vmap(kernel.step)(keys, states)
    return moved.position, info.acceptance_rate


@jit_once
def _draw_initial(law: AbstractDistribution, key: Array, count: int) -> Array:
    return law.sample(key, (count,))


def movement(kernel: AbstractKernel, held: Array, key: Key[Array, ""]) -> dict[str, float]:
    """Acceptance from X and in stationarity, and effective draws per draw from one step.

    With ρ the lag-one autocorrelation over stationary starts, `(1 - ρ)/(1 + ρ)` estimates the
    effective draws per draw of a geometric chain; the least over coordinates and |x|² is shown.
    """
    key_step, key_initial, key_first = jr.split(key, 3)
    moved, rate = _one_step(kernel, held, jr.split(key_step, held.shape[0]))
    figures = {"acceptance": float(jnp.mean(rate)), "ess": _lag_one_ess(held, moved)}
    if kernel.initial is not None:
        starts = _draw_initial(kernel.initial, key_initial, held.shape[0])
        _, first = _one_step(kernel, starts, jr.split(key_first, held.shape[0]))
        figures["acceptance_from_X"] = float(jnp.mean(first))
    return figures


def _lag_one_ess(before: Array, after: Array) -> float:
    def quantities(x: Any) -> np.ndarray:
        x = np.asarray(x, np.float64)
        return np.concatenate([x, np.sum(x**2, axis=1, keepdims=True)], axis=1)

    a, b = quantities(before), quantities(after)
    centre, spread = a.mean(axis=0), a.var(axis=0) + 1e-300
    rho = np.mean((a - centre) * (b - centre), axis=0) / spread
    return float(np.clip(((1 - rho) / (1 + np.maximum(rho, -0.99))).min(), 0.0, 1.0))


def check_samples(samples: Any, dim: int) -> np.ndarray:
    """Return training draws as a finite float array `(n, dim)`, or say what does not fit."""
    try:
        rows = np.asarray(samples, dtype=jnp.result_type(float))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"samples must be an array of numbers, got {type(samples).__name__}"
        ) from error
    check(
        rows.ndim == 2 and rows.shape[1] == dim,
        f"samples must have shape (n, {dim}), one row a draw, got {rows.shape}",
    )
    check(
        rows.shape[0] >= LEAST_ROWS,
        f"samples must hold at least {LEAST_ROWS} draws, got {rows.shape[0]}; draw more",
    )
    bad = int((~np.isfinite(rows)).any(axis=1).sum())
    check(bad == 0, f"samples must be finite, got NaN or infinity in {bad} of {len(rows)} rows")
    constant = np.flatnonzero(np.ptp(rows, axis=0) == 0)
    check(
        constant.size == 0,
        f"samples must vary in every coordinate, but {constant.tolist()[:8]} is constant; "
        "drop it from the model, or draw from the whole posterior",
    )
    return rows


def split_samples(
    rows: np.ndarray, key: Key[Array, ""]
) -> tuple[Float[Array, "train dim"], Float[Array, "held dim"]]:
    """Shuffle and split draws into a training and a held-out part."""
    order = generator(key).permutation(rows.shape[0])
    cut = max(int(HELD_OUT * rows.shape[0]), LEAST_ROWS // 4)
    return on_device(rows[order[cut:]]), on_device(rows[order[:cut]])


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

"""Chains that learning runs: to refresh its draws, and at the end to measure what was learned."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Key

from involutive.core.statistics import ess, rhat
from involutive.kernel.kernel import AbstractKernel
from involutive.learning.budget import Meter
from involutive.learning.outcome import Outcome
from involutive.sampling.runner import Chains
from involutive.sampling.sample import CHUNK

PILOT_CHAINS, PILOT_DRAWS, LEAST_DRAWS = 64, 1000, 200


def run_chains(
    kernel: AbstractKernel,
    states: Any,
    steps: int,
    key: Key[Array, ""],
    meter: Meter,
    devices: Sequence[Any] | None = None,
    least: int | None = None,
) -> Any:
    """Make `steps` steps from positions or a law, or after `least` as few as the budget asks for.

    Returns the trace, arrays of `(chains, steps, …)`.
    """
    count = len(states) if isinstance(states, np.ndarray) else PILOT_CHAINS
    most = min(steps, CHUNK)
    # as `sample` has it, which then compiles nothing anew
    chains = Chains(kernel, key, range(count), capacity=CHUNK, devices=devices)
    chains.start(states)
    parts, done = [], 0
    while done < steps and not (least and done >= least and meter.past(1.0)):
        parts.append(chains.advance(min(most, steps - done)))
        done += min(most, steps - done)
    meter.spend(count * done * evaluations_a_step(kernel))
    return jax.tree.map(lambda *rows: np.concatenate(rows, axis=1), *parts)


def evaluations_a_step(kernel: AbstractKernel) -> int:
    """Density evaluations a step, a gradient counted as three."""
    parts = getattr(kernel, "kernels", (kernel,))
    leaps = [getattr(getattr(part, "involution", None), "num_steps", 0) for part in parts]
    return sum(1 + 3 * (int(steps) + 1) if steps else 1 for steps in leaps)


def judge_pilot(
    trace: Any, warmup: int, meter: Meter, rounds: int, history: list[dict[str, Any]]
) -> Outcome:
    """What chains started apart say: effective draws per draw, R-hat, and what to try."""
    positions = trace.position[:, warmup:].astype(np.float64)
    squares = np.sum(positions**2, axis=2, keepdims=True)
    values = np.concatenate([positions, squares], axis=2)
    r_hat = float(np.nanmax(rhat(values)))
    per_draw = float(np.nanmin(ess(values)) / (positions.shape[0] * positions.shape[1]))
    converged = r_hat <= 1.05 and per_draw >= 0.01
    return Outcome(
        acceptance=float(trace.acceptance_rate[:, warmup:].mean()),
        ess_per_draw=min(per_draw, 1.0),
        r_hat=r_hat,
        rounds=rounds,
        evaluations=meter.evaluations,
        seconds=meter.seconds,
        converged=converged,
        advice="" if converged else _advice(r_hat, per_draw),
        history=history,
        reached=meter.reached,
    )


def _advice(r_hat: float, per_draw: float) -> str:
    if r_hat > 1.05:
        return (
            f"chains started apart disagree (R-hat {r_hat:.2f}); pass initial= that covers every "
            "mode, or a larger budget="
        )
    return (
        f"only {per_draw:.3f} effective draws per draw; pass a larger budget=, or reparametrise "
        "the model"
    )

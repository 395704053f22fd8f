"""Metrics that several experiments report, and the precision they train in.

From X, after each step: the energy distance to exact draws beside that of exact draws to each
other, the total variation of the mode weights, the variance within modes beside the exact one, and
the negative log likelihood above its exact mean (nearer to zero is better; lower is not). In
stationarity: acceptance, effective draws per draw, autocorrelation, mode weights.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive.core.statistics import autocorrelation
from involutive.diagnostics.metrics import ess_per_draw, mode_labels, mode_weights
from involutive.kernel.kernel import AbstractKernel
from involutive.sampling.draws import Draws
from involutive.sampling.runner import Chains
from involutive.sampling.sample import sample
from involutive.targets.target import Target

POINTS = 4096  # draws on either side of an energy distance; its cost is the square
PAIRS = 4  # sets of exact draws whose mean distance is the floor: one alone varies by its half
CHAINS = 64  # chains in stationarity
LAGS = (1, 10)  # of the autocorrelation that is reported


@contextmanager
def single_precision() -> Iterator[None]:
    """Compute in 32 bits whatever the caller does: networks train in half the time.

    For the whole process, because chains run in threads of their own.
    """
    before = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    jax.config.update("jax_enable_x64", False)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def exact(target: Target, key: Array, count: int) -> np.ndarray:
    """Exact draws of a target that knows them."""
    assert target.sample is not None
    return np.asarray(target.sample(key, count))


def labels(target: Target, positions: np.ndarray) -> np.ndarray:
    """The mode of every position, over all leading axes."""
    modes = target.modes
    assert modes is not None  # every target of these experiments names its modes
    flat = jnp.asarray(positions).reshape(-1, positions.shape[-1])
    return np.asarray(jax.jit(jax.vmap(modes.label))(flat)).reshape(positions.shape[:-1])


def mixing(draws: Draws) -> dict[str, Any]:
    """Acceptance, ESS per draw, how often a step changes the mode, and the modes' weights."""
    modes = mode_labels(draws)
    return {
        "acceptance": float(draws.acceptance_rate.mean()),
        "ESS per draw": float(ess_per_draw(draws).least),
        "mode changes per draw": float(np.mean(modes[:, 1:] != modes[:, :-1])),
        "modes visited, fewest of a chain": int(min(len(set(row.tolist())) for row in modes)),
        "mode weights off by": float(mode_weights(draws).total_variation),
    }


def stationary(kernel: AbstractKernel, key: Key[Array, ""], draws: int) -> dict[str, Any]:
    """Metrics of 64 chains from exact draws.

    `autocorrelation` is the largest absolute value over coordinates and |x|², at lags 1 and 10;
    `weights` the largest error of a mode's weight.
    """
    key_start, key_run = jr.split(key)
    starts = exact(kernel.target, key_start, CHAINS)
    run = sample(
        kernel, key=key_run, num_chains=CHAINS, num_samples=draws, num_warmup=0, initial=starts,
        progress=False,
    )  # fmt: skip
    values = [*np.moveaxis(run.positions, 2, 0), np.sum(run.positions**2, axis=2)]
    curves = np.array([autocorrelation(value, max(LAGS)) for value in values])
    found = mode_weights(run)
    return {
        "stationary_acceptance": float(run.acceptance_rate.mean()),
        "ess": float(ess_per_draw(run).least),
        "autocorrelation": np.abs(curves[:, LAGS]).max(axis=0),
        "weights": float(np.abs(found.share - found.exact).max()),
    }


def from_start(
    kernel: AbstractKernel,
    law: AbstractDistribution,
    key: Key[Array, ""],
    chains: int,
    steps: int,
) -> dict[str, Any]:
    """Metrics after steps 0 … `steps` of chains from `law`, and the positions of all of them."""
    key_run, key_exact, key_other = jr.split(key, 3)
    run = Chains(kernel, key_run, range(chains), capacity=steps, block=chains)
    run.start(law)
    begun = run.state()
    trace = run.advance(steps)
    positions = np.concatenate([np.asarray(begun.position)[:, None], trace.position], axis=1)
    densities = np.concatenate([np.asarray(begun.log_density)[:, None], trace.log_density], axis=1)
    target = kernel.target
    truth, other = exact(target, key_exact, 100_000), exact(target, key_other, PAIRS * POINTS)
    level = float(np.mean(jax.jit(jax.vmap(target.log_density))(jnp.asarray(truth))))
    others = other.reshape(PAIRS, POINTS, -1)
    walk = {
        "acceptance": trace.acceptance_rate.mean(axis=0),
        "nll": level - densities.mean(axis=0, dtype=np.float64),
        "energy": energy_distances(np.moveaxis(positions[:POINTS], 1, 0), truth[:POINTS]),
        "energy_floor": float(energy_distances(others, truth[:POINTS]).mean()),
        "positions": positions,
    }
    return walk | _modes_by_step(target, positions, truth)


def _modes_by_step(target: Target, positions: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Total variation of the mode weights and the ratio of variances within modes, by step."""
    if target.modes is None:
        nothing = np.full(positions.shape[1], np.nan)
        return {"total_variation": nothing, "variance_ratio": nothing}
    weights = np.asarray(target.modes.weights)
    real = _within(truth, labels(target, truth), weights.size)
    at = labels(target, positions)
    off, ratio = [], []
    for step in range(positions.shape[1]):
        share = np.bincount(at[:, step], minlength=weights.size) / len(at)
        off.append(0.5 * np.abs(share - weights).sum())
        ratio.append(_within(positions[:, step], at[:, step], weights.size) / real)
    return {"total_variation": np.array(off), "variance_ratio": np.array(ratio)}


def _within(points: np.ndarray, mode: np.ndarray, count: int) -> float:
    """The mean variance of a coordinate within a mode, over all points."""
    centres = np.stack(
        [points[mode == k].mean(axis=0) if (mode == k).any() else points[0] for k in range(count)]
    )
    return float(np.mean((points - centres[mode]) ** 2))


def energy_distances(states: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """`2 E|X - Y| - E|X - X'| - E|Y - Y'|` of every row of states `(rows, n, dim)` to `truth`.

    Every point is also its own partner (a V-statistic), so the value is never negative and has a
    positive floor between equal distributions.
    """
    return np.asarray(jax.jit(_energy_distances)(jnp.asarray(states), jnp.asarray(truth)))


def _energy_distances(states: Array, truth: Array) -> Array:
    def apart(x: Array, y: Array) -> Array:
        def one(row: Array) -> Array:
            return jnp.mean(jnp.linalg.norm(row[None, :] - y, axis=1))

        return jnp.mean(jax.lax.map(one, x, batch_size=64))

    within = apart(truth, truth)
    return jax.lax.map(lambda x: 2 * apart(x, truth) - apart(x, x) - within, states)


def mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the last axis and its standard error."""
    error = values.std(-1, ddof=1) / np.sqrt(values.shape[-1])
    return np.asarray(values.mean(-1)), np.asarray(error)

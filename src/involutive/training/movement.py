"""How a kernel moves after one step: acceptance rates, and an estimate of its effective draws."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.compilation import jit_once
from involutive.kernel.kernel import AbstractKernel


@jit_once
def _one_step(kernel: AbstractKernel, positions: Array, keys: Array) -> tuple[Array, Array]:
    states = jax.vmap(kernel.init)(positions)
    moved, info = jax.vmap(kernel.step)(keys, states)
    return moved.position, info.acceptance_rate


@jit_once
def _draw_initial(x: AbstractDistribution, key: Array, count: int) -> Array:
    return x.sample(key, (count,))


def movement(kernel: AbstractKernel, held: Array, key: Key[Array, ""]) -> dict[str, float]:
    """Acceptance from X and in stationarity, and effective draws per draw from one step.

    With ρ the lag-one autocorrelation over stationary starts, `(1 - ρ)/(1 + ρ)` estimates the
    effective draws per draw of a geometric chain; the minimum over coordinates and |x|² is shown.
    """
    key_step, key_initial, key_first = jr.split(key, 3)
    moved, rate = _one_step(kernel, held, jr.split(key_step, held.shape[0]))
    metrics = {"acceptance": float(jnp.mean(rate)), "ess": _lag_one_ess(held, moved)}
    if kernel.initial is not None:
        starts = _draw_initial(kernel.initial, key_initial, held.shape[0])
        _, first = _one_step(kernel, starts, jr.split(key_first, held.shape[0]))
        metrics["acceptance_from_X"] = float(jnp.mean(first))
    return metrics


def _lag_one_ess(before: Array, after: Array) -> float:
    def quantities(rows: Array) -> np.ndarray:
        x = np.asarray(rows, np.float64)
        return np.concatenate([x, np.sum(x**2, axis=1, keepdims=True)], axis=1)

    a, b = quantities(before), quantities(after)
    centre, spread = a.mean(axis=0), a.var(axis=0) + 1e-300
    rho = np.mean((a - centre) * (b - centre), axis=0) / spread
    return float(np.clip(((1 - rho) / (1 + np.maximum(rho, -0.99))).min(), 0.0, 1.0))

"""How good an independence proposal is, judged on draws before any chain is run with it."""

from typing import NamedTuple

import jax
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive.compiled import jit_once, on_device
from involutive.kernel import Kernel
from involutive.training.likelihood import log_weight, proposal_law

ROWS = 2000  # draws weighed at once, so that one compilation serves any number of them


@jit_once
def log_weights_at(kernel: Kernel, points: Array) -> Array:
    return jax.vmap(lambda x: log_weight(kernel, x))(points)


@jit_once
def many_draws(law: AbstractDistribution, key: Array) -> Array:
    return jax.vmap(law.sample)(jr.split(key, ROWS))


def _weights_at(kernel: Kernel, points: np.ndarray) -> np.ndarray:
    count = len(points)
    padded = points[np.resize(np.arange(count), -(-count // ROWS) * ROWS)]
    blocks = padded.reshape(-1, ROWS, points.shape[1])
    parts = [log_weights_at(kernel, on_device(block)) for block in blocks]
    return np.concatenate([np.asarray(part, np.float64) for part in parts])[:count]


class Weights(NamedTuple):
    """`log p - log q_i` of proposals i at draws of the target, and at `ROWS` draws of each q_i."""

    at_target: np.ndarray  # (proposals, n)
    at_own: np.ndarray  # (proposals, proposals · ROWS)


def weights_of(kernels: list[Kernel], held: np.ndarray, key: Key[Array, ""]) -> Weights:
    """The weights of proposals that differ in their auxiliary law's numbers only."""
    draws = [
        np.asarray(many_draws(proposal_law(kernel), jr.fold_in(key, i) if i else key))
        for i, kernel in enumerate(kernels)
    ]
    points = np.concatenate([held, *draws])
    rows = np.stack([_weights_at(kernel, points) for kernel in kernels])
    return Weights(rows[:, : len(held)], rows[:, len(held) :])


def mixed_figures(weights: Weights, shares: np.ndarray) -> dict[str, float]:
    """Acceptance and effective draws per draw of `q = Σ_i s_i q_i`, which ignores the state.

    At x the chain stays with probability `r(x) = 1 - E_y min(1, w(y)/w(x))`, y ~ q, so that
    `1/E_p[(1 + r)/(1 - r)]` estimates the effective draws per draw. It sees the rare sticky states
    that an average acceptance hides. The weights mix as `1/w = Σ_i s_i/w_i`.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        at_x, at_y = (
            -np.logaddexp.reduce(np.log(shares)[:, None] - rows, axis=0) for rows in weights
        )
        chance = np.log(np.repeat(shares, ROWS) / ROWS)
    at_y, at_x = np.where(np.isnan(at_y), -np.inf, at_y), at_x[np.isfinite(at_x)]
    order = np.argsort(at_y)
    at_y, chance = at_y[order], chance[order]
    # E_y min(1, w(y)/w(x)): a draw above w(x) counts by its chance, one below by its ratio too
    above = np.searchsorted(at_y, at_x)
    higher = 1 - np.concatenate([[0.0], np.cumsum(np.exp(chance))])[above]
    sums = np.logaddexp.accumulate(np.concatenate([[-np.inf], at_y + chance]))[above]
    with np.errstate(over="ignore", invalid="ignore"):
        leave = higher + np.exp(np.minimum(sums - at_x, 50.0))
    leave = np.clip(np.nan_to_num(leave), 1e-6, 1.0)
    ess = 1.0 / np.mean((2.0 - leave) / leave) if leave.size else 0.0
    return {"acceptance": float(leave.mean()) if leave.size else 0.0, "ess": float(ess)}


def independence_figures(kernel: Kernel, held: Array, key: Key[Array, ""]) -> dict[str, float]:
    """`mixed_figures` of one proposal, on at most `ROWS` draws."""
    return mixed_figures(weights_of([kernel], np.asarray(held)[:ROWS], key), np.ones(1))

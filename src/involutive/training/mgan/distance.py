"""How far the chain is from what it should do, from draws alone.

    start   the energy distance `2 E|X - Y| - E|X - X'| - E|Y - Y'|` between the law after b steps
            from the initial law and the target, zero exactly when the two agree, plus how far on
            average states lie below the lowest draws, as the first is quadratic in their share
    move    the distance correlation of x and x after m steps, x a draw: zero exactly when they are
            independent, and near one for a chain that stays put or follows an orbit

Both are taken in whitened coordinates next to a compressed log density, the height, which shows the
strays outside the bulk that coordinates alone hardly notice.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from involutive.kernel.kernel import Kernel, evaluate
from involutive.training.mgan.rollouts import log_chi, rollouts
from involutive.training.objective import Data

POINTS = 512  # the distances take memory in the square of this
LOWEST = 0.02  # share of the draws that strays lie below
SPREAD = 1e-12  # keeps the square root differentiable and a constant column harmless


def energy_distance(
    x: Float[Array, "n k"],
    weights: Float[Array, " n"],
    y: Float[Array, "m k"],
) -> Float[Array, ""]:
    """The energy distance between the weighted points x and the points y."""
    weights = weights / jnp.sum(weights)
    across = weights @ jnp.mean(apart(x, y), axis=1)
    # pairs of different points only, so that the estimate is not biased by its own size
    other = y.shape[0] * (y.shape[0] - 1)
    within_y = jnp.sum(apart(y, y)) / other
    within_x = weights @ apart(x, x) @ weights / (1 - jnp.sum(weights**2))
    return 2 * across - within_x - within_y


def distance_correlation(
    x: Float[Array, "n k"], y: Float[Array, "n k"], weights: Float[Array, " n"]
) -> Float[Array, ""]:
    """The squared distance correlation of the weighted pairs (x, y), between 0 and 1."""
    weights = weights / jnp.sum(weights)
    a, b = apart(x, x), apart(y, y)

    def covariance(a: Array, b: Array) -> Array:
        mean_a, mean_b = a @ weights, b @ weights
        both = weights @ (a * b) @ weights
        return both + (weights @ mean_a) * (weights @ mean_b) - 2 * weights @ (mean_a * mean_b)

    scale = jnp.maximum(covariance(a, a) * covariance(b, b), SPREAD)
    return jnp.maximum(covariance(a, b), 0.0) / jnp.sqrt(scale)


def apart(x: Float[Array, "n k"], y: Float[Array, "m k"]) -> Float[Array, "n m"]:
    """`|x_i - y_j|` for all pairs of rows."""
    square = jnp.sum(x**2, 1)[:, None] + jnp.sum(y**2, 1)[None, :] - 2 * x @ y.T
    return jnp.sqrt(jnp.maximum(square, SPREAD))


class Features:
    """Maps positions to whitened coordinates and a compressed log density."""

    def __init__(self, kernel: Kernel, data: Data):
        self.target = kernel.target
        self.centre, self.spread = jnp.mean(data, axis=0), jnp.std(data, axis=0)
        densities = self._log_density(data)
        self.level, self.range = jnp.median(densities), jnp.std(densities) + SPREAD

    def _log_density(self, positions: Float[Array, "n dim"]) -> Float[Array, " n"]:
        return jax.vmap(lambda x: evaluate(self.target, x))(positions)

    def __call__(self, positions: Float[Array, "n dim"]) -> Float[Array, "n features"]:
        white = (positions - self.centre[None, :]) / (self.spread[None, :] + SPREAD)
        height = (self._log_density(positions) - self.level) / self.range
        # states far out have log densities of -1000: the inverse hyperbolic sine tames them
        height = jnp.arcsinh(jnp.nan_to_num(height, neginf=-1e6))
        return jnp.concatenate([jnp.clip(white, -1e3, 1e3), height[:, None]], axis=1)


def start_distance(kernel: Kernel, data: Data, key: Key[Array, ""], steps: int) -> Float[Array, ""]:
    """Energy distance of states `steps` steps after X to the data, plus that of strays."""
    key_start, key_rollout = jr.split(key)
    data = data[:POINTS]
    starts = kernel.initial.sample(key_start, (data.shape[0],))  # type: ignore[union-attr]
    paths = rollouts(kernel, starts, key_rollout, steps)
    features = Features(kernel, data)
    weights = jnp.exp(jax.vmap(log_chi)(paths.log_accept)).reshape(-1)
    moved, real = features(paths.positions.reshape(-1, data.shape[1])), features(data)
    below = jnp.maximum(jnp.quantile(real[:, -1], LOWEST) - moved[:, -1], 0.0)
    return energy_distance(moved, weights, real) + jnp.sum(weights * below) / jnp.sum(weights)


def dependence(kernel: Kernel, data: Data, key: Key[Array, ""], steps: int) -> Float[Array, ""]:
    """Distance correlation of states `steps` steps apart in stationarity."""
    data = data[:POINTS]
    paths = rollouts(kernel, data, key, steps)
    features = Features(kernel, data)
    moved = features(paths.positions.reshape(-1, data.shape[1]))
    weights = jnp.exp(jax.vmap(log_chi)(paths.log_accept))
    begun = jnp.repeat(features(data), steps + 1, axis=0)
    return distance_correlation(begun, moved, weights.reshape(-1))

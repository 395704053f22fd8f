"""Finding where a density lives, from nothing but the density and an initial law X.

Two starts complement each other. **Climbs**: points of X climb the density, each by its own step
along every coordinate (Rprop, so scales from 1e-4 to 1e4 do not matter), then HMC with the local
curvature as its metric spreads them over their mode. It finds separate modes in high dimension.
**Annealing**: BlackJAX's adaptive tempered SMC carries particles from X to the target. It finds
curved and flat shapes, needs no gradient, and is not drawn into narrow spikes of no mass. Where
the draws of X weigh evenly enough they are **resampled** by weight instead, which costs nothing.

Neither has to weigh the modes: the learned kernel is exact and does that.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Float, Key

from involutive.classical import hmc, random_walk
from involutive.compiled import jit_often, jit_once, on_device
from involutive.kernel import State, evaluate
from involutive.keys import generator
from involutive.targets import Target

Points = Float[Array, "n dim"]

SCREEN_STEPS = 12
CLIMB_STEPS = 200
SPREAD_STEPS = 60
LEAPS = 4
ENOUGH = 500  # effective draws among those of X with which annealing adds nothing
MOVES = 5  # MCMC moves a temperature
TEMPERATURES = 100  # more than ever needed; a density that needs more has no path from X


def finite_draws(
    target: Target, law: AbstractDistribution, key: Key[Array, ""], count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw `count` points of X at which the density is finite, from up to 100 times as many.

    Returns them with their log weights `log p(x) - log X(x)`.
    """
    kept, heights = list[np.ndarray](), list[np.ndarray]()
    for attempt in range(100):
        points, weights = map(np.asarray, _draws(target, law, jr.fold_in(key, attempt), count))
        finite = np.isfinite(weights)
        kept.append(points[finite])
        heights.append(weights[finite])
        if sum(map(len, kept)) >= count:
            break
    found, weights = np.concatenate(kept), np.concatenate(heights)
    rows = np.resize(np.arange(len(found)), count if len(found) else 0)
    return found[rows], weights[rows]


@jit_once
def _draws(
    target: Target, law: AbstractDistribution, key: Key[Array, ""], count: int
) -> tuple[Points, Array]:
    points = law.sample(key, (count,))
    return points, jax.vmap(lambda x: evaluate(target, x) - law.log_prob(x))(points)


def resampled(
    points: np.ndarray, log_weights: np.ndarray, count: int, key: Key[Array, ""]
) -> np.ndarray | None:
    """Draws of X picked by weight, where they are draws of the target: the weights are even.

    None if fewer than `ENOUGH` count in effect, `(Σw)²/Σw²`: then the target must be approached
    from X through laws between them.
    """
    weights = np.exp(log_weights.astype(np.float64) - log_weights.max())
    if weights.sum() ** 2 / np.sum(weights**2) < ENOUGH:
        return None
    return points[generator(key).choice(len(points), count, p=weights / weights.sum())]


@jit_once
def log_densities(target: Target, points: Points) -> Float[Array, " n"]:
    """The log density at every row."""
    return jax.vmap(target.log_density)(points)


@jit_often
def ascend(target: Target, points: Points, steps: Array) -> tuple[Points, Float[Array, " n"]]:
    """The highest point on the way up from every row, and its log density."""
    return jax.vmap(lambda x: _ascend(target, x, steps))(points)


@jit_often
def _spread_all(target: Target, points: Points, key: Key[Array, ""], gradients: bool) -> Points:
    keys = jr.split(key, points.shape[0])
    return jax.vmap(lambda x, k: _spread(target, x, k, gradients))(points, keys)


def promising(target: Target, points: np.ndarray, count: int, block: int) -> np.ndarray:
    """Of many points, the `count` that stand highest after a few steps up, `block` at a time.

    A narrow mode catches few points of X, and they are lost among those of the wide ones; a few
    steps up lift them above.
    """
    rows = np.resize(np.arange(len(points)), -(-len(points) // block) * block)
    steps = jnp.asarray(SCREEN_STEPS)
    parts = [
        ascend(target, on_device(part), steps)
        for part in np.split(points[rows], len(rows) // block)
    ]
    tops, heights = (
        np.concatenate([np.asarray(x) for x in part])[: len(points)]
        for part in zip(*parts, strict=True)
    )
    return tops[np.argsort(-np.where(np.isnan(heights), -np.inf, heights), kind="stable")[:count]]


def climb(target: Target, points: Points, key: Key[Array, ""], *, gradients: bool = True) -> Points:
    """Climb from every point to its mode, then spread over it in the local metric.

    By HMC, or by a random walk, which spreads as well in few dimensions.
    """
    tops, _ = ascend(target, points, jnp.asarray(CLIMB_STEPS))
    return _spread_all(target, tops, key, gradients)


def climb_evaluations(count: int, screened: int, dim: int) -> int:
    """Density evaluations (a gradient counted as three) that `promising` and `climb` make."""
    return 3 * (SCREEN_STEPS + 1) * screened + count * (
        3 * (CLIMB_STEPS + 1) + 3 * dim + SPREAD_STEPS * (3 * LEAPS + 4)
    )


def _ascend(target: Target, x: Array, steps: Array) -> tuple[Array, Array]:
    """The highest point on the way up from x, and its log density."""
    optimiser: Any = optax.rprop(0.1, min_step_size=1e-9, max_step_size=1e3)
    value_and_slope = jax.value_and_grad(lambda y: evaluate(target, y))

    def up(_: Any, carry: Any) -> Any:
        x, memory, best, height = carry
        value, slope = value_and_slope(x)
        higher = value > height
        best, height = jnp.where(higher, x, best), jnp.where(higher, value, height)
        downhill = -jnp.where(jnp.isfinite(slope), slope, 0.0)
        updates, memory = optimiser.update(downhill, memory, x)
        return x + jnp.asarray(updates), memory, best, height

    start = (x, optimiser.init(x), x, jnp.full((), -jnp.inf, x.dtype))
    return jax.lax.fori_loop(0, steps + 1, up, start)[2:]


def _local_factor(target: Target, x: Array) -> Array:
    """A factor of the inverse curvature at x, its axes kept between 1e-6 and 30."""
    curvature = -jax.hessian(lambda y: evaluate(target, y))(x)
    curvature = jnp.where(jnp.isfinite(curvature), curvature, 0.0)
    curvature = 0.5 * (curvature + curvature.T)
    values, axes = jnp.linalg.eigh(curvature)
    scales = jnp.clip(1 / jnp.sqrt(jnp.maximum(jnp.abs(values), 1e-12)), 1e-6, 30.0)
    return axes * scales[None, :]


def _spread(target: Target, x: Array, key: Key[Array, ""], gradients: bool) -> Array:
    """Moves from x, their size adapted along the way: they only have to find the mode's bulk."""
    factor = _local_factor(target, x)
    if gradients:
        first, most, goal = 0.5 / target.dim**0.25, 1.5, 0.75
    else:
        first, most, goal = 1.0 / target.dim**0.5, 3.0, 0.3

    def move(t: Array, carry: tuple[State, Array]) -> tuple[State, Array]:
        state, size = carry
        local = (
            hmc(target, size, LEAPS, factor) if gradients else random_walk(target, size * factor)
        )
        state, info = local.step(jr.fold_in(key, t), state)
        return state, jnp.clip(size * jnp.exp(0.3 * (info.acceptance_rate - goal)), 1e-4, most)

    state = State(x, evaluate(target, x))
    return jax.lax.fori_loop(0, SPREAD_STEPS, move, (state, jnp.asarray(first)))[0].position


def anneal(
    target: Target,
    law: AbstractDistribution,
    points: Points,
    key: Key[Array, ""],
    *,
    gradients: bool,
    spent: Callable[[], bool] = lambda: False,
) -> tuple[np.ndarray, int]:
    """Carry particles from X to the target by adaptive tempered SMC; also count evaluations.

    They stop on the way once `spent()`.
    """
    particles, dim = points.shape
    state: Any = _first_state(points)
    size, evaluations = 0.5 if gradients else 2.38 / np.sqrt(dim), 0
    cost = MOVES * (3 * (LEAPS + 1) if gradients else 1) + 2
    for i in range(TEMPERATURES):
        # a step moves particles at the temperature before and weighs them: the last begins at one
        last = float(state.tempering_param) >= 1.0
        with jax.debug_key_reuse(False):  # BlackJAX's own loop passes one key twice
            state, rate = _smc_step(
                target, law, gradients, jr.fold_in(key, i), state, jnp.asarray(size)
            )
        evaluations += particles * cost
        size *= float(np.exp(np.clip(float(rate) - (0.75 if gradients else 0.3), -0.5, 0.5)))
        size = min(size, 3.0)
        if last or spent():
            break
    return np.asarray(state.particles), evaluations


@jit_once
def _first_state(points: Points) -> Any:
    from blackjax.smc import adaptive_tempered

    # arrays from the first temperature on: a number would be compiled in
    return jax.tree.map(lambda x: jnp.asarray(x, points.dtype), adaptive_tempered.init(points))


@jit_often
def _smc_step(
    target: Target,
    law: AbstractDistribution,
    gradients: bool,
    key: Array,
    state: Any,
    size: Array,
) -> tuple[Any, Array]:
    """One temperature; targets that differ in their arrays only share what was compiled."""
    # imported here: BlackJAX starts JAX's backend, and a cluster must be joined before that
    import blackjax
    from blackjax.mcmc import random_walk
    from blackjax.smc import adaptive_tempered, resampling

    def log_prior(x: Array) -> Array:
        return law.log_prob(x)

    def log_likelihood(x: Array) -> Array:
        value = evaluate(target, x) - law.log_prob(x)
        return jnp.where(jnp.isfinite(value), value, -1e30)

    move = blackjax.hmc.build_kernel() if gradients else _random_walk_move()
    begin = blackjax.hmc.init if gradients else random_walk.init
    kernel = adaptive_tempered.build_kernel(
        log_prior, log_likelihood, move, begin, resampling.systematic, target_ess=0.7
    )
    spread = jnp.var(state.particles, axis=0) + 1e-12
    if gradients:
        parameters = {
            "step_size": size[None],
            "inverse_mass_matrix": spread[None],
            "num_integration_steps": jnp.array([LEAPS]),
        }
    else:
        covariance = jnp.cov(state.particles.T).reshape(spread.size, spread.size)
        factor = jnp.linalg.cholesky(covariance + 1e-9 * jnp.diag(spread))
        parameters = {"factor": size * factor[None]}
    state, info = kernel(key, state, MOVES, parameters)
    return state, jnp.mean(info.update_info.acceptance_rate)


def _random_walk_move() -> Any:
    from blackjax.mcmc import random_walk

    kernel = random_walk.build_additive_step()

    def move(key: Array, state: Any, log_density: Any, factor: Array) -> Any:
        return kernel(key, state, log_density, random_walk.normal(factor))

    return move

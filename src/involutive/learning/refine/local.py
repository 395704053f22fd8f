"""A tuned local move: HMC if gradients help, a random walk if they do not.

The scale of the move is that of one mode, not of the whole posterior: the pooled covariance within
the components of a mixture. The step is tuned on draws until the acceptance rate is near its
optimum (0.8 for HMC, 0.3 for a random walk), before any draw is kept. For a mixture that was fitted
to the target itself, its covariances set the step without tuning (`move_within_modes`), and pilot
chains judge the result.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Float, Key, PyTree

from involutive._xla.compilation import jit_once, on_device
from involutive.bijections.whitening import whitened
from involutive.core.keys import generator, split
from involutive.involutions.classical import Leapfrog, RandomWalk
from involutive.kernel.classical import hmc, random_walk
from involutive.kernel.kernel import Kernel
from involutive.learning.fit.em import fit_components
from involutive.learning.fit.mixture import Components, components_of
from involutive.learning.settings import LearnSettings, RefineSettings
from involutive.targets.target import Target


def within_mode_factor(
    points: Float[Array, "n dim"], key: Key[Array, ""], settings: LearnSettings
) -> Float[Array, "dim dim"]:
    """A Cholesky factor of the covariance within modes."""
    # always of the same size, so that nothing is compiled twice
    refine = settings.refine
    rows = np.linspace(0, len(points) - 1, refine.factor_points).astype(int)
    points = on_device(np.asarray(points)[rows])
    g, white = whitened(points)
    mixture = fit_components(white, refine.factor_components, key, settings.fit)
    factor = pooled_factor(np.asarray(g.factor.unwrap()), mixture)
    return on_device(factor.astype(points.dtype))


def pooled_factor(factor: np.ndarray, mixture: Components) -> np.ndarray:
    """A factor of the covariance within the components of a mixture of whitened points."""
    pooled = np.einsum("k,kij->ij", np.exp(mixture.log_weights), mixture.covariances)
    return factor @ np.linalg.cholesky(pooled)


def move_within_modes(proposal: Kernel, gradients: bool, settings: RefineSettings) -> Kernel:
    """An untuned local move with the scale of a mixture's components."""
    g = proposal.involution.g  # type: ignore[attr-defined]
    mixture = components_of(proposal.auxiliary)  # type: ignore[arg-type]
    factor = pooled_factor(np.asarray(g.factor.unwrap(), np.float64), mixture)
    move = untuned_move(proposal.target, factor, gradients, proposal.initial, settings)[0]
    return _quarter_turn(move, settings) if gradients else move


def local_move(
    target: Target,
    points: Float[Array, "n dim"],
    key: Key[Array, ""],
    settings: LearnSettings,
    *,
    gradients: bool,
    initial: AbstractDistribution | None = None,
) -> Kernel:
    """Build and tune a local move on (approximate) draws of the target."""
    key_factor, key_pick, key_tune = split(key, 3)
    refine, factor = settings.refine, within_mode_factor(points, key_factor, settings)
    picked = generator(key_pick).integers(0, len(points), refine.tuning_points)
    kernel, goal = untuned_move(target, factor, gradients, initial, refine)
    kernel = tune_step_size(kernel, on_device(np.asarray(points)[picked]), key_tune, goal, refine)
    return _quarter_turn(kernel, refine) if isinstance(kernel.involution, Leapfrog) else kernel


def tuning_evaluations(gradients: bool, settings: RefineSettings) -> int:
    """Density evaluations that tuning a local move takes; a gradient counts as three."""
    per_step = 1 + 3 * (settings.tuning_leaps + 1) if gradients else 1
    updates = settings.tuning_rounds * settings.tuning_points
    return updates * (1 + settings.tuning_moves * per_step)


def untuned_move(
    target: Target,
    factor: Array | np.ndarray,
    gradients: bool,
    initial: AbstractDistribution | None,
    settings: RefineSettings,
) -> tuple[Kernel, float]:
    """A local move of about the right size, and the acceptance rate to tune it to."""
    factor = np.asarray(factor, jnp.result_type(float))
    if gradients:
        size, leaps = settings.hmc_step / target.dim**0.25, settings.tuning_leaps
        move = hmc(target, size, leaps, on_device(factor), initial)
        return _with_steps(move, leaps), settings.hmc_acceptance
    scale = on_device(settings.walk_step / target.dim**0.5 * factor)
    return random_walk(target, scale, initial), settings.walk_acceptance


def _quarter_turn(kernel: Kernel, settings: RefineSettings) -> Kernel:
    """HMC with leapfrog steps for a quarter of a unit Gaussian's period; half only reflects."""
    step_size = float(kernel.involution.step_size)  # type: ignore[attr-defined]
    count = np.clip(np.ceil(settings.path / step_size), *settings.leap_bounds)
    return _with_steps(kernel, int(count))


def _with_steps(kernel: Kernel, count: int) -> Kernel:
    """HMC with that many leapfrog steps, as an array, so that one compilation serves any number."""
    return eqx.tree_at(lambda k: k.involution.num_steps, kernel, on_device(np.asarray(count)))


def _moves(kernel: Kernel, positions: Array, key: Array, count: int) -> tuple[Array, Array]:
    states = jax.vmap(kernel.init)(positions)

    def one(states, key_step):
        states, info = jax.vmap(kernel.step)(jr.split(key_step, positions.shape[0]), states)
        return states, jnp.mean(info.acceptance_rate)

    states, rates = jax.lax.scan(one, states, jr.split(key, count))
    return states.position, jnp.mean(rates)


def _size(kernel: Kernel) -> PyTree:
    """The step size of HMC or the scale of a random walk, also as a selector of `tree_at`."""
    f = kernel.involution
    return f.step_size if isinstance(f, Leapfrog) else f.scale  # type: ignore[attr-defined]


@jit_once
def tune_step_size(
    kernel: Kernel, positions: Array, key: Key[Array, ""], goal: float, settings: RefineSettings
) -> Kernel:
    """Scale the step repeatedly by `exp(gain·(acceptance rate - goal))`, with a falling gain."""
    assert isinstance(kernel.involution, RandomWalk | Leapfrog)

    def again(i: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        positions, size = carry
        scaled = eqx.tree_at(_size, kernel, size)
        positions, rate = _moves(scaled, positions, jr.fold_in(key, i), settings.tuning_moves)
        gain = settings.tuning_gain / (1 + settings.tuning_decay * i)
        return positions, size * jnp.exp(gain * (rate - goal))

    size = jax.lax.fori_loop(0, settings.tuning_rounds, again, (positions, _size(kernel)))[1]
    return eqx.tree_at(_size, kernel, size)

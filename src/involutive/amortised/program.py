"""The one compiled program of `sample_many`: everything that a group of data sets needs.

For each data set: the proposal q, weights p/q of its draws, annealed particles that owe nothing to
q, chains that start from both, and the density between the components of q. Data sets and chains
are two nested maps over the same kernel that `FamilyKernel.at` returns.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import Invert
from flowjax.distributions import AbstractDistribution, Normal, Transformed
from jaxtyping import Array, Key

from involutive._xla.compilation import jit_once
from involutive.amortised.anneal import annealed
from involutive.amortised.kernel import WARMUP, FamilyKernel, Parts
from involutive.amortised.objective import sums_of
from involutive.amortised.refine import refined
from involutive.kernel.kernel import State
from involutive.sampling.starts import started_elsewhere

WIDE = 1.5  # sds of the positions seen in training, from which particles start without a prior
BETWEEN = np.linspace(
    0.1, 0.9, 9
)  # places between two components at which the density is looked at


class Sizes(NamedTuple):
    """How much is done for each data set.

    Attributes:
        chains: how many.
        draws: kept of each.
        rounds: in which the proposal is fitted to the data set; a guess.
        refining: draws per round; a guess.
        weights: draws of q that are weighed; a guess.
        particles: annealed particles that look for what q misses; a guess.
        temperatures: of the annealing; a guess.
        moves: of each particle per temperature; a guess.
    """

    chains: int
    draws: int
    rounds: int = 5
    refining: int = 400
    weights: int = 1000
    particles: int = 128
    temperatures: int = 16
    moves: int = 2


class Ran(NamedTuple):
    """What the program returns of each data set, with a leading axis over the group."""

    positions: Any  # (chains, draws, dim)
    log_density: Any  # (chains, draws)
    accepted: Any  # (chains, draws)
    acceptance_rate: Any  # (chains, draws)
    nonfinite: Any  # (chains,) proposals whose density was no number
    forward: Any  # (weights,) log p/q of draws of q
    backward: Any  # (chains, draws) log p/q of the chains' draws
    outside: Any  # (particles,) log p/q of annealed particles
    component: Any  # (chains, draws) the component of q that a draw belongs to
    weights: Any  # (components,) of q
    barrier: Any  # (components, components) how far the density dips between two components


def reference(many: FamilyKernel) -> AbstractDistribution:
    """X, from which particles are annealed: the prior, or all that training has seen, widened."""
    own = many.family.template.initial
    if own is not None:
        return own
    dim = many.family.dim
    return Transformed(Normal(jnp.zeros(dim), WIDE * jnp.ones(dim)), Invert(many.estimator.white))


def run_group(
    many: FamilyKernel, law: AbstractDistribution, data: Any, keys: Key[Array, " n"], sizes: Sizes
) -> Ran:
    """Run a group of stacked data sets, each with its own key."""
    return jax.vmap(lambda observed, key: _one(many, law, observed, key, sizes))(data, keys)


compiled_group = jit_once(run_group)


def _one(
    many: FamilyKernel, law: AbstractDistribution, observed: Any, key: Key[Array, ""], sizes: Sizes
) -> Ran:
    key_q, key_anneal, key_chains, key_refine = jr.split(key, 4)
    family = many.family
    target, white = family.with_data(observed), many.estimator.white
    mixture = refined(
        many.estimator.mixture(sums_of(many.estimator, family, observed)),
        lambda v: target.log_density(white.inverse(v)), key_refine, sizes.rounds, sizes.refining,
    )  # fmt: skip
    parts = many.parts(target, mixture)
    x, forward = _weighed(parts, key_q, sizes.weights)
    found = annealed(
        family, law, observed, key_anneal, sizes.particles, sizes.temperatures, sizes.moves
    )
    starts = _starts(x, forward, found.x, found.log_density, sizes.chains)
    positions, log_density, info = _chains(parts, starts, key_chains, sizes)
    log_q = jax.vmap(jax.vmap(parts.law.log_prob))
    of = jax.vmap(jax.vmap(lambda x: jnp.argmax(mixture.responsibilities(white.transform(x)))))
    return Ran(
        positions, log_density, info.accepted, info.acceptance_rate,
        jnp.sum(info.nonfinite, axis=1),
        forward, log_density - log_q(positions),
        found.log_density - jax.vmap(parts.law.log_prob)(found.x),
        of(positions).astype(jnp.int8), jnp.exp(mixture.logits),
        _barriers(parts, jax.vmap(white.inverse)(mixture.means)),
    )  # fmt: skip


def _weighed(parts: Parts, key: Key[Array, ""], count: int) -> tuple[Array, Array]:
    """Draws of q and their log weights; a density of NaN or +inf counts as zero, as in chains."""
    x, log_q = jax.vmap(parts.law.sample_and_log_prob)(jr.split(key, count))
    log_p = jax.vmap(parts.proposal.target.log_density)(x)
    fine = (log_p < jnp.inf) & jnp.isfinite(log_q)
    return x, jnp.where(fine, log_p - log_q, -jnp.inf)


def _starts(x: Array, forward: Array, particles: Array, log_density: Array, count: int) -> Array:
    """Draws of q with a finite density, and one chain in four at an annealed particle."""
    order = jnp.argsort(~jnp.isfinite(forward), stable=True)
    near = x[order[jnp.arange(count) % x.shape[0]]]
    spread = jnp.linspace(0, particles.shape[0] - 1, count).astype(int)
    apart = started_elsewhere(np.arange(count)) & jnp.isfinite(log_density[spread])
    return jnp.where(apart[:, None], particles[spread], near)


def _chains(parts: Parts, starts: Array, key: Key[Array, ""], sizes: Sizes) -> tuple[Any, Any, Any]:
    """Chains `(chains, draws)` after their warm-up."""
    kernel = parts.moves
    states = jax.vmap(kernel.init)(starts)
    bits = jr.key_data(jr.split(key, (WARMUP + sizes.draws, sizes.chains)))

    def step(states: State, bits: Array) -> tuple[State, Any]:
        keys = jr.wrap_key_data(bits)
        states, info = jax.vmap(kernel.step)(keys, states)
        return states, (states.position, states.log_density, info)

    _, traced = jax.lax.scan(step, states, bits)
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf[WARMUP:], 0, 1), traced)


def _barriers(parts: Parts, tops: Array) -> Array:
    """How far log p dips on the way between two components, below the lower of the two ends."""
    log_p = jax.vmap(parts.proposal.target.log_density)
    count, dim = tops.shape
    share = jnp.asarray(BETWEEN, tops.dtype)[None, None, :, None]
    places = tops[:, None, None] * (1 - share) + tops[None, :, None] * share
    lowest = jnp.min(log_p(places.reshape(-1, dim)).reshape(count, count, -1), axis=2)
    ends = log_p(tops)
    return jnp.minimum(ends[:, None], ends[None, :]) - lowest

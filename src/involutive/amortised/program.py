"""The one compiled program of `sample_many`: everything that a group of data sets needs.

For each data set: the proposal q, weights p/q of its draws, annealed particles that do not depend
on q, chains that start from both, and the density between the components of q. Data sets and chains
are two nested maps over the same kernel that `FamilyKernel.at` returns.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import Invert
from flowjax.distributions import AbstractDistribution, Normal, Transformed
from jaxtyping import Array, Key

from involutive._xla.compilation import jit_once
from involutive.amortised.anneal import annealed
from involutive.amortised.kernel import FamilyKernel, Parts
from involutive.amortised.layout import Observed
from involutive.amortised.network import SetProposal
from involutive.amortised.objective import sums_of
from involutive.amortised.refine import refined
from involutive.amortised.settings import ManySettings
from involutive.core.types import Number
from involutive.kernel.kernel import Info, State
from involutive.sampling.starts import started_elsewhere
from involutive.targets.target import Target

Arrays = Array | np.ndarray  # on a device, or on the host


class Sizes(NamedTuple):
    """How much is done for each data set.

    Attributes:
        chains: how many.
        draws: kept of each.
        settings: everything else.
    """

    chains: int
    draws: int
    settings: ManySettings


class Ran(NamedTuple):
    """What the program returns of each data set, with a leading axis over the group."""

    positions: Arrays  # (chains, draws, dim)
    log_density: Arrays  # (chains, draws)
    accepted: Arrays  # (chains, draws)
    acceptance_rate: Arrays  # (chains, draws)
    nonfinite: Arrays  # (chains,) proposals whose density was no number
    forward: Arrays  # (weights,) log p/q of draws of q
    backward: Arrays  # (chains, draws) log p/q of the chains' draws
    outside: Arrays  # (particles,) log p/q of annealed particles
    component: Arrays  # (chains, draws) the component of q that a draw belongs to
    weights: Arrays  # (components,) of q
    barrier: Arrays  # (components, components) how far the density dips between two components


def reference(many: FamilyKernel, wide: Number) -> AbstractDistribution:
    """X, from which particles are annealed: the prior, or all that training has seen, widened."""
    own = many.family.template.initial
    if own is not None:
        return own
    dim = many.family.dim
    return Transformed(Normal(jnp.zeros(dim), wide * jnp.ones(dim)), Invert(many.estimator.white))


def run_group(
    many: FamilyKernel,
    law: AbstractDistribution,
    data: Observed,
    keys: Key[Array, " n"],
    sizes: Sizes,
) -> Ran:
    """Run a group of stacked data sets, each with its own key."""
    return jax.vmap(lambda observed, key: _one(many, law, observed, key, sizes))(data, keys)


compiled_group = jit_once(run_group)


def _one(
    many: FamilyKernel,
    law: AbstractDistribution,
    observed: Observed,
    key: Key[Array, ""],
    sizes: Sizes,
) -> Ran:
    key_q, key_anneal, key_chains, key_refine = jr.split(key, 4)
    settings, target = sizes.settings, many.family.with_data(observed)
    proposal = _fitted(many, target, observed, key_refine, settings)
    mixture, to = proposal.mixture, proposal.g.transform
    parts = many.parts(target, proposal, settings.step)
    x, forward = _weighed(parts, key_q, settings.weights)
    found = annealed(many.family, law, observed, key_anneal, settings)
    starts = _starts(x, forward, found.x, found.log_density, sizes.chains)
    positions, log_density, info = _chains(parts, starts, key_chains, sizes)
    log_q = jax.vmap(jax.vmap(parts.law.log_prob))
    of = jax.vmap(jax.vmap(lambda x: jnp.argmax(mixture.responsibilities(to(x)))))
    return Ran(
        positions, log_density, info.accepted, info.acceptance_rate,
        jnp.sum(info.nonfinite, axis=1),
        forward, log_density - log_q(positions),
        found.log_density - jax.vmap(parts.law.log_prob)(found.x),
        of(positions).astype(jnp.int8), jnp.exp(mixture.logits),
        _barriers(target, jax.vmap(proposal.g.inverse)(mixture.means), settings.between),
    )  # fmt: skip


def _fitted(
    many: FamilyKernel,
    target: Target,
    observed: Observed,
    key: Key[Array, ""],
    settings: ManySettings,
) -> SetProposal:
    """The network's proposal, its mixture fitted to the data set in coordinates that stay."""
    proposal = many.estimator.proposal(sums_of(many.estimator, many.family, observed))

    def log_p(y: Array) -> Array:
        x, log_det = proposal.g.inverse_and_log_det(y)
        return target.log_density(x) + log_det

    return proposal._replace(mixture=refined(proposal.mixture, log_p, key, settings))


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


def _chains(
    parts: Parts, starts: Array, key: Key[Array, ""], sizes: Sizes
) -> tuple[Array, Array, Info]:
    """Positions, log densities and infos of chains `(chains, draws)` after their warm-up."""
    kernel, warmup = parts.moves, sizes.settings.warmup
    states = jax.vmap(kernel.init)(starts)
    bits = jr.key_data(jr.split(key, (warmup + sizes.draws, sizes.chains)))

    def step(states: State, bits: Array) -> tuple[State, tuple[Array, Array, Info]]:
        keys = jr.wrap_key_data(bits)
        states, info = jax.vmap(kernel.step)(keys, states)
        return states, (states.position, states.log_density, info)

    _, traced = jax.lax.scan(step, states, bits)
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf[warmup:], 0, 1), traced)


def _barriers(target: Target, tops: Array, between: int) -> Array:
    """How far log p dips on the line between two components, below the lower of its two ends."""
    log_p = jax.vmap(target.log_density)
    count, dim = tops.shape
    share = jnp.asarray(np.linspace(0, 1, between + 2)[1:-1], tops.dtype)[None, None, :, None]
    places = tops[:, None, None] * (1 - share) + tops[None, :, None] * share
    lowest = jnp.min(log_p(places.reshape(-1, dim)).reshape(count, count, -1), axis=2)
    ends = log_p(tops)
    return jnp.minimum(ends[:, None], ends[None, :]) - lowest

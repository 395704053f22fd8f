"""What trains the network of a family.

**Likelihood.** Over pairs (x, D) of the simulator, `E[-log q(x | D)]` is least where q(· | D) is
the posterior of every D (up to what q can express). Pairs are drawn anew at every update where the
simulator is a JAX function, so that nothing is learned by heart.

**Log-variance.** For one D, `log p(x, D) - log q(x | D)` is constant in x exactly where q is the
posterior. The mean over data sets of a robust spread of it, at points of q and at draws of the
posterior (simulated truths, annealed particles), uses the density itself: it has no sampling noise
at its optimum, and of those draws only the support matters.
"""

import abc
from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Key, PyTree

from involutive.amortised.family import Family
from involutive.amortised.layout import MASK, Observed
from involutive.amortised.network import Estimator, SetProposal
from involutive.amortised.settings import AmortiseSettings
from involutive.amortised.summary import Sums
from involutive.core.types import Number
from involutive.training.objective import (
    AbstractObjective,
    UpdateMetrics,
    gradient_step,
    split_trainable,
)

Scalar = Float[Array, ""]


class Pairs(NamedTuple):
    """Positions `(n, m, dim)` under the posteriors of n padded data sets, stacked."""

    x: Float[Array, "n m dim"]
    data: Observed


class Paced(NamedTuple):
    """Adam's state, with how many updates there were and how many there will be."""

    inner: optax.OptState
    done: Array
    total: Array


def paced_adam(rate: Number, settings: AmortiseSettings) -> optax.GradientTransformation:
    """Adam whose rate rises over a share of the updates and falls by a cosine to zero.

    The number of updates is part of the state, so that another number compiles nothing anew.
    """
    clip = optax.clip_by_global_norm(settings.largest_gradient)
    adam, rise = optax.chain(clip, optax.scale_by_adam()), settings.rise

    def init(params: PyTree) -> Paced:
        return Paced(adam.init(params), jnp.zeros(()), jnp.ones(()))

    def update(
        updates: optax.Updates, state: optax.OptState, params: PyTree | None = None
    ) -> tuple[optax.Updates, Paced]:
        assert isinstance(state, Paced)
        updates, inner = adam.update(updates, state.inner, params)
        share = jnp.minimum(state.done / state.total, 1.0)
        pace = rate * jnp.minimum(share / rise + rise, 0.5 * (1 + jnp.cos(jnp.pi * share)))
        updates = jax.tree.map(lambda u: -pace * u, updates)
        return updates, Paced(inner, state.done + 1, state.total)

    return optax.GradientTransformation(init, update)


def sums_of(estimator: Estimator, family: Family, observed: Observed) -> Sums:
    """The network's summary of one padded data set."""
    mask = None
    if family.layout.exchangeable:
        assert isinstance(observed, Mapping)  # as the layout has made it
        mask = jnp.asarray(observed[MASK])
    return estimator.sums(family.feature_rows(observed), mask)


def proposal_of(
    estimator: Estimator, family: Family, observed: Observed, share: Number
) -> SetProposal:
    """The proposal of one padded data set."""
    return estimator.proposal(sums_of(estimator, family, observed), share)


class _Objective(AbstractObjective):
    """An objective whose loss is a mean over pairs."""

    family: eqx.AbstractVar[Family]
    optimiser: eqx.AbstractVar[optax.GradientTransformation]
    batch: eqx.AbstractVar[int]

    def init(self, kernel: Estimator, key: Key[Array, ""]) -> Paced:
        memory = self.optimiser.init(split_trainable(kernel)[0])
        assert isinstance(memory, Paced)
        return memory

    def update(
        self, kernel: Estimator, memory: Paced, data: Pairs | None, key: Key[Array, ""]
    ) -> tuple[Estimator, Paced, UpdateMetrics]:
        key_batch, key_loss = jr.split(key)
        points = self.points(kernel, self.rows(data, key_batch), key_loss)

        def loss(kernel: Estimator) -> Scalar:
            return self.loss(kernel, points)

        return gradient_step(self.optimiser, loss, split_trainable(kernel), memory)

    def held_out(self, kernel: Estimator, data: Pairs, key: Key[Array, ""]) -> Scalar:
        return self.loss(kernel, self.points(kernel, data, key))

    def rows(self, data: Pairs | None, key: Key[Array, ""]) -> Pairs:
        """A batch: of the simulator, or of what was drawn before."""
        if data is None:
            x, observed = self.family.pairs(key, self.batch)
            return Pairs(x[:, None], observed)
        pick = jr.randint(key, (self.batch,), 0, data.x.shape[0])
        return jax.tree.map(lambda leaf: leaf[pick], data)

    def points(self, kernel: Estimator, rows: Pairs, key: Key[Array, ""]) -> Pairs:
        """The rows with what the loss needs beside them."""
        del kernel, key
        return rows

    @abc.abstractmethod
    def loss(self, kernel: Estimator, rows: Pairs) -> Scalar:
        """The mean over data sets."""


class PairLikelihood(_Objective):
    """`-E log q(x | D)` over pairs."""

    family: Family = eqx.field(static=True)
    optimiser: optax.GradientTransformation = eqx.field(static=True)
    batch: int = eqx.field(static=True)

    def loss(self, kernel: Estimator, rows: Pairs) -> Scalar:
        def one(x: Array, observed: Observed) -> Scalar:
            q = proposal_of(kernel, self.family, observed, 0.0)
            return -jnp.mean(jax.vmap(q.log_prob)(x))

        return jnp.mean(jax.vmap(one)(rows.x, rows.data))


class FamilyLogVariance(_Objective):
    """A robust spread of `log p(x, D) - log q(x | D)` over points, the mean over data sets.

    `draws` points of each data set come from q with its cover, beside the rows' own. Points whose
    log ratio is more than `farthest` from the median are left out, so that no point rules a batch.
    """

    family: Family = eqx.field(static=True)
    optimiser: optax.GradientTransformation = eqx.field(static=True)
    batch: int = eqx.field(static=True)
    draws: int = eqx.field(static=True)
    cover: Number = eqx.field(static=True)
    farthest: Number = eqx.field(static=True)

    def points(self, kernel: Estimator, rows: Pairs, key: Key[Array, ""]) -> Pairs:
        key_own, key_pick = jr.split(key)
        most = rows.x.shape[1]
        if most > self.draws:  # as many of the rows' own points as of q's
            rows = rows._replace(x=rows.x[:, jr.randint(key_pick, (self.draws,), 0, most)])

        def one(x: Array, observed: Observed, key: Array) -> Array:
            q = proposal_of(kernel, self.family, observed, self.cover).law
            return jnp.concatenate([x, jax.vmap(q.sample)(jr.split(key, self.draws))])

        keys = jr.split(key_own, rows.x.shape[0])
        return rows._replace(x=jax.lax.stop_gradient(jax.vmap(one)(rows.x, rows.data, keys)))

    def loss(self, kernel: Estimator, rows: Pairs) -> Scalar:
        def one(x: Array, observed: Observed) -> Scalar:
            q = proposal_of(kernel, self.family, observed, 0.0)
            log_p = jax.lax.stop_gradient(jax.vmap(self.family.density(observed))(x))
            return robust_spread(log_p, jax.vmap(q.log_prob)(x), self.farthest)

        return jnp.mean(jax.vmap(one)(rows.x, rows.data))


def robust_spread(log_p: Float[Array, " n"], log_q: Float[Array, " n"], farthest: Number) -> Scalar:
    """Mean of `√(1 + r²) - 1` over deviations r of `log p - log q` from its median."""
    usable = jnp.isfinite(log_p) & jnp.isfinite(log_q)
    difference = jnp.where(usable, log_p, 0.0) - jnp.where(usable, log_q, 0.0)
    centre = jax.lax.stop_gradient(jnp.nanmedian(jnp.where(usable, difference, jnp.nan)))
    deviation = jnp.where(usable, difference - centre, 0.0)
    near = jnp.abs(deviation) < farthest
    deviation = jnp.where(near, deviation, 0.0)
    return jnp.sum(jnp.sqrt(1 + deviation**2) - 1) / jnp.maximum(jnp.sum(usable), 1)

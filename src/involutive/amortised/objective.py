"""What trains the network of a family.

**Likelihood.** Over pairs (x, D) of the simulator, `E[-log q(x | D)]` is least where q(· | D) is
the posterior of every D (up to what q can express). Pairs are drawn anew at every update where the
simulator is a JAX function, so that nothing is learned by heart.

**Log-variance.** For one D, `log p(x, D) - log q(x | D)` is constant in x exactly where q is the
posterior. The mean over data sets of a robust spread of it, at points of q and at draws of the
posterior (simulated truths, annealed particles), uses the density itself: it has no sampling noise
at its optimum, and of those draws only the support matters.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Key

from involutive.amortised.family import Family
from involutive.amortised.network import Estimator, Sums
from involutive.auxiliary.defensive import DefensiveMixture
from involutive.training.objective import (
    AbstractObjective,
    Figures,
    apply_gradient,
    split_trainable,
)

Scalar = Float[Array, ""]
FARTHEST = 50.0  # nats: deviations beyond it count as this much, so that no point rules a batch


class Pairs(NamedTuple):
    """Positions `(n, m, dim)` under the posteriors of n padded data sets, stacked."""

    x: Float[Array, "n m dim"]
    data: Any


class Paced(NamedTuple):
    """Adam's state, with how many updates there were and how many there will be."""

    inner: Any
    done: Array
    total: Array


def paced_adam(rate: float) -> optax.GradientTransformation:
    """Adam whose rate rises over a fiftieth of the updates and falls by a cosine to zero.

    The number of updates is part of the state, so that another number compiles nothing anew.
    """
    adam = optax.chain(optax.clip_by_global_norm(10.0), optax.scale_by_adam())

    def init(params: Any) -> Paced:
        return Paced(adam.init(params), jnp.zeros(()), jnp.ones(()))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Paced]:
        updates, inner = adam.update(updates, state.inner, params)
        share = jnp.minimum(state.done / state.total, 1.0)
        pace = rate * jnp.minimum(50 * share + 0.02, 0.5 * (1 + jnp.cos(jnp.pi * share)))
        updates = jax.tree.map(lambda u: -pace * u, updates)
        return updates, Paced(inner, state.done + 1, state.total)

    return optax.GradientTransformation(init, update)


def sums_of(estimator: Estimator, family: Family, observed: Any) -> Sums:
    """The network's summary of one padded data set."""
    mask = observed["mask"] if family.layout.exchangeable else None
    return estimator.sums(family.feature_rows(observed), mask)


def proposal_of(
    estimator: Estimator, family: Family, observed: Any, share: float
) -> DefensiveMixture:
    """The proposal of one padded data set, in white coordinates."""
    return estimator.mixture(sums_of(estimator, family, observed), share)


class _Objective(AbstractObjective):
    """An objective whose loss is a mean over pairs."""

    family: eqx.AbstractVar[Family]
    optimiser: eqx.AbstractVar[optax.GradientTransformation]
    batch: eqx.AbstractVar[int]

    def init(self, kernel: Any, key: Key[Array, ""]) -> Any:
        return self.optimiser.init(split_trainable(kernel)[0])

    def update(
        self, kernel: Any, memory: Any, data: Any, key: Key[Array, ""]
    ) -> tuple[Any, Any, Figures]:
        key_batch, key_loss = jr.split(key)
        params, static = split_trainable(kernel)
        rows = self.rows(data, key_batch)
        points = self.points(kernel, rows, key_loss)

        def loss(params: Any) -> Scalar:
            return self.loss(eqx.combine(params, static), points)

        value, gradient = jax.value_and_grad(loss)(params)
        params, memory, skipped = apply_gradient(self.optimiser, gradient, params, memory)
        return eqx.combine(params, static), memory, {"loss": value, "skipped": skipped}

    def held_out(self, kernel: Any, data: Any, key: Key[Array, ""]) -> Scalar:
        return self.loss(kernel, self.points(kernel, data, key))

    def rows(self, data: Pairs | None, key: Key[Array, ""]) -> Pairs:
        """A batch: of the simulator, or of what was drawn before."""
        if data is None:
            x, observed = self.family.pairs(key, self.batch)
            return Pairs(x[:, None], observed)
        pick = jr.randint(key, (self.batch,), 0, data.x.shape[0])
        return jax.tree.map(lambda leaf: leaf[pick], data)

    def points(self, kernel: Any, rows: Pairs, key: Key[Array, ""]) -> Pairs:
        """The rows with what the loss needs beside them."""
        del kernel, key
        return rows

    def loss(self, kernel: Any, rows: Pairs) -> Scalar:
        """The mean over data sets."""
        raise NotImplementedError


class PairLikelihood(_Objective):
    """`-E log q(x | D)` over pairs."""

    family: Family = eqx.field(static=True)
    optimiser: optax.GradientTransformation = eqx.field(static=True)
    batch: int = eqx.field(static=True)

    def loss(self, kernel: Any, rows: Pairs) -> Scalar:
        def one(x: Array, observed: Any) -> Scalar:
            law = proposal_of(kernel, self.family, observed, 0.0)
            return -jnp.mean(jax.vmap(lambda v: law.log_prob(kernel.white.transform(v)))(x))

        return jnp.mean(jax.vmap(one)(rows.x, rows.data))


class FamilyLogVariance(_Objective):
    """A robust spread of `log p(x, D) - log q(x | D)` over points, the mean over data sets.

    `draws` points of each data set come from q with its cover, beside the rows' own.
    """

    family: Family = eqx.field(static=True)
    optimiser: optax.GradientTransformation = eqx.field(static=True)
    batch: int = eqx.field(static=True)
    draws: int = eqx.field(static=True)

    def points(self, kernel: Any, rows: Pairs, key: Key[Array, ""]) -> Pairs:
        key_own, key_pick = jr.split(key)
        most = rows.x.shape[1]
        if most > self.draws:  # as many of the rows' own points as of q's
            rows = rows._replace(x=rows.x[:, jr.randint(key_pick, (self.draws,), 0, most)])

        def one(x: Array, observed: Any, key: Array) -> Array:
            law = proposal_of(kernel, self.family, observed, 0.1)
            drawn = jax.vmap(law.sample)(jr.split(key, self.draws))
            return jnp.concatenate([x, jax.vmap(kernel.white.inverse)(drawn)])

        keys = jr.split(key_own, rows.x.shape[0])
        return rows._replace(x=jax.lax.stop_gradient(jax.vmap(one)(rows.x, rows.data, keys)))

    def loss(self, kernel: Any, rows: Pairs) -> Scalar:
        def one(x: Array, observed: Any) -> Scalar:
            law, log_p = (
                proposal_of(kernel, self.family, observed, 0.0),
                self.family.density(observed),
            )
            log_q = jax.vmap(lambda v: law.log_prob(kernel.white.transform(v)))(x)
            return robust_spread(jax.lax.stop_gradient(jax.vmap(log_p)(x)), log_q)

        return jnp.mean(jax.vmap(one)(rows.x, rows.data))


def robust_spread(log_p: Float[Array, " n"], log_q: Float[Array, " n"]) -> Scalar:
    """Mean of `√(1 + r²) - 1` over deviations r of `log p - log q` from its median."""
    usable = jnp.isfinite(log_p) & jnp.isfinite(log_q)
    difference = jnp.where(usable, log_p, 0.0) - jnp.where(usable, log_q, 0.0)
    centre = jax.lax.stop_gradient(jnp.nanmedian(jnp.where(usable, difference, jnp.nan)))
    deviation = jnp.where(usable, difference - centre, 0.0)
    near = jnp.abs(deviation) < FARTHEST
    deviation = jnp.where(near, deviation, 0.0)
    return jnp.sum(jnp.sqrt(1 + deviation**2) - 1) / jnp.maximum(jnp.sum(usable), 1)

"""A proposal fitted to one data set by its own weights: EM on draws of q, weighted by p/q.

The network's mixture is near the posterior but does not equal it. Each of a few rounds draws from
q, computes importance weights, and takes one step of weighted EM on all draws so far. The previous
value of a component counts as `dim + 2` effective draws: where few draws are effective, little
changes. The network's own mixture is kept where the fit is worse on fresh draws. The draws of
chains and of the evidence are made afterwards, from a fixed proposal.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from involutive.amortised.settings import ManySettings
from involutive.auxiliary.defensive import DefensiveMixture, triangular_inverse

LogDensity = Callable[[Float[Array, " dim"]], Array]
Carry = tuple[DefensiveMixture, Array, Array]  # the mixture, draws so far, their log weights


def refined(
    law: DefensiveMixture,
    log_p: LogDensity,
    key: Key[Array, ""],
    settings: ManySettings,
) -> DefensiveMixture:
    """The mixture after all rounds; `log_p` is the log density in the mixture's coordinates."""
    rounds, draws = settings.rounds, settings.refining
    if rounds == 0:
        return law
    key_rounds, key_last = jr.split(key)
    bits = jr.key_data(jr.split(key_rounds, (rounds, draws)))
    x = jnp.zeros((rounds, draws, law.shape[0]), law.means.dtype)
    log_w = jnp.full((rounds, draws), -jnp.inf, law.means.dtype)

    def again(carry: Carry, round: tuple[Array, Array]) -> tuple[Carry, None]:
        law, x, log_w = carry
        number, bits = round
        new, weight = _weighed(law, log_p, jr.wrap_key_data(bits))
        x, log_w = x.at[number].set(new), log_w.at[number].set(weight)
        return (_step(law, x.reshape(-1, x.shape[2]), log_w.ravel(), settings), x, log_w), None

    (fitted, _, _), _ = jax.lax.scan(again, (law, x, log_w), (jnp.arange(rounds), bits))
    return _nearer(fitted, law, log_p, jr.split(key_last, draws))


def _weighed(
    law: DefensiveMixture, log_p: LogDensity, keys: Key[Array, " n"]
) -> tuple[Float[Array, "n dim"], Float[Array, " n"]]:
    """Draws of the mixture and their log weights."""
    x, log_q = jax.vmap(law.sample_and_log_prob)(keys)
    found = jax.vmap(log_p)(x)
    return x, jnp.where(found < jnp.inf, found - log_q, -jnp.inf)  # NaN compares as false


def _nearer(
    fitted: DefensiveMixture, before: DefensiveMixture, log_p: LogDensity, keys: Key[Array, " n"]
) -> DefensiveMixture:
    """The mixture with the smaller KL(p ‖ q), by weights of fresh draws of the fitted one.

    EM on few draws makes a good mixture worse. Draws of the fitted mixture are used because it has
    seen all weights: a mode that the mixture before gave too little mass speaks for the fit.
    """
    x, log_w = _weighed(fitted, log_p, keys)
    weights = jnp.exp(log_w - jnp.max(jnp.where(jnp.isfinite(log_w), log_w, -jnp.inf)))
    gain = jax.vmap(fitted.log_prob)(x) - jax.vmap(before.log_prob)(x)
    worse = jnp.sum(jnp.where(weights > 0, weights * gain, 0.0)) < 0  # NaN compares as false
    return jax.tree.map(lambda a, b: jnp.where(worse, b, a), fitted, before)


def _step(
    law: DefensiveMixture,
    x: Float[Array, "n dim"],
    log_w: Float[Array, " n"],
    settings: ManySettings,
) -> DefensiveMixture:
    """One step of weighted EM; weights are truncated at √n times their mean (Ionides 2008)."""
    count, dim = x.shape
    fine = jnp.isfinite(log_w)
    top = jnp.max(jnp.where(fine, log_w, -jnp.inf))
    w = jnp.where(fine, jnp.exp(log_w - jnp.where(jnp.isfinite(top), top, 0.0)), 0.0)
    w = jnp.minimum(w, count**0.5 * jnp.mean(w))
    total = jnp.sum(w)
    w = w / jnp.where(total > 0, total, 1.0)
    kept = (dim + 2) * jnp.where(total > 0, jnp.sum(w**2), 1.0)
    shares = w[:, None] * jax.nn.softmax(jax.vmap(law.responsibilities)(x), axis=1)
    mass = jnp.sum(shares, axis=0)
    means = (shares.T @ x + kept * law.means) / (mass + kept)[:, None]
    before = jnp.einsum("kij,klj->kil", law.roots, law.roots)
    apart = x[None] - means[:, None]
    spread = jnp.einsum("nk,kni,knj->kij", shares, apart, apart)
    shift = law.means - means
    spread = spread + kept * (before + shift[:, :, None] * shift[:, None, :])
    covariances = spread / (mass + kept)[:, None, None]
    least = settings.least_variance * jnp.einsum("kii->ki", before)
    roots = cholesky(covariances + jax.vmap(jnp.diag)(least))
    weights = mass + kept * jnp.exp(law.logits) + settings.least_weight
    return DefensiveMixture(jnp.log(weights), means, triangular_inverse(roots), law.share)


def cholesky(matrices: Float[Array, "... dim dim"]) -> Float[Array, "... dim dim"]:
    """Cholesky factors column by column, without LAPACK: see `triangular_inverse`."""
    dim = matrices.shape[-1]
    columns: list[Array] = []
    for j in range(dim):
        column = matrices[..., :, j]
        for other in columns:
            column = column - other * other[..., j, None]
        below = jnp.arange(dim) >= j
        root = jnp.sqrt(jnp.maximum(column[..., j, None], jnp.finfo(column.dtype).tiny))
        columns.append(jnp.where(jnp.broadcast_to(below, column.shape), column / root, 0.0))
    return jnp.stack(columns, axis=-1)

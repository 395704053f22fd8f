"""Objectives that need no critic.

**Likelihood.** For a function block `f = I_F^g` the proposal φ' = g⁻¹(π) does not depend on φ: it
has the density `q(φ) = Y(g(φ)) |det Dg(φ)|`, and the acceptance ratio is w(φ')/w(φ) with w = p/q.
Maximising `E_p log q` brings q to p. For `f = g⁻¹ ∘ Swap ∘ g`, g is trained so that (φ, π) ~ p ⊗ Y
becomes N(0, I), which is exchangeable in the halves that Swap exchanges: then the ratio is one.

**Log-variance.** The ratio is one everywhere exactly when `log w` is constant. `LogVariance`
minimises a robust spread of log w over draws of the target and of q. It uses the density itself
and not only where draws lie, so it has no sampling noise at the optimum and does not depend on the
mode weights of the draws: only their support matters. It is safe from the near-periodic orbits
that maximising acceptance leads to elsewhere, because here the proposal is independent of φ.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from flowjax.bijections import Invert
from flowjax.distributions import StandardNormal, Transformed
from jaxtyping import Array, Float, Key, PyTree

from involutive.core.errors import InputError
from involutive.involutions.blocks import Conjugate, FunctionBlock, PermutationBlock
from involutive.kernel.kernel import Kernel, evaluate
from involutive.training.objective import (
    AbstractObjective,
    Data,
    UpdateMetrics,
    gradient_step,
    minibatch,
    split_kernel,
)

Scalar = Float[Array, ""]


def proposal_log_density(kernel: Kernel, x: Float[Array, " dim"]) -> Scalar:
    """`log q(x) = log Y(g(x)) + log|det Dg(x)|` of a function block's proposal."""
    z, log_det = _function_block(kernel).g.transform_and_log_det(x)
    return kernel.auxiliary.log_prob(z) + log_det


def proposal_draw(kernel: Kernel, key: Key[Array, ""]) -> Float[Array, " dim"]:
    """One draw of a function block's proposal, `g⁻¹(π)` with π ~ Y."""
    return _function_block(kernel).g.inverse(kernel.auxiliary.sample(key))


def proposal_law(kernel: Kernel) -> Transformed:
    """The distribution q of a function block's proposal."""
    return Transformed(kernel.auxiliary, Invert(_function_block(kernel).g))


def log_weight(kernel: Kernel, x: Float[Array, " dim"]) -> Scalar:
    """`log w(x) = log p(x) - log q(x)`; the acceptance ratio is w(φ')/w(φ)."""
    return evaluate(kernel.target, x) - proposal_log_density(kernel, x)


class Likelihood(AbstractObjective):
    """Maximum likelihood for function blocks and for swap networks."""

    optimiser: optax.GradientTransformation = eqx.field(static=True)
    batch: int = eqx.field(static=True, default=512)

    def init(self, kernel: Kernel, key: Key[Array, ""]) -> PyTree:
        _log_likelihood(
            kernel, jnp.zeros(kernel.target.dim), key
        )  # refuses early what it cannot do
        return self.optimiser.init(split_kernel(kernel)[0])

    def update(
        self, kernel: Kernel, memory: PyTree, data: Data, key: Key[Array, ""]
    ) -> tuple[Kernel, PyTree, UpdateMetrics]:
        key_batch, key_loss = jr.split(key)
        rows = minibatch(data, key_batch, self.batch)

        def loss(kernel: Kernel) -> Scalar:
            return self.held_out(kernel, rows, key_loss)

        return gradient_step(self.optimiser, loss, split_kernel(kernel), memory)

    def held_out(self, kernel: Kernel, data: Data, key: Key[Array, ""]) -> Scalar:
        keys = jr.split(key, data.shape[0])
        return -jnp.mean(jax.vmap(lambda x, k: _log_likelihood(kernel, x, k))(data, keys))


class LogVariance(AbstractObjective):
    """Robust spread of `log w` over half target draws and half proposal draws.

    The loss of a deviation r from the median is `√(1 + r²) - 1`: a variance near zero, an absolute
    deviation far out, so that single points in the tails do not rule the gradient.
    """

    optimiser: optax.GradientTransformation = eqx.field(static=True)
    batch: int = eqx.field(static=True, default=512)

    def init(self, kernel: Kernel, key: Key[Array, ""]) -> PyTree:
        _function_block(kernel)
        return self.optimiser.init(split_kernel(kernel)[0])

    def update(
        self, kernel: Kernel, memory: PyTree, data: Data, key: Key[Array, ""]
    ) -> tuple[Kernel, PyTree, UpdateMetrics]:
        key_batch, key_loss = jr.split(key)
        rows = minibatch(data, key_batch, self.batch // 2)
        points = jnp.concatenate([rows, _detached_draws(kernel, key_loss, self.batch // 2)])

        def loss(kernel: Kernel) -> Scalar:
            return _spread(jax.vmap(lambda x: log_weight(kernel, x))(points))

        return gradient_step(self.optimiser, loss, split_kernel(kernel), memory)

    def held_out(self, kernel: Kernel, data: Data, key: Key[Array, ""]) -> Scalar:
        draws = _detached_draws(kernel, key, data.shape[0])
        points = jnp.concatenate([data, draws])
        return _spread(jax.vmap(lambda x: log_weight(kernel, x))(points))


def _detached_draws(kernel: Kernel, key: Key[Array, ""], count: int) -> Data:
    draws = jax.vmap(lambda k: proposal_draw(kernel, k))(jr.split(key, count))
    return jax.lax.stop_gradient(draws)


def _spread(log_weights: Float[Array, " n"]) -> Scalar:
    """Mean of `√(1 + r²) - 1` over finite deviations r from the median."""
    usable = jnp.isfinite(log_weights)
    centre = jax.lax.stop_gradient(jnp.nanmedian(jnp.where(usable, log_weights, jnp.nan)))
    deviation = jnp.where(usable, jnp.where(usable, log_weights, 0.0) - centre, 0.0)
    return jnp.sum(jnp.sqrt(1 + deviation**2) - 1) / jnp.maximum(jnp.sum(usable), 1)


def _log_likelihood(kernel: Kernel, x: Float[Array, " dim"], key: Key[Array, ""]) -> Scalar:
    f = kernel.involution
    if isinstance(f, FunctionBlock) and kernel.auxiliary.shape == (kernel.target.dim,):
        return proposal_log_density(kernel, x)
    if isinstance(f, Conjugate) and isinstance(f.inner, PermutationBlock):
        auxiliary = jax.lax.stop_gradient(kernel.auxiliary.sample(key))
        base, log_det = f.g.transform_and_log_det(jnp.concatenate([x, auxiliary]))
        return StandardNormal(base.shape).log_prob(base) + log_det
    raise InputError(
        "likelihood training needs a FunctionBlock with as many auxiliary as state coordinates, or "
        f"a Conjugate around a swap, got {type(f).__name__}; use an adversarial objective instead"
    )


def _function_block(kernel: Kernel) -> FunctionBlock:
    f = kernel.involution
    if isinstance(f, FunctionBlock) and kernel.auxiliary.shape == (kernel.target.dim,):
        return f
    raise InputError(
        "this needs a kernel whose involution is a FunctionBlock with as many auxiliary as state "
        f"coordinates, got {type(f).__name__} with {kernel.auxiliary.shape[0]} auxiliary ones"
    )

"""Tails for a proposal: what keeps chains from being held where it is lighter than the target."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Key

from involutive.auxiliary import GaussianMixture
from involutive.compiled import jit_once
from involutive.involutions import FunctionBlock
from involutive.kernel import Kernel
from involutive.training.figures import independence_figures
from involutive.training.recipe import Trained


def _latent_spread(kernel: Kernel, key: Array) -> tuple[Array, Array]:
    """Mean and covariance, in the auxiliary space, of where X and the proposal lie."""
    key_x, key_y = jr.split(key)
    block = kernel.involution
    assert isinstance(block, FunctionBlock) and kernel.initial is not None
    far = jax.vmap(block.g.transform)(kernel.initial.sample(key_x, (1000,)))
    near = kernel.auxiliary.sample(key_y, (1000,))
    points = jnp.concatenate([far, near])
    points = jnp.where(jnp.isfinite(points), points, 0.0)
    centre = jnp.median(points, axis=0)[None, :]
    spread = jnp.median(jnp.abs(points - centre), axis=0)[None, :]
    points = centre + jnp.clip(points - centre, -10 * spread, 10 * spread)
    dim = points.shape[1]
    covariance = 2 * jnp.cov(points.T).reshape(dim, dim) + 1e-6 * jnp.eye(dim)
    return jnp.mean(points, axis=0), covariance


def covered(kernel: Kernel, key: Key[Array, ""], tails: float | None = None) -> Kernel:
    """Add to the auxiliary law what keeps chains from being stuck where q is too light.

    Far out, a light-tailed q falls faster than p; there w = p/q is large and a chain would hardly
    leave. One wide component covers X, so that the first proposals from there are accepted at once;
    it costs 0.3 % of the proposals. A share `tails` goes to the mixture itself with three times its
    covariances.
    """
    law = kernel.auxiliary
    if not isinstance(law, GaussianMixture):
        return kernel
    share = None if tails is None else jnp.asarray(tails)  # one compilation serves every share
    return eqx.tree_at(lambda k: k.auxiliary, kernel, _covered_law(kernel, law, key, share))


@jit_once
def _covered_law(
    kernel: Kernel, law: GaussianMixture, key: Key[Array, ""], tails: Array | None
) -> GaussianMixture:
    if tails is not None:
        law = law.joined(law.inflated(3.0), tails)
    if kernel.initial is not None:
        mean, covariance = _latent_spread(kernel, key)
        law = law.joined(GaussianMixture(jnp.ones(1), mean[None], covariance[None]), 0.003)
    return law


def best_covered(trained: Trained, draws: Array, key: Key[Array, ""]) -> Trained:
    """Choose how much of the proposals goes to the tails by effective draws per draw.

    Judged on all draws at once: states so rare that one in thousands meets them can hold a chain
    for thousands of steps.
    """
    best: Trained | None = None
    for tails in (0.0, 0.02, 0.06, 0.15):
        # the same random numbers for every share, so that only the share differs
        kernel = covered(trained.kernel, jr.fold_in(key, 0), tails)
        figures = independence_figures(kernel, draws, jr.fold_in(key, 1), most=20_000)
        if best is None or figures["ess"] > best.ess:
            best = replace(trained, kernel=kernel, **figures)
    assert best is not None
    return pruned(best)


def pruned(trained: Trained) -> Trained:
    """The same without components of no weight."""
    law = trained.kernel.auxiliary
    if not isinstance(law, GaussianMixture):
        return trained
    return replace(trained, kernel=eqx.tree_at(lambda k: k.auxiliary, trained.kernel, law.pruned()))

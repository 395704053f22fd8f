"""Tails for a proposal: what keeps chains from being held where it is lighter than the target."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive.auxiliary import GaussianMixture
from involutive.compiled import jit_once
from involutive.involutions import FunctionBlock
from involutive.kernel import Kernel
from involutive.training.figures import independence_figures
from involutive.training.mixture_fit import Components
from involutive.training.recipe import Trained


@jit_once
def latent_points(kernel: Kernel, key: Array) -> Array:
    key_x, key_y = jr.split(key)
    block = kernel.involution
    assert isinstance(block, FunctionBlock) and kernel.initial is not None
    far = jax.vmap(block.g.transform)(kernel.initial.sample(key_x, (1000,)))
    return jnp.concatenate([far, kernel.auxiliary.sample(key_y, (1000,))])


def _around(kernel: Kernel, law: GaussianMixture, key: Key[Array, ""]) -> GaussianMixture:
    """A normal, in the auxiliary space, that covers where X and the proposal lie."""
    points = np.asarray(latent_points(kernel, key))
    points = np.where(np.isfinite(points), points, 0.0)
    centre = np.median(points, axis=0)
    spread = np.median(np.abs(points - centre), axis=0)
    points = centre + np.clip(points - centre, -10 * spread, 10 * spread)
    dim = points.shape[1]
    covariance = 2 * np.cov(points.T).reshape(dim, dim) + 1e-6 * np.eye(dim)
    parts = (np.zeros(1), points.mean(axis=0)[None], covariance[None])
    return Components(*(jnp.asarray(part, law.means.dtype) for part in parts)).law()


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
    wide = None if kernel.initial is None else _around(kernel, law, key)
    return with_cover(kernel, wide, tails)


def with_cover(kernel: Kernel, wide: GaussianMixture | None, tails: float | None = None) -> Kernel:
    """The kernel with a wide component and a share of tails in its auxiliary law."""
    share = None if tails is None else jnp.asarray(tails)  # one compilation serves every share
    return eqx.tree_at(lambda k: k.auxiliary, kernel, _with_tails(kernel.auxiliary, share, wide))


@jit_once
def _with_tails(
    law: GaussianMixture, tails: Array | None, wide: GaussianMixture | None
) -> GaussianMixture:
    if tails is not None:
        law = law.joined(law.inflated(3.0), tails)
    return law if wide is None else law.joined(wide, 0.003)


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

"""Tails for a proposal: what keeps chains from being held where it is lighter than the target."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive.auxiliary import GaussianMixture
from involutive.compiled import jit_once, on_device
from involutive.involutions import FunctionBlock
from involutive.kernel import Kernel
from involutive.training.figures import mixed_figures, weights_of
from involutive.training.mixture_fit import Components, law_of
from involutive.training.recipe import Trained

WIDE = 0.003  # share of the proposals that cover X
STRETCH = 3.0  # times the covariances, in the tails


@jit_once
def latent_points(kernel: Kernel, key: Array) -> Array:
    key_x, key_y = jr.split(key)
    block = kernel.involution
    assert isinstance(block, FunctionBlock) and kernel.initial is not None
    far = jax.vmap(block.g.transform)(kernel.initial.sample(key_x, (1000,)))
    return jnp.concatenate([far, kernel.auxiliary.sample(key_y, (1000,))])


def _around(kernel: Kernel, law: GaussianMixture, key: Key[Array, ""]) -> Components:
    """A normal, in the auxiliary space, that covers where X and the proposal lie."""
    points = np.asarray(latent_points(kernel, key))
    points = np.where(np.isfinite(points), points, 0.0)
    centre = np.median(points, axis=0)
    spread = np.median(np.abs(points - centre), axis=0)
    points = centre + np.clip(points - centre, -10 * spread, 10 * spread)
    dim = points.shape[1]
    covariance = 2 * np.cov(points.T).reshape(dim, dim) + 1e-6 * np.eye(dim)
    parts = (np.zeros(1), points.mean(axis=0)[None], covariance[None])
    return Components(*(on_device(part.astype(law.means.dtype)) for part in parts))


def covered(kernel: Kernel, key: Key[Array, ""]) -> Kernel:
    """Add to the auxiliary law what keeps chains from being stuck where q is too light.

    Far out, a light-tailed q falls faster than p; there w = p/q is large and a chain would hardly
    leave. One wide component covers X, so that the first proposals from there are accepted at once;
    it costs 0.3 % of the proposals.
    """
    law = kernel.auxiliary
    if not isinstance(law, GaussianMixture) or kernel.initial is None:
        return kernel
    return with_cover(kernel, _around(kernel, law, key))


def with_cover(kernel: Kernel, wide: Components, tails: float = 0.0) -> Kernel:
    """The kernel with a wide component in its auxiliary law, and the law itself stretched.

    A share `tails` goes to the mixture with `STRETCH` times its covariances.
    """
    # an array: one compilation serves every share
    share = on_device(np.asarray(tails, wide.means.dtype)) if tails else None
    return eqx.tree_at(lambda k: k.auxiliary, kernel, with_tails(kernel.auxiliary, wide, share))


@jit_once
def with_tails(law: GaussianMixture, wide: Components, tails: Array | None) -> GaussianMixture:
    if tails is not None:
        law = law.joined(law.inflated(STRETCH), tails)
    return law.joined(law_of(wide), WIDE)


@jit_once
def _alone(law: GaussianMixture, wide: Components) -> tuple[GaussianMixture, GaussianMixture]:
    """The stretched mixture and the wide component, of as many components as the law."""
    count = law.means.shape[0]
    copies = Components(*(jnp.repeat(part, count, axis=0) for part in wide))
    return law.inflated(STRETCH), law_of(copies._replace(log_weights=jnp.zeros(count)))


def best_covered(trained: Trained, draws: Array, key: Key[Array, ""]) -> Trained:
    """Choose how much of the proposals goes to the tails by effective draws per draw.

    Judged on all draws at once: states so rare that one in thousands meets them can hold a chain
    for thousands of steps.
    """
    kernel, law = trained.kernel, trained.kernel.auxiliary
    if not isinstance(law, GaussianMixture) or kernel.initial is None:
        return trained
    wide = _around(kernel, law, jr.fold_in(key, 0))
    laws = (law, *_alone(law, wide))
    parts = [eqx.tree_at(lambda k: k.auxiliary, kernel, part) for part in laws]
    weights = weights_of(parts, np.asarray(draws)[:20_000], jr.fold_in(key, 1))
    found = {tails: mixed_figures(weights, _shares(tails)) for tails in (0.0, 0.02, 0.06, 0.15)}
    tails = max(found, key=lambda share: found[share]["ess"])
    return pruned(replace(trained, kernel=with_cover(kernel, wide, tails), **found[tails]))


def _shares(tails: float) -> np.ndarray:
    return np.array([(1 - WIDE) * (1 - tails), (1 - WIDE) * tails, WIDE])


def pruned(trained: Trained) -> Trained:
    """The same without components of no weight."""
    law = trained.kernel.auxiliary
    if not isinstance(law, GaussianMixture):
        return trained
    return replace(trained, kernel=eqx.tree_at(lambda k: k.auxiliary, trained.kernel, law.pruned()))

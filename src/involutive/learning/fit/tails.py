"""Heavier tails for a proposal, so that chains cannot get stuck where q ≪ p."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key

from involutive._xla.batched import BatchedDistribution, in_blocks
from involutive._xla.compilation import jit_once
from involutive.auxiliary import GaussianMixture
from involutive.auxiliary.covered import Covered
from involutive.bijections.whitening import Whitening
from involutive.core.keys import generator, split
from involutive.involutions.blocks import FunctionBlock
from involutive.kernel.kernel import Kernel, evaluate
from involutive.learning.fit.mixture import Components, components_of, joined
from involutive.learning.fit.weighted import normal_around
from involutive.learning.judge.independence import chain_metrics
from involutive.learning.settings import LearnSettings
from involutive.learning.stages import Proposal
from involutive.training.likelihood import proposal_law


@jit_once
def _pulled(kernel: Kernel, points: Array) -> tuple[Array, Array]:
    """`g(x)` and `log p(x) - log|det Dg(x)|` of every row x."""
    assert isinstance(kernel.involution, FunctionBlock)
    z, log_det = jax.vmap(kernel.involution.g.transform_and_log_det)(points)
    return z, jax.vmap(lambda x: evaluate(kernel.target, x))(points) - log_det


@jit_once
def _pushed(kernel: Kernel, latent: Array) -> tuple[Array, Array]:
    """`_pulled` at the rows x that g maps to the rows `latent`."""
    assert isinstance(kernel.involution, FunctionBlock)
    return _pulled.__wrapped__(kernel, jax.vmap(kernel.involution.g.inverse)(latent))


def _by_blocks(
    function: Callable[[Kernel, Array], tuple[Array, Array]],
    kernel: Kernel,
    rows: np.ndarray,
    settings: LearnSettings,
) -> tuple[np.ndarray, np.ndarray]:
    rows = rows.astype(np.asarray(kernel.auxiliary.means).dtype)  # type: ignore[attr-defined]
    latent, values = in_blocks(partial(function, kernel), rows, settings.judge.scored)
    return latent.astype(np.float64), values.astype(np.float64)


def _around(
    kernel: Kernel, mixture: Components, key: Key[Array, ""], settings: LearnSettings
) -> Components:
    """A normal in the auxiliary space that covers X and the proposal."""
    assert kernel.initial is not None
    key_x, key_y = split(key, 2)
    count, g = settings.fit.far_draws, kernel.involution.g  # type: ignore[attr-defined]
    far = BatchedDistribution(kernel.initial).draws(key_x, count)
    if isinstance(g, Whitening):
        latent = (far - np.asarray(g.mean.unwrap())) @ np.asarray(g.inverse_factor.unwrap()).T
    else:
        latent = _by_blocks(_pulled, kernel, far, settings)[0]
    own = mixture.draws(count, generator(key_y))
    return normal_around(settings.fit, latent, own)


def proposal_draws(kernel: Kernel, count: int, key: Key[Array, ""]) -> np.ndarray:
    """Draws of an independence proposal; of a whitened mixture on the host, without compilation."""
    g = getattr(kernel.involution, "g", None)
    if not isinstance(g, Whitening) or not isinstance(kernel.auxiliary, GaussianMixture):
        return BatchedDistribution(proposal_law(kernel)).draws(key, count)
    latent = components_of(kernel.auxiliary).draws(count, generator(key))
    mean, factor = (np.asarray(part.unwrap(), np.float64) for part in (g.mean, g.factor))
    return (mean + latent @ factor.T).astype(g.mean.unwrap().dtype)


def with_wide_component(kernel: Kernel, key: Key[Array, ""], settings: LearnSettings) -> Kernel:
    """Add one wide component that covers X to the auxiliary distribution.

    Far out, a light-tailed q falls faster than p; there w = p/q is large and a chain would hardly
    ever move. With the wide component a chain that starts at a draw of X moves at once.
    """
    if kernel.initial is None:
        return kernel
    if not isinstance(kernel.auxiliary, GaussianMixture):
        return _cover_structured(kernel, key, settings)
    mixture = components_of(kernel.auxiliary)
    wide = _around(kernel, mixture, key, settings)
    return _with_mixture(kernel, _widened(mixture, wide, 0.0, settings))


def _cover_structured(kernel: Kernel, key: Key[Array, ""], settings: LearnSettings) -> Kernel:
    """Add a wide normal to a structured proposal: a product, symmetry, hierarchy or Student-t."""
    assert kernel.initial is not None
    laws = zip((kernel.initial, kernel.auxiliary), split(key, 2), strict=True)
    count = settings.fit.far_draws
    points = [BatchedDistribution(law).draws(each, count) for law, each in laws]
    wide = normal_around(settings.fit, *points).distribution()
    over = Covered(kernel.auxiliary, wide, settings.wide_share)
    return eqx.tree_at(lambda k: k.auxiliary, kernel, over)


def _widened(
    mixture: Components, wide: Components, tails: float, settings: LearnSettings
) -> Components:
    """The mixture with a share `tails` of its weight stretched, and with the wide component."""
    if not tails:
        return joined([mixture, wide], (1 - settings.wide_share, settings.wide_share))
    stretched = mixture.inflated(settings.tail_stretch)
    return joined([mixture, stretched, wide], _shares(tails, settings))


def _shares(tails: float, settings: LearnSettings) -> np.ndarray:
    wide = settings.wide_share
    return np.array([(1 - wide) * (1 - tails), (1 - wide) * tails, wide])


def _with_mixture(kernel: Kernel, mixture: Components) -> Kernel:
    return eqx.tree_at(lambda k: k.auxiliary, kernel, mixture.distribution())


def with_best_tails(
    proposal: Proposal, draws: np.ndarray, key: Key[Array, ""], settings: LearnSettings
) -> Proposal:
    """Choose the share of stretched components by effective draws per draw.

    All draws judge each share: a chain can stay for thousands of steps in a state so rare that only
    one draw in thousands shows it.
    """
    kernel = proposal.kernel
    if kernel.initial is None:
        return proposal
    if not isinstance(kernel.auxiliary, GaussianMixture):
        return replace(proposal, kernel=_cover_structured(kernel, key, settings))
    key_wide, key_draws = split(key, 2)
    mixture = components_of(kernel.auxiliary)
    wide = _around(kernel, mixture, key_wide, settings)
    parts, rng = (mixture, mixture.inflated(settings.tail_stretch), wide), generator(key_draws)
    count = settings.judge.scored
    own = np.concatenate([part.draws(count, rng) for part in parts])
    at_target = _by_blocks(_pulled, kernel, draws[: settings.training_draws], settings)
    at_own = _by_blocks(_pushed, kernel, own, settings)

    def metrics(tails: float) -> dict[str, float]:
        x, y = (
            values - _widened(mixture, wide, tails, settings).log_density(latent)
            for latent, values in (at_target, at_own)
        )
        with np.errstate(divide="ignore"):
            log_weights = np.log(np.repeat(_shares(tails, settings), count))
        x = x[np.isfinite(x)]
        return chain_metrics(x, np.zeros(len(x)), y, log_weights)

    found = {tails: metrics(tails) for tails in settings.tails}
    tails = max(found, key=lambda share: found[share]["ess"])
    covering = _with_mixture(kernel, _widened(mixture, wide, tails, settings))
    return pruned(replace(proposal, kernel=covering, **found[tails]))


def pruned(proposal: Proposal) -> Proposal:
    """The proposal without components of negligible weight."""
    kernel = proposal.kernel
    if not isinstance(kernel.auxiliary, GaussianMixture):
        return proposal
    auxiliary = kernel.auxiliary.pruned()
    return replace(proposal, kernel=eqx.tree_at(lambda k: k.auxiliary, kernel, auxiliary))

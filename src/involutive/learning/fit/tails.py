"""Tails for a proposal: what keeps chains from being held where it is lighter than the target."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive._xla.batched import LawRows
from involutive._xla.compilation import jit_once, on_device
from involutive.auxiliary import GaussianMixture
from involutive.bijections.whitening import Whitening
from involutive.core.keys import generator, split
from involutive.involutions.blocks import FunctionBlock
from involutive.kernel.kernel import Kernel, evaluate
from involutive.learning.fit.em import Components, components_of, joined
from involutive.learning.fit.importance import WIDE, normal_around
from involutive.learning.fit.recipe import Trained
from involutive.learning.judge.independence import ROWS, chain_figures

STRETCH = 3.0  # times the covariances, in the tails
TAILS = (0.0, 0.02, 0.06, 0.15)  # shares of the proposals that go there, to choose from


@jit_once
def _pulled(kernel: Kernel, points: Array) -> tuple[Array, Array]:
    """`g(x)` and `log p(x) - log|det Dg(x)|` of every row x."""
    assert isinstance(kernel.involution, FunctionBlock)
    z, log_det = jax.vmap(kernel.involution.g.transform_and_log_det)(points)
    return z, jax.vmap(lambda x: evaluate(kernel.target, x))(points) - log_det


@jit_once
def _pushed(kernel: Kernel, latent: Array) -> tuple[Array, Array]:
    """The same for the rows x that g sends to the rows `latent`."""
    assert isinstance(kernel.involution, FunctionBlock)
    return _pulled.__wrapped__(kernel, jax.vmap(kernel.involution.g.inverse)(latent))


def _by_blocks(function: object, kernel: Kernel, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    count = len(rows)
    rows = rows.astype(np.asarray(kernel.auxiliary.means).dtype)  # type: ignore[attr-defined]
    padded = rows[np.resize(np.arange(count), -(-count // ROWS) * ROWS)]
    parts = [function(kernel, on_device(b)) for b in padded.reshape(-1, ROWS, rows.shape[1])]  # type: ignore[operator]
    latent, values = (
        np.concatenate([np.asarray(leaf, np.float64) for leaf in leaves])[:count]
        for leaves in zip(*parts, strict=True)
    )
    return latent, values


def _around(kernel: Kernel, mixture: Components, key: Key[Array, ""]) -> Components:
    """A normal, in the auxiliary space, that covers where X and the proposal lie."""
    assert kernel.initial is not None
    key_x, key_y = split(key, 2)
    far, g = LawRows(kernel.initial).draws(key_x, ROWS // 2), kernel.involution.g  # type: ignore[attr-defined]
    if isinstance(g, Whitening):
        latent = (far - np.asarray(g.mean.unwrap())) @ np.asarray(g.inverse_factor.unwrap()).T
    else:
        latent = _by_blocks(_pulled, kernel, far)[0]
    return normal_around(np.concatenate([latent, mixture.draws(ROWS // 2, generator(key_y))]))


def mixture_draws(kernel: Kernel, count: int, key: Key[Array, ""]) -> np.ndarray:
    """Draws of a proposal whose law is a mixture of whitened coordinates."""
    g = kernel.involution.g  # type: ignore[attr-defined]
    latent = components_of(kernel.auxiliary).draws(count, generator(key))  # type: ignore[arg-type]
    mean, factor = (np.asarray(part.unwrap(), np.float64) for part in (g.mean, g.factor))
    return (mean + latent @ factor.T).astype(g.mean.unwrap().dtype)


def covered(kernel: Kernel, key: Key[Array, ""]) -> Kernel:
    """Add to the auxiliary law what keeps chains from being stuck where q is too light.

    Far out, a light-tailed q falls faster than p; there w = p/q is large and a chain would hardly
    leave. One wide component covers X, so that the first proposals from there are accepted at once;
    it costs 0.3 % of the proposals.
    """
    law = kernel.auxiliary
    if not isinstance(law, GaussianMixture) or kernel.initial is None:
        return kernel
    mixture = components_of(law)
    return _with_law(kernel, _joined(mixture, _around(kernel, mixture, key), 0.0))


def _joined(mixture: Components, wide: Components, tails: float) -> Components:
    """The mixture with a share `tails` of it stretched, and with the wide component."""
    if not tails:
        return joined([mixture, wide], (1 - WIDE, WIDE))
    return joined([mixture, mixture.inflated(STRETCH), wide], _shares(tails))


def _shares(tails: float) -> np.ndarray:
    return np.array([(1 - WIDE) * (1 - tails), (1 - WIDE) * tails, WIDE])


def _with_law(kernel: Kernel, mixture: Components) -> Kernel:
    return eqx.tree_at(lambda k: k.auxiliary, kernel, mixture.law())


def best_covered(trained: Trained, draws: Array, key: Key[Array, ""]) -> Trained:
    """Choose how much of the proposals goes to the tails by effective draws per draw.

    Judged on all draws at once: states so rare that one in thousands meets them can hold a chain
    for thousands of steps.
    """
    kernel, law = trained.kernel, trained.kernel.auxiliary
    if not isinstance(law, GaussianMixture) or kernel.initial is None:
        return trained
    mixture = components_of(law)
    wide = _around(kernel, mixture, jr.fold_in(key, 0))
    parts, rng = (mixture, mixture.inflated(STRETCH), wide), generator(jr.fold_in(key, 1))
    at_target = _by_blocks(_pulled, kernel, np.asarray(draws)[:20_000])
    at_own = _by_blocks(_pushed, kernel, np.concatenate([p.draws(ROWS, rng) for p in parts]))

    def figures(tails: float) -> dict[str, float]:
        x, y = (
            values - _joined(mixture, wide, tails).log_density(latent)
            for latent, values in (at_target, at_own)
        )
        with np.errstate(divide="ignore"):
            chance = np.log(np.repeat(_shares(tails), ROWS))
        x = x[np.isfinite(x)]
        return chain_figures(x, np.zeros(len(x)), y, chance)

    found = {tails: figures(tails) for tails in TAILS}
    tails = max(found, key=lambda share: found[share]["ess"])
    covering = _with_law(kernel, _joined(mixture, wide, tails))
    return pruned(replace(trained, kernel=covering, **found[tails]))


def pruned(trained: Trained) -> Trained:
    """The same without components of no weight."""
    law = trained.kernel.auxiliary
    if not isinstance(law, GaussianMixture):
        return trained
    return replace(trained, kernel=eqx.tree_at(lambda k: k.auxiliary, trained.kernel, law.pruned()))

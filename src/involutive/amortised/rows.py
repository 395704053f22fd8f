"""What a network is trained on and judged by: simulated pairs, or annealed particles."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.compilation import jit_once, on_device
from involutive.amortised.anneal import annealed
from involutive.amortised.family import Family
from involutive.amortised.layout import Observed
from involutive.amortised.network import Estimator
from involutive.amortised.objective import Pairs, proposal_of
from involutive.amortised.settings import AmortiseSettings
from involutive.auxiliary.defensive import SHARE
from involutive.bijections.whitening import whitening
from involutive.core.errors import check
from involutive.core.keys import generator, split
from involutive.training.fit import Rows


def simulated(family: Family, settings: AmortiseSettings, key: Key[Array, ""]) -> Rows:
    """Pairs of the simulator: those that are held out, and those to train on if not drawn anew."""
    key_held, key_seen = split(key, 2)
    draw = drawn_pairs if family.traced else lambda family, key, count: family.pairs(key, count)
    count = settings.seen if family.traced else settings.pool
    sizes = ((key_seen, count), (key_held, settings.held))
    seen, held = (_pairs(draw(family, k, n)) for k, n in sizes)
    finite = np.asarray(np.isfinite(np.asarray(seen.x)).all(axis=(1, 2)))
    for leaf in jax.tree.leaves(seen.data):
        finite &= np.isfinite(np.asarray(leaf)).reshape(len(finite), -1).all(axis=1)
    check(
        finite.all(),
        f"simulate must return finite numbers, got NaN or infinity in {int((~finite).sum())} of "
        f"{len(finite)} draws",
    )
    values = np.asarray(_densities(family, held))
    check(
        np.isfinite(values).mean() > 0.5,
        "log_density must be finite at what simulate draws, but it is not at "
        f"{int((~np.isfinite(values)).sum())} of {values.size} pairs; do both describe one model?",
    )
    return Rows(seen, held)


def particles(
    family: Family, settings: AmortiseSettings, law: AbstractDistribution, key: Key[Array, ""]
) -> Rows:
    """Annealed particles of the family's data sets, a share of them held out."""
    count = len(family.data)
    check(
        count >= settings.least_sets,
        f"amortise needs simulate=, or at least {settings.least_sets} data sets, got {count}; use "
        "inv.learn for each of so few",
    )
    key_order, key_run = split(key, 2)
    stacked = family.layout.stacked(family.data)
    found = [
        _annealed(family, law, part, jr.fold_in(key_run, number), settings)
        for number, part in enumerate(groups(stacked, count, settings.annealed_sets))
    ]
    x = np.concatenate([np.asarray(part) for part in found])[:count]
    fine = np.isfinite(x).all(axis=(1, 2)) & (np.ptp(x, axis=1) > 0).any(axis=1)
    check(
        fine.sum() >= settings.least_sets,
        f"log_density must be finite somewhere under X, but particles reached the posteriors of "
        f"{int(fine.sum())} of {count} data sets; pass initial= that covers them",
    )
    order = generator(key_order).permutation(np.flatnonzero(fine))
    cut = max(int(settings.held_out * len(order)), 1)

    def take(rows: np.ndarray) -> Pairs:
        data = jax.tree.map(lambda leaf: on_device(leaf[rows]), stacked)
        return Pairs(on_device(x[rows]), data)

    return Rows(take(order[cut:]), take(order[:cut]))


def groups(stacked: Observed, count: int, size: int) -> Iterator[Observed]:
    """Stacked data sets in groups of one size, the last filled up with the first ones."""
    for begin in range(0, count, size):
        rows = np.arange(begin, begin + size) % count if count >= size else np.arange(size) % count
        yield jax.tree.map(lambda leaf, rows=rows: on_device(leaf[rows]), stacked)


def efficiency(
    network: Estimator,
    family: Family,
    data: Observed,
    key: Key[Array, ""],
    settings: AmortiseSettings,
) -> np.ndarray:
    """The effective share of importance weights, of each of some stacked data sets."""
    some = jax.tree.map(lambda leaf: leaf[: settings.measured], data)
    return np.asarray(_efficiencies(network, family, some, key, settings.weighed))


@jit_once
def _efficiencies(
    network: Estimator, family: Family, data: Observed, key: Array, draws: int
) -> Array:
    def one(observed: Observed, key: Array) -> Array:
        q, log_p = proposal_of(network, family, observed, SHARE).law, family.density(observed)
        x, log_q = jax.vmap(q.sample_and_log_prob)(jr.split(key, draws))
        log_w = jax.vmap(log_p)(x) - log_q
        w = jnp.exp(jnp.where(jnp.isfinite(log_w), log_w, -jnp.inf) - jnp.nanmax(log_w))
        return jnp.nan_to_num(jnp.sum(w) ** 2 / (draws * jnp.sum(w**2)))

    count = jax.tree.leaves(data)[0].shape[0]
    return jax.vmap(one)(data, jr.split(key, count))


@jit_once
def drawn_pairs(family: Family, key: Array, count: int) -> tuple[Array, Observed]:
    """Draws of a simulator that is a JAX function, compiled."""
    return family.pairs(key, count)


@jit_once
def _densities(family: Family, rows: Pairs) -> Array:
    return jax.vmap(lambda x, d: family.density(d)(x[0]))(rows.x, rows.data)


@jit_once
def _annealed(
    family: Family,
    law: AbstractDistribution,
    data: Observed,
    key: Array,
    settings: AmortiseSettings,
) -> Array:
    count = jax.tree.leaves(data)[0].shape[0]
    most = settings.particles
    kept = np.linspace(0, most - 1, min(settings.kept, most)).astype(int)

    def one(observed: Observed, key: Array) -> Array:
        return annealed(family, law, observed, key, settings).x[kept]

    return jax.vmap(one)(data, jr.split(key, count))


def _pairs(drawn: tuple[Array, Observed]) -> Pairs:
    return Pairs(drawn[0][:, None], drawn[1])


def network_for(
    family: Family, rows: Rows, settings: AmortiseSettings, key: Key[Array, ""]
) -> Estimator:
    """A network whose scales are those of what training will see."""
    seen = rows.train
    features = np.asarray(_features(family, seen.data), np.float64)
    if family.layout.exchangeable:
        features = features[np.asarray(seen.data["mask"])]
    x = np.asarray(seen.x)
    white = whitening(x.reshape(-1, x.shape[2]))
    return Estimator(features, family.layout.exchangeable, white, settings, key)


@jit_once
def _features(family: Family, data: Observed) -> Array:
    return jax.vmap(family.feature_rows)(data)

"""What a network is trained on and judged by: simulated pairs, or annealed particles."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.compilation import jit_once, on_device
from involutive.amortised.anneal import annealed
from involutive.amortised.family import Family
from involutive.amortised.network import Estimator
from involutive.amortised.objective import Pairs, sums_of
from involutive.amortised.settings import AmortiseSettings
from involutive.bijections.whitening import whitening
from involutive.core.errors import check
from involutive.core.keys import generator, split
from involutive.training.fit import Rows

HELD_OUT = 0.15  # share of the data sets that training never sees
HELD = 512  # simulated pairs that training is judged by
SEEN = 4096  # simulated pairs that scales are taken from
MEASURED, WEIGHED = 256, 512  # held-out data sets, and draws of each, that efficiency is taken from
LEAST = 8  # data sets without a simulator, below which there is nothing to share
GROUP = 64  # data sets annealed in one call
KEPT = 64  # annealed particles kept of each data set


def simulated(family: Family, pool: int, key: Key[Array, ""]) -> Rows:
    """Pairs of the simulator: those that are held out, and those to train on if not drawn anew."""
    key_held, key_seen = split(key, 2)
    draw = drawn_pairs if family.traced else lambda family, key, count: family.pairs(key, count)
    count = SEEN if family.traced else pool
    seen, held = (_pairs(draw(family, k, n)) for k, n in ((key_seen, count), (key_held, HELD)))
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
        count >= LEAST,
        f"amortise needs simulate=, or at least {LEAST} data sets, got {count}; use inv.learn for "
        "each of so few",
    )
    key_order, key_run = split(key, 2)
    stacked = family.layout.stacked(family.data)
    found = [
        _annealed(family, law, part, jr.fold_in(key_run, number), settings)
        for number, part in enumerate(groups(stacked, count, GROUP))
    ]
    x = np.concatenate([np.asarray(part) for part in found])[:count]
    fine = np.isfinite(x).all(axis=(1, 2)) & (np.ptp(x, axis=1) > 0).any(axis=1)
    check(
        fine.sum() >= LEAST,
        f"log_density must be finite somewhere under X, but particles reached the posteriors of "
        f"{int(fine.sum())} of {count} data sets; pass initial= that covers them",
    )
    order = generator(key_order).permutation(np.flatnonzero(fine))
    cut = max(int(HELD_OUT * len(order)), 1)

    def take(rows: np.ndarray) -> Pairs:
        data = jax.tree.map(lambda leaf: on_device(leaf[rows]), stacked)
        return Pairs(on_device(x[rows]), data)

    return Rows(take(order[cut:]), take(order[:cut]))


def groups(stacked: Any, count: int, size: int) -> Iterator[Any]:
    """Stacked data sets in groups of one size, the last filled up with the first ones."""
    for begin in range(0, count, size):
        rows = np.arange(begin, begin + size) % count if count >= size else np.arange(size) % count
        yield jax.tree.map(lambda leaf, rows=rows: on_device(leaf[rows]), stacked)


def efficiency(network: Estimator, family: Family, data: Any, key: Key[Array, ""]) -> np.ndarray:
    """The effective share of importance weights, of each of some stacked data sets."""
    some = jax.tree.map(lambda leaf: leaf[:MEASURED], data)
    return np.asarray(_efficiencies(network, family, some, key))


@jit_once
def _efficiencies(network: Estimator, family: Family, data: Any, key: Array) -> Array:
    def one(observed: Any, key: Array) -> Array:
        law, log_p = network.mixture(sums_of(network, family, observed)), family.density(observed)
        drawn = jax.vmap(law.sample)(jr.split(key, WEIGHED))
        x, log_det = jax.vmap(network.white.inverse_and_log_det)(drawn)
        log_w = jax.vmap(log_p)(x) - jax.vmap(law.log_prob)(drawn) + log_det
        w = jnp.exp(jnp.where(jnp.isfinite(log_w), log_w, -jnp.inf) - jnp.nanmax(log_w))
        return jnp.nan_to_num(jnp.sum(w) ** 2 / (WEIGHED * jnp.sum(w**2)))

    count = jax.tree.leaves(data)[0].shape[0]
    return jax.vmap(one)(data, jr.split(key, count))


@jit_once
def drawn_pairs(family: Family, key: Array, count: int) -> tuple[Array, Any]:
    return family.pairs(key, count)


@jit_once
def _densities(family: Family, rows: Pairs) -> Array:
    return jax.vmap(lambda x, d: family.density(d)(x[0]))(rows.x, rows.data)


@jit_once
def _annealed(
    family: Family, law: AbstractDistribution, data: Any, key: Array, settings: AmortiseSettings
) -> Array:
    count = jax.tree.leaves(data)[0].shape[0]
    sizes = settings.particles, settings.temperatures, settings.moves

    def one(observed: Any, key: Array) -> Array:
        x = annealed(family, law, observed, key, *sizes).x
        return x[jnp.linspace(0, settings.particles - 1, min(KEPT, settings.particles)).astype(int)]

    return jax.vmap(one)(data, jr.split(key, count))


def _pairs(drawn: tuple[Any, Any]) -> Pairs:
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
def _features(family: Family, data: Any) -> Array:
    return jax.vmap(family.feature_rows)(data)

"""Adam whose rate falls to zero along a cosine.

The rate and the length of the run are part of the optimiser's state and not of the optimiser, so
that one compilation serves trainings of every length and rate.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree


class Decay(NamedTuple):
    """Updates made, the first rate, and the updates after which the rate is zero."""

    count: Int[Array, ""]
    rate: Float[Array, ""]
    steps: Float[Array, ""]


def _scale_by_decay() -> optax.GradientTransformation:
    def init(params: PyTree) -> Decay:
        del params
        return Decay(jnp.asarray(0), jnp.asarray(1e-3), jnp.asarray(1e3))

    def update(updates: PyTree, state: PyTree, params: PyTree = None) -> tuple[PyTree, Decay]:
        del params
        share = jnp.minimum(state.count / state.steps, 1.0)
        rate = state.rate * 0.5 * (1 + jnp.cos(jnp.pi * share))
        scaled = jax.tree.map(lambda leaf: -rate.astype(leaf.dtype) * leaf, updates)
        return scaled, state._replace(count=state.count + 1)

    return optax.GradientTransformation(init, update)


DECAYED_ADAM = optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam(), _scale_by_decay())


def decaying(memory: tuple, rate: float, steps: int) -> tuple:
    """The state of `DECAYED_ADAM` for a run of `steps` updates from `rate` down to zero."""
    *before, decay = memory
    return (*before, decay._replace(rate=jnp.asarray(rate), steps=jnp.asarray(float(steps))))

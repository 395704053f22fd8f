"""Critics: networks D that tell draws of the target from states of the chain.

The distance the generator reduces is `max_D E[D(real)] - E[D(fake)]` over functions of bounded
slope. The slope is bounded by clamping every weight of D to [-w, w], as the paper does, or by the
gradient penalty `c E[(|∇D(u)| - 1)²]` at points u between real and fake ones.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Key, PyTree

from involutive.core.errors import check, check_count
from involutive.kernel.kernel import Kernel
from involutive.training.objective import split_kernel, split_trainable

Batch = Float[Array, "n size"]
States = Float[Array, "n states size"]


def adversarial_adam(rate: optax.ScalarOrSchedule) -> optax.GradientTransformation:
    """Adam with little momentum, because what it minimises changes with the opponent."""
    return optax.adam(rate, b1=0.5, b2=0.9)


class _Leaky(eqx.Module):
    """`max(x, leak · x)`. Two of one slope are equal, so their programs are compiled once."""

    leak: float = eqx.field(static=True)

    def __call__(self, x: Float[Array, " *size"]) -> Float[Array, " *size"]:
        return jax.nn.relu(x) if self.leak == 0 else jax.nn.leaky_relu(x, self.leak)


class Critic(eqx.Module):
    """`D(x) = net(x / scale)`, a dense network with one output.

    Args:
        key: a JAX key.
        size: dimension of a point; twice the target's for a critic of pairs.
        width, depth: hidden layers; the paper's critic has one of 64.
        scale: points are divided by this first.
        leak: slope of the ReLU between layers below zero; 0 in the paper.
    """

    net: eqx.nn.MLP
    scale: float = eqx.field(static=True)

    def __init__(
        self,
        key: Key[Array, ""],
        size: int,
        width: int = 64,
        depth: int = 1,
        scale: float = 1.0,
        leak: float = 0.0,
    ):
        check_count("critic width", width)
        check_count("critic depth", depth)
        check(scale > 0, f"scale must be positive, got {scale}")
        self.net = eqx.nn.MLP(size, "scalar", width, depth, _Leaky(leak), key=key)
        self.scale = scale

    def __call__(self, x: Float[Array, " size"]) -> Float[Array, ""]:
        return self.net(x / self.scale)


class Memory(NamedTuple):
    """What training with one critic keeps: the critic and both optimisers' states."""

    critic: Critic
    generator: PyTree
    critic_state: PyTree


def first_memory(
    kernel: Kernel,
    critic: Critic,
    optimiser: optax.GradientTransformation,
    critic_optimiser: optax.GradientTransformation,
) -> Memory:
    """The memory before the first update."""
    return Memory(
        critic,
        optimiser.init(split_kernel(kernel)[0]),
        critic_optimiser.init(split_trainable(critic)[0]),
    )


def clamped(critic: PyTree, bound: float) -> PyTree:
    """Return a critic, or a pytree of several, with every weight moved into [-bound, bound]."""
    return jax.tree.map(
        lambda leaf: jnp.clip(leaf, -bound, bound) if eqx.is_inexact_array(leaf) else leaf, critic
    )


def gradient_penalty(
    critic: Critic, real: Batch, fake: Batch, key: Key[Array, ""]
) -> Float[Array, ""]:
    """`E[(|∇D(u)| - 1)²]` at `u = s real + (1-s) fake`, in the critic's scaled coordinates."""
    share = jr.uniform(key, (real.shape[0], 1), real.dtype)
    between = (share * real + (1 - share) * fake) / critic.scale
    slope = jax.vmap(jax.grad(critic.net))(between)
    # the root has no gradient at zero, where a clipped ReLU network may well be
    length = jnp.sqrt(jnp.sum(slope**2, axis=1) + 1e-12)
    return jnp.mean((length - 1) ** 2)


def pick(states: States, log_weights: Float[Array, "n states"], key: Key[Array, ""]) -> Batch:
    """Draw one state of each rollout by its weight."""
    number = jr.categorical(key, log_weights, axis=1)
    return jnp.take_along_axis(states, number[:, None, None], axis=1)[:, 0, :]

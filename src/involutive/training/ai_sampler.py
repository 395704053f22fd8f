"""The Ai-sampler's training (Egorov, Valperga, Gavves 2024): a critic of state and auxiliary.

A critic tells z = (x, π) ~ p ⊗ Y from f(z). Because f is an involution, the best critic changes
its sign under it, so it is built that way:

    d(z) = h(z) - h(f(z)),    d* = log (p ⊗ Y)(z) / (p ⊗ Y)(f(z)) = -log r(z),

trained by `min_h E[log(1 + exp(-d(z)))]`. The generator lowers `E[d(z)]`, an estimate of the
divergence of p ⊗ Y from its image under f, which bounds the rejection rate (Pinsker). No density is
needed. A map that leaves x alone has no divergence either: nothing here asks that x moves.
"""

from dataclasses import dataclass, field
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from flowjax import bijections as fb
from jaxtyping import Array, Float, Key, PyTree
from paramax import non_trainable

from involutive.bijections.couplings import AdditiveCoupling, MakeNetwork, mlp
from involutive.core.errors import check_count
from involutive.involutions.blocks import Conjugate, SignFlipBlock
from involutive.kernel.kernel import Kernel
from involutive.training.mgan.critics import Critic, Memory, adversarial_adam, first_memory
from involutive.training.mgan.distance import dependence
from involutive.training.objective import (
    AbstractObjective,
    Carry,
    Data,
    UpdateMetrics,
    apply_gradient,
    minibatch,
    split_kernel,
    split_trainable,
)

_adam = partial(adversarial_adam, 1e-3)


def ai_network(
    key: Key[Array, ""], dim: int, layers: int = 5, make: MakeNetwork | None = None
) -> Conjugate:
    """`F⁻¹ ∘ R ∘ F`: F of Hénon layers `(x, v) ↦ (v, -x - V(v))`, R the flip of v.

    Args:
        key: a JAX key.
        dim: coordinates of the state, and of the auxiliary.
        layers: Hénon layers in F.
        make: the networks V; one hidden layer of 64 by default.
    """
    make = mlp(64, last_scale=0.1) if make is None else make
    swap = fb.Permute(jnp.roll(jnp.arange(2 * dim), dim))
    signs = jnp.concatenate([jnp.ones(dim), -jnp.ones(dim)])
    # put in afterwards, since Scale takes positive factors; a constant of the map, no parameter
    turn = eqx.tree_at(lambda scale: scale.scale, fb.Scale(jnp.ones(2 * dim)), signs)
    turn = non_trainable(turn)
    parts: list[fb.AbstractBijection] = []
    for key_layer in jr.split(key, check_count("layers", layers)):
        shift = AdditiveCoupling(make(key_layer, dim, dim), 2 * dim, dim, flip=True)
        parts += [shift, swap, turn]
    return Conjugate(fb.Chain(parts), SignFlipBlock.momentum(dim, dim))


@dataclass(frozen=True)
class AiSamplerConfig:
    """How the critic and the generator are trained.

    Attributes:
        batch: points per update.
        critic_steps: critic updates before each generator update.
        critic_width, critic_depth: hidden layers of h.
        optimiser, critic_optimiser: Optax transformations.
    """

    batch: int = 256
    critic_steps: int = 1
    critic_width: int = 128
    critic_depth: int = 2
    optimiser: optax.GradientTransformation = field(default_factory=_adam)
    critic_optimiser: optax.GradientTransformation = field(default_factory=_adam)

    def __post_init__(self) -> None:
        for name in ("batch", "critic_steps", "critic_width", "critic_depth"):
            check_count(name, getattr(self, name))


class AiSampler(AbstractObjective):
    """The Ai-sampler's objective, for any kernel."""

    config: AiSamplerConfig = eqx.field(static=True)

    def __init__(self, config: AiSamplerConfig | None = None):
        self.config = AiSamplerConfig() if config is None else config

    def init(self, kernel: Kernel, key: Key[Array, ""]) -> Memory:
        """Make h and the optimisers' states."""
        config = self.config
        critic = Critic(
            key, kernel.involution.size, config.critic_width, config.critic_depth, leak=0.2
        )
        return first_memory(kernel, critic, config.optimiser, config.critic_optimiser)

    def update(
        self, kernel: Kernel, memory: Memory, data: Data, key: Key[Array, ""]
    ) -> tuple[Kernel, Memory, UpdateMetrics]:
        """Some critic steps on fresh points, then one generator step."""
        config = self.config
        key_critic, key_points = jr.split(key)
        params, static = split_trainable(memory.critic)

        def step(carry: Carry, key_step: Array) -> tuple[Carry, Array]:
            params, state = carry
            z, moved = self._points(kernel, data, key_step)

            def loss(params: PyTree) -> Array:
                d = logit(eqx.combine(params, static), z, moved)
                return jnp.mean(jax.nn.softplus(-d))

            value, gradient = jax.value_and_grad(loss)(params)
            params, state, _ = apply_gradient(config.critic_optimiser, gradient, params, state)
            return (params, state), value

        carry, losses = jax.lax.scan(
            step, (params, memory.critic_state), jr.split(key_critic, config.critic_steps)
        )
        critic, kernel_params = eqx.combine(carry[0], static), split_kernel(kernel)

        def loss(params: PyTree) -> Array:
            made = eqx.combine(params, kernel_params[1])
            return jnp.mean(logit(critic, *self._points(made, data, key_points)))

        value, gradient = jax.value_and_grad(loss)(kernel_params[0])
        new, generator, skipped = apply_gradient(
            config.optimiser, gradient, kernel_params[0], memory.generator
        )
        metrics = {
            "critic_loss": jnp.mean(losses), "generator_loss": value, "skipped": skipped
        }  # fmt: skip
        return eqx.combine(new, kernel_params[1]), Memory(critic, generator, carry[1]), metrics

    def held_out(self, kernel: Kernel, data: Data, key: Key[Array, ""]) -> Float[Array, ""]:
        """Dependence of states one step apart in stationarity: what the objective does not see."""
        return dependence(kernel, data, key, 1)

    def _points(self, kernel: Kernel, data: Data, key: Key[Array, ""]) -> tuple[Array, Array]:
        """Draws z of p ⊗ Y and f(z)."""
        key_x, key_v = jr.split(key)
        x = minibatch(data, key_x, self.config.batch)
        v = jax.vmap(kernel.draw_auxiliary)(jr.split(key_v, self.config.batch), x)
        z = jnp.concatenate([x, v], axis=1)
        return z, jax.vmap(lambda z: kernel.involution(z)[0])(z)


def logit(
    critic: Critic, z: Float[Array, "n size"], moved: Float[Array, "n size"]
) -> Float[Array, " n"]:
    """`h(z) - h(f(z))`, antisymmetric under f."""
    return jax.vmap(critic)(z) - jax.vmap(critic)(moved)

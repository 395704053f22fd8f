"""A-NICE-MC's own training (Song, Zhao, Ermon 2017), for kernels made by `a_nice_mc`.

Rollouts apply the network f forward with a fresh v at every step; there is no accept step and no
inverse. A critic of pairs tells two draws of the target from (x₂, x), where x is a draw and x₂ is
where m steps take it, and from (x₃, x₁), where b steps lead from noise to x₁ and m steps from x₁
(gradient stopped) to x₃. The lengths are uniform on 1 … 8 and 1 … 2. The generator also reduces the
mean of v²/2 at the ends of its rollouts, which stands for the density of v in the acceptance ratio.
"""

from dataclasses import dataclass, field
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from flowjax.bijections import AbstractBijection
from jaxtyping import Array, Float, Int, Key, PyTree

from involutive.core.errors import check, check_count
from involutive.involutions.classical import Directed
from involutive.kernel.kernel import Kernel
from involutive.training.mgan.critics import (
    Batch,
    Critic,
    Memory,
    adversarial_adam,
    first_memory,
    gradient_penalty,
)
from involutive.training.mgan.distance import dependence, start_distance
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

Pair = tuple[Array, Array]


_adam = partial(adversarial_adam, 5e-4)


@dataclass(frozen=True)
class ANiceConfig:
    """The settings of A-NICE-MC's public code for its planar targets.

    Attributes:
        steps: the longest rollout from noise (theirs: b).
        data_steps: the longest rollout from data (theirs: m).
        batch: rollouts of each kind.
        critic_steps: critic updates before each generator update.
        critic_width, critic_depth: the critic of pairs, leaky ReLU 0.2.
        penalty: weight of the gradient penalty.
        v_weight: weight of the mean of v²/2 (theirs: eta).
        optimiser, critic_optimiser: Optax transformations.
    """

    steps: int = 8
    data_steps: int = 2
    batch: int = 32
    critic_steps: int = 5
    critic_width: int = 400
    critic_depth: int = 3
    penalty: float = 10.0
    v_weight: float = 1.0
    optimiser: optax.GradientTransformation = field(default_factory=_adam)
    critic_optimiser: optax.GradientTransformation = field(default_factory=_adam)

    def __post_init__(self) -> None:
        for name in ("steps", "data_steps", "critic_steps", "critic_width", "critic_depth"):
            check_count(name, getattr(self, name))
        check_count("batch", self.batch, least=2)
        check(self.penalty > 0, f"penalty must be positive, got {self.penalty}")
        check(self.v_weight >= 0, f"v_weight must not be negative, got {self.v_weight}")


class ANice(AbstractObjective):
    """A-NICE-MC's adversarial training."""

    config: ANiceConfig = eqx.field(static=True)

    def __init__(self, config: ANiceConfig | None = None):
        self.config = ANiceConfig() if config is None else config

    def init(self, kernel: Kernel, key: Key[Array, ""]) -> Memory:
        """Make the critic of pairs and the optimisers' states."""
        found = type(kernel.involution).__name__
        check(
            isinstance(kernel.involution, Directed),
            f"A-NICE-MC's training needs a kernel made by a_nice_mc, got one with {found}; "
            "use Mgan for other involutions",
        )
        check(
            kernel.initial is not None,
            "training from noise needs the kernel's initial distribution, got None; pass initial=",
        )
        config = self.config
        width, depth = config.critic_width, config.critic_depth
        critic = Critic(key, 2 * kernel.target.dim, width, depth, leak=0.2)
        return first_memory(kernel, critic, config.optimiser, config.critic_optimiser)

    def update(
        self, kernel: Kernel, memory: Memory, data: Data, key: Key[Array, ""]
    ) -> tuple[Kernel, Memory, UpdateMetrics]:
        """Some critic steps on fresh pairs, then one generator step."""
        config = self.config
        key_critic, key_pairs = jr.split(key)
        critic, state, gap = self._train_critic(kernel, memory, data, key_critic)
        params, static = split_kernel(kernel)

        def loss(params: PyTree) -> tuple[Array, Array]:
            fake, ends = self._pairs(eqx.combine(params, static), data, key_pairs)
            v_loss = jnp.mean(0.5 * ends**2)
            return config.v_weight * v_loss - jnp.mean(jax.vmap(critic)(fake)), v_loss

        (value, v_loss), gradient = jax.value_and_grad(loss, has_aux=True)(params)
        params, generator, skipped = apply_gradient(
            config.optimiser, gradient, params, memory.generator
        )
        metrics = {
            "critic_gap": gap,
            "generator_loss": value,
            "v_loss": v_loss,
            "skipped": skipped,
        }
        return eqx.combine(params, static), Memory(critic, generator, state), metrics

    def held_out(self, kernel: Kernel, data: Data, key: Key[Array, ""]) -> Float[Array, ""]:
        """Distance from the data after steps from X, plus dependence of states steps apart."""
        key_start, key_move = jr.split(key)
        start = start_distance(kernel, data, key_start, self.config.data_steps)
        return start + dependence(kernel, data, key_move, self.config.data_steps)

    def _train_critic(
        self, kernel: Kernel, memory: Memory, data: Data, key: Key[Array, ""]
    ) -> tuple[Critic, PyTree, Array]:
        config, dim = self.config, kernel.target.dim
        params, static = split_trainable(memory.critic)

        def step(carry: Carry, key_step: Array) -> tuple[Carry, Array]:
            params, state = carry
            key_pairs, key_real, key_penalty = jr.split(key_step, 3)
            fake, _ = self._pairs(kernel, data, key_pairs)
            real = minibatch(data, key_real, 2 * fake.shape[0]).reshape(-1, 2 * dim)

            def loss(params: PyTree) -> tuple[Array, Array]:
                critic = eqx.combine(params, static)
                gap = jnp.mean(jax.vmap(critic)(real)) - jnp.mean(jax.vmap(critic)(fake))
                slope = gradient_penalty(critic, real, fake, key_penalty)
                return config.penalty * slope - gap, gap

            (_, gap), gradient = jax.value_and_grad(loss, has_aux=True)(params)
            params, state, _ = apply_gradient(config.critic_optimiser, gradient, params, state)
            return (params, state), gap

        carry = (params, memory.critic_state)
        carry, gaps = jax.lax.scan(step, carry, jr.split(key, config.critic_steps))
        return eqx.combine(carry[0], static), carry[1], jnp.mean(gaps)

    def _pairs(
        self, kernel: Kernel, data: Data, key: Key[Array, ""]
    ) -> tuple[Float[Array, "pairs both"], Float[Array, "ends aux"]]:
        """The fake pairs (x₂, x) and (x₃, x₁), and v at the end of the three rollouts."""
        config = self.config
        keys = jr.split(key, 7)
        network = kernel.involution.f  # type: ignore[attr-defined]
        long = jr.randint(keys[0], (), 1, config.steps + 1)
        short = jr.randint(keys[1], (), 1, config.data_steps + 1)
        noise = kernel.initial.sample(keys[2], (config.batch,))  # type: ignore[union-attr]
        x = minibatch(data, keys[3], config.batch)
        x1, v1 = forward(network, noise, keys[4], long, config.steps)
        x2, v2 = forward(network, x, keys[5], short, config.data_steps)
        x3, v3 = forward(network, jax.lax.stop_gradient(x1), keys[6], short, config.data_steps)
        from_data = jnp.concatenate([x2, x], axis=1)
        from_noise = jnp.concatenate([x3, x1], axis=1)
        return jnp.concatenate([from_data, from_noise]), jnp.concatenate([v1, v2, v3])


def forward(
    network: AbstractBijection, x: Batch, key: Key[Array, ""], length: Int[Array, ""], most: int
) -> tuple[Batch, Float[Array, "n aux"]]:
    """Apply f to (x, fresh v) `length` times, at most `most`; return x and the last v."""
    count, dim = x.shape
    size = network.shape[0] - dim

    def apply(x: Array, key_v: Array) -> Pair:
        v = jr.normal(key_v, (count, size), x.dtype)
        moved = jax.vmap(network.transform)(jnp.concatenate([x, v], axis=1))
        return moved[:, :dim], moved[:, dim:]

    def step(carry: Pair, at: Pair) -> tuple[Pair, None]:
        number, key_v = at
        moved = jax.lax.cond(number < length, lambda c: apply(c[0], key_v), lambda c: c, carry)
        return moved, None

    start = (x, jnp.zeros((count, size), x.dtype))
    return jax.lax.scan(step, start, (jnp.arange(most), jr.split(key, most)))[0]

"""The paper's training: a critic against the distribution of the chain after b steps.

    min_θ max_D  E_p[D] - λ E_{χᵇ}[D] - (1-λ) E_{x~p, Tᵐ}[D]

χᵇ is the law after b steps from X, Tᵐ the law after m steps from a draw of the target. Both are
taken with the accept bits summed out exactly (`rollouts`). With λ = 1 nothing in the objective
looks at moves made in stationarity. With λ < 1 and one critic of states the second term is content
with a chain that stays put; a critic of pairs, which tells (x, x after m steps) from two
independent draws, is content with an orbit that comes back after m + 1 steps. A critic of raw
proposals (x, φ') asks for a φ' that is independent of x and distributed as p whether or not it is
accepted; that it is accepted is asked for by

    μ E[√(1 + log²r) - 1],    r = p(φ') Y(π') |det Df| / (p(x) Y(π)),    x ~ p, π ~ Y,

which is zero only where f leaves p ⊗ Y as it is. Neither works alone: without the ratio nothing is
accepted, and the identity has r = 1. First proposals from X, where none of these states are, are
asked to be accepted by a term of their own, `E[log(1 + 1/r)]`.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key, PyTree

from involutive.core.errors import check
from involutive.kernel.kernel import Kernel
from involutive.training.mgan.config import MganConfig
from involutive.training.mgan.critics import Batch, Critic, States, clamped, gradient_penalty, pick
from involutive.training.mgan.distance import dependence, start_distance
from involutive.training.mgan.rollouts import NEVER, expectation, log_chi, rollouts
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


class Critics(eqx.Module):
    """The critic of states and the critic of pairs, where they are used."""

    states: Critic | None
    pairs: Critic | None


class MganMemory(NamedTuple):
    """What is kept between updates: the critics, both optimisers' states and the updates made."""

    critics: Critics
    generator: PyTree
    critic: PyTree
    count: Int[Array, ""]


class Term(NamedTuple):
    """Real points, the states of rollouts with their log χ, and the term's weight.

    `log_ratio` are the log acceptance ratios of the moves in it.
    """

    real: Batch
    fake: States
    log_weights: Float[Array, "n states"]
    weight: float
    log_ratio: Float[Array, "n steps"]


class Mgan(AbstractObjective):
    """Adversarial training by the MGAN objective with the exact-conditional estimator."""

    config: MganConfig = eqx.field(static=True)

    def __init__(self, config: MganConfig | None = None):
        self.config = MganConfig.tuned() if config is None else config

    def init(self, kernel: Kernel, key: Key[Array, ""]) -> MganMemory:
        """Make the critics and the optimisers' states."""
        config = self.config
        check(
            (config.balance == 0 and config.first_ratio == 0) or kernel.initial is not None,
            "training from X needs the kernel's initial distribution, got None; pass "
            "Kernel(..., initial=)",
        )
        key_states, key_pairs = jr.split(key)
        dim, pairs = kernel.target.dim, config.pairwise and config.balance < 1

        def critic(key: Array, size: int) -> Critic:
            return Critic(
                key, size, config.critic_width, config.critic_depth, config.scale, config.leak
            )

        critics = Critics(
            critic(key_states, dim) if config.balance > 0 or not pairs else None,
            critic(key_pairs, 2 * dim) if pairs else None,
        )
        return MganMemory(
            critics,
            config.optimiser.init(split_kernel(kernel)[0]),
            config.critic_optimiser.init(split_trainable(critics)[0]),
            jnp.zeros((), jnp.int32),
        )

    def update(
        self, kernel: Kernel, memory: MganMemory, data: Data, key: Key[Array, ""]
    ) -> tuple[Kernel, MganMemory, UpdateMetrics]:
        """Some critic steps on fresh rollouts, then one generator step."""
        key_critic, key_generator, key_first = jr.split(key, 3)
        config = self.config
        critics, state, gap = self._train_critics(kernel, memory, data, key_critic)
        params, static = split_kernel(kernel)

        def kernel_of(params: PyTree) -> Kernel:
            return eqx.combine(params, static)

        def loss(params: PyTree) -> tuple[Array, list[Term]]:
            terms = self._terms(kernel_of(params), data, key_generator, config.batch)
            value = -_fake_score(critics, terms)
            if config.ratio > 0:
                weight = self._ratio_weight(memory.count)
                value = value + weight * unevenness(terms[-1].log_ratio)
            if config.first_ratio > 0:
                value = value + config.first_ratio * self._refusal(kernel_of(params), key_first)
            return value, terms

        (value, terms), gradient = jax.value_and_grad(loss, has_aux=True)(params)
        params, generator, skipped = apply_gradient(
            config.optimiser, gradient, params, memory.generator
        )
        metrics = {
            "critic_gap": gap, "generator_loss": value, "rollout_acceptance": _acceptance(terms),
            "unevenness": unevenness(terms[-1].log_ratio), "skipped": skipped,
        }  # fmt: skip
        memory = MganMemory(critics, generator, state, memory.count + 1)
        return eqx.combine(params, static), memory, metrics

    def held_out(self, kernel: Kernel, data: Data, key: Key[Array, ""]) -> Float[Array, ""]:
        """λ · (distance to the data after b steps) + (1-λ) · (dependence over m steps)."""
        config, total = self.config, jnp.zeros(())
        key_start, key_move = jr.split(key)
        if config.balance > 0:
            start = start_distance(kernel, data, key_start, config.steps)
            total = total + config.balance * start
        if config.balance < 1:
            move = dependence(kernel, data, key_move, config.data_steps)
            total = total + (1 - config.balance) * move
        return total

    def _train_critics(
        self, kernel: Kernel, memory: MganMemory, data: Data, key: Key[Array, ""]
    ) -> tuple[Critics, Any, Array]:
        """Ascend `E[D(real)] - E[D(fake)]`; one set of rollouts is cut into batches."""
        config = self.config
        key_terms, key_steps = jr.split(key)
        count = config.critic_steps
        terms = self._terms(kernel, data, key_terms, count * config.batch)
        params, static = split_trainable(memory.critics)

        def step(carry: Carry, at: tuple[list[Any], Array]) -> tuple[Carry, Array]:
            params, state = carry
            points, key_step = at
            batch = [
                term._replace(real=real, fake=fake, log_weights=chi)
                for (real, fake, chi), term in zip(points, terms, strict=True)
            ]

            def loss(params: PyTree) -> tuple[Array, Array]:
                critics = eqx.combine(params, static)
                gap = _real_score(critics, batch) - _fake_score(critics, batch)
                return self._penalty(critics, batch, key_step) - gap, gap

            (_, gap), gradient = jax.value_and_grad(loss, has_aux=True)(params)
            params, state, _ = apply_gradient(config.critic_optimiser, gradient, params, state)
            if config.clamp is not None:
                params = clamped(params, config.clamp)
            return (params, state), gap

        batches = [
            tuple(leaf.reshape(count, config.batch, *leaf.shape[1:]) for leaf in term[:3])
            for term in terms
        ]
        carry = (params, memory.critic)
        carry, gaps = jax.lax.scan(step, carry, (batches, jr.split(key_steps, count)))
        return eqx.combine(carry[0], static), carry[1], jnp.mean(gaps)

    def _penalty(self, critics: Critics, terms: list[Term], key: Key[Array, ""]) -> Array:
        config, total = self.config, jnp.zeros(())
        if config.penalty is None:
            return total
        count = max(round(config.penalised * config.batch), 1)
        for term, key_term in zip(terms, jr.split(key, len(terms)), strict=True):
            key_pick, key_between = jr.split(key_term)
            fake = pick(term.fake[:count], term.log_weights[:count], key_pick)
            slope = gradient_penalty(_judge(critics, term), term.real[:count], fake, key_between)
            total = total + config.penalty * term.weight * slope
        return total

    def _terms(self, kernel: Kernel, data: Data, key: Key[Array, ""], count: int) -> list[Term]:
        """The terms of the objective that have weight, each with `count` rollouts."""
        config = self.config
        key_x, key_from_x, key_real, key_start, key_from, key_other = jr.split(key, 6)
        terms = []
        if config.balance > 0:
            starts = kernel.initial.sample(key_x, (count,))  # type: ignore[union-attr]
            paths = rollouts(kernel, starts, key_from_x, config.steps)
            chi = jax.vmap(log_chi)(paths.log_accept)
            real = minibatch(data, key_real, count)
            terms.append(Term(real, paths.positions, chi, config.balance, paths.log_ratio))
        if config.balance < 1:
            starts = minibatch(data, key_start, count)
            other = minibatch(data, key_other, count)
            terms.append(self._from_data(kernel, starts, other, key_from))
        return terms

    def _from_data(self, kernel: Kernel, starts: Batch, other: Batch, key: Key[Array, ""]) -> Term:
        """The second term: what follows draws of the target, against other draws."""
        config = self.config
        paths = rollouts(kernel, starts, key, 1 if config.proposals else config.data_steps)
        states, chi = paths.positions, jax.vmap(log_chi)(paths.log_accept)
        if config.proposals:
            states, chi = states[:, 1:], jnp.zeros_like(chi[:, 1:])
        if config.pairwise:
            # the other draw stands where the moved state does
            other = jnp.concatenate([starts, other], axis=1)
            begun = jnp.broadcast_to(starts[:, None, :], states.shape)
            states = jnp.concatenate([begun, states], axis=2)
        return Term(other, states, chi, 1 - config.balance, paths.log_ratio)

    def _ratio_weight(self, count: Int[Array, ""]) -> Float[Array, ""] | float:
        """μ, or what it has grown to after `count` updates."""
        config = self.config
        if config.first_share == 1:
            return config.ratio
        return config.ratio * config.first_share ** (1 - jnp.minimum(count / config.growth, 1.0))

    def _refusal(self, kernel: Kernel, key: Key[Array, ""]) -> Float[Array, ""]:
        """`E[log(1 + 1/r)]` over first proposals from X."""
        key_start, key_move = jr.split(key)
        count = max(self.config.batch // 4, 1)
        starts = kernel.initial.sample(key_start, (count,))  # type: ignore[union-attr]
        log_ratio = rollouts(kernel, starts, key_move, 1).log_ratio
        return jnp.mean(jax.nn.softplus(-jnp.clip(log_ratio, NEVER, -NEVER)))


def unevenness(log_ratio: Float[Array, "n steps"]) -> Float[Array, ""]:
    """`E[√(1 + log²r) - 1]`: quadratic near r = 1, with a slope of one far from it."""
    return jnp.mean(jnp.sqrt(1 + jnp.clip(log_ratio, NEVER, -NEVER) ** 2) - 1)


def _judge(critics: Critics, term: Term) -> Critic:
    critic = critics.states
    if critic is None or term.real.shape[1] != critic.net.in_size:
        critic = critics.pairs
    return critic  # type: ignore[return-value]


def _real_score(critics: Critics, terms: list[Term]) -> Array:
    scores = [term.weight * jnp.mean(jax.vmap(_judge(critics, term))(term.real)) for term in terms]
    return jnp.sum(jnp.stack(scores))


def _fake_score(critics: Critics, terms: list[Term]) -> Array:
    """`Σ_terms weight · E_{i~χ}[D(φ_i)]`."""

    def score(term: Term) -> Array:
        values = jax.vmap(jax.vmap(_judge(critics, term)))(term.fake)
        return term.weight * jnp.mean(jax.vmap(expectation)(values, term.log_weights))

    return jnp.sum(jnp.stack([score(term) for term in terms]))


def _acceptance(terms: list[Term]) -> Array:
    """The mean acceptance probability of the moves in all terms."""
    return jnp.mean(
        jnp.stack([jnp.mean(jnp.exp(jnp.minimum(term.log_ratio, 0.0))) for term in terms])
    )

"""The paper's training: a critic against the law of the chain after b steps.

    min_θ max_D  E_p[D] - λ E_{χᵇ}[D] - (1-λ) E_{x~p, Tᵐ}[D]

χᵇ is the law after b steps from X, Tᵐ the law after m steps from a draw of the target. Both are
taken with the accept bits summed out exactly (`rollouts`). With λ = 1 nothing in the objective
looks at moves made in stationarity. With λ < 1 and one critic of states the second term is content
with a chain that stays put; a critic of pairs, which tells (x, x after m steps) from two
independent draws, is not. So the paper's three remedies are fields of one configuration here.

With `every`, some rollouts of the first term begin where chains from X are that run beside
training: their states after b steps more, the gradient of b steps only.

With a `margin` or `soften` above one, χᵇ is the law of a chain that stays more often; figures and
the held-out measure are of the chain that is run.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from involutive.core.errors import check
from involutive.kernel.kernel import Kernel
from involutive.training.mgan.config import MganConfig
from involutive.training.mgan.critics import Batch, Critic, States, clamped, gradient_penalty, pick
from involutive.training.mgan.distance import dependence, start_distance
from involutive.training.mgan.rollouts import expectation, log_chi, rollouts
from involutive.training.objective import (
    AbstractObjective,
    Data,
    Figures,
    apply_gradient,
    minibatch,
    split_kernel,
    split_trainable,
)

Running = Float[Array, "chains dim"]
DEAD = 0.01  # mean acceptance below which there is hardly a gradient left to learn from
MEMORY = 0.95  # how much of the running acceptance is kept at an update


class Critics(eqx.Module):
    """The critic of states and the critic of pairs, where they are used."""

    states: Critic | None
    pairs: Critic | None


class Memory(NamedTuple):
    """What is kept between updates.

    `acceptance` is a running mean over all rollouts; `running` are the states of chains that run
    beside training, where rollouts also begin.
    """

    critics: Critics
    generator: Any
    critic: Any
    acceptance: Float[Array, ""]
    running: Running | None


class Term(NamedTuple):
    """Real points, the states of rollouts with their log χ, and the term's weight."""

    real: Batch
    fake: States
    log_weights: Float[Array, "n states"]
    weight: float
    acceptance: Float[Array, ""]


class Mgan(AbstractObjective):
    """Adversarial training by the MGAN objective with the exact-conditional estimator."""

    config: MganConfig = eqx.field(static=True)

    def __init__(self, config: MganConfig | None = None):
        self.config = MganConfig.tuned() if config is None else config

    def init(self, kernel: Kernel, key: Key[Array, ""]) -> Memory:
        """Make the critics and the optimisers' states."""
        config = self.config
        check(
            config.balance == 0 or kernel.initial is not None,
            "training from X needs the kernel's initial law, got None; pass Kernel(..., initial=)",
        )
        key_states, key_pairs, key_running = jr.split(key, 3)
        dim, shape = kernel.target.dim, (config.critic_width, config.critic_depth, config.scale)
        pairs = config.pairwise and config.balance < 1
        critics = Critics(
            Critic(key_states, dim, *shape) if config.balance > 0 or not pairs else None,
            Critic(key_pairs, 2 * dim, *shape) if pairs else None,
        )
        return Memory(
            critics,
            config.optimiser.init(split_kernel(kernel)[0]),
            config.critic_optimiser.init(split_trainable(critics)[0]),
            jnp.ones(()),
            self._begun(kernel, key_running),
        )

    def update(
        self, kernel: Kernel, memory: Memory, data: Data, key: Key[Array, ""]
    ) -> tuple[Kernel, Memory, Figures]:
        """Some critic steps on fresh rollouts, then one generator step."""
        key_critic, key_generator, key_run = jr.split(key, 3)
        config, dead = self.config, memory.acceptance < DEAD
        memory = memory._replace(running=self._run_on(kernel, memory.running, key_run))
        critics, state, gap = self._train_critics(kernel, memory, data, key_critic)
        params, static = split_kernel(kernel)

        def loss(params: Any) -> tuple[Array, Array]:
            kernel = eqx.combine(params, static)
            terms = self._terms(kernel, data, key_generator, memory.running, config.batch, dead)
            return -_fake_score(critics, terms), _mean_acceptance(terms)

        (value, acceptance), gradient = jax.value_and_grad(loss, has_aux=True)(params)
        params, generator, skipped = apply_gradient(
            config.optimiser, gradient, params, memory.generator
        )
        lately = MEMORY * memory.acceptance + (1 - MEMORY) * acceptance
        memory = Memory(critics, generator, state, lately, memory.running)
        figures = {
            "critic_gap": gap, "generator_loss": value, "rollout_acceptance": acceptance,
            "rescued": dead.astype(value.dtype), "skipped": skipped,
        }  # fmt: skip
        return eqx.combine(params, static), memory, figures

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
        self, kernel: Kernel, memory: Memory, data: Data, key: Key[Array, ""]
    ) -> tuple[Critics, Any, Array]:
        """Ascend `E[D(real)] - E[D(fake)]`; one set of rollouts is cut into batches."""
        config = self.config
        key_terms, key_steps = jr.split(key)
        count = config.critic_steps
        dead = memory.acceptance < DEAD
        terms = self._terms(kernel, data, key_terms, memory.running, count * config.batch, dead)
        params, static = split_trainable(memory.critics)

        def step(carry: Any, at: tuple[list[Any], Array]) -> tuple[Any, Array]:
            params, state = carry
            points, key_step = at
            batch = [
                term._replace(real=real, fake=fake, log_weights=chi)
                for (real, fake, chi), term in zip(points, terms, strict=True)
            ]

            def loss(params: Any) -> tuple[Array, Array]:
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
        if self.config.penalty is None:
            return jnp.zeros(())
        total = jnp.zeros(())
        for term, key_term in zip(terms, jr.split(key, len(terms)), strict=True):
            key_pick, key_between = jr.split(key_term)
            fake = pick(term.fake, term.log_weights, key_pick)
            slope = gradient_penalty(_judge(critics, term), term.real, fake, key_between)
            total = total + self.config.penalty * term.weight * slope
        return total

    def _terms(
        self,
        kernel: Kernel,
        data: Data,
        key: Key[Array, ""],
        running: Running | None,
        count: int,
        dead: Array,
    ) -> list[Term]:
        """The terms of the objective that have weight, each with `count` rollouts."""
        config = self.config
        key_x, key_from_x, key_real, key_start, key_from, key_other = jr.split(key, 6)
        terms = []
        if config.balance > 0:
            starts = self._starts(kernel, running, key_x, count)
            states, chi, accept = self._states(kernel, starts, key_from_x, config.steps, dead)
            real = minibatch(data, key_real, count)
            terms.append(Term(real, states, chi, config.balance, accept))
        if config.balance < 1:
            starts = minibatch(data, key_start, count)
            other = minibatch(data, key_other, count)
            states, chi, accept = self._states(kernel, starts, key_from, config.data_steps, dead)
            if config.pairwise:
                # the other draw stands where the moved state does
                real = jnp.concatenate([starts, other], axis=1)
                begun = jnp.broadcast_to(starts[:, None, :], states.shape)
                states = jnp.concatenate([begun, states], axis=2)
            else:
                real = other
            terms.append(Term(real, states, chi, 1 - config.balance, accept))
        return terms

    def _starts(
        self, kernel: Kernel, running: Running | None, key: Key[Array, ""], count: int
    ) -> Batch:
        """Draws of X, every so many-th in the place of a chain that runs beside training."""
        starts, every = kernel.initial.sample(key, (count,)), self.config.every  # type: ignore[union-attr]
        if running is None or every is None:
            return starts
        return starts.at[::every].set(running[: -(-count // every)])

    def _begun(self, kernel: Kernel, key: Key[Array, ""]) -> Running | None:
        """Chains at their start, as many as the critic's rollouts take up."""
        config = self.config
        if config.every is None or config.balance == 0 or kernel.initial is None:
            return None
        count = -(-config.critic_steps * config.batch // config.every)
        return kernel.initial.sample(key, (count,))

    def _run_on(
        self, kernel: Kernel, running: Running | None, key: Key[Array, ""]
    ) -> Running | None:
        """One step of the chain for each, and some begin anew from X."""
        if running is None:
            return None
        key_step, key_anew, key_start = jr.split(key, 3)
        count = running.shape[0]
        states = jax.vmap(kernel.init)(running)
        moved = jax.vmap(kernel.step)(jr.split(key_step, count), states)[0].position
        anew = jr.bernoulli(key_anew, 1 / self.config.age, (count, 1))
        fresh = kernel.initial.sample(key_start, (count,))  # type: ignore[union-attr]
        return jnp.where(anew, fresh, moved)

    def _states(
        self, kernel: Kernel, starts: Batch, key: Key[Array, ""], steps: int, dead: Array
    ) -> tuple[States, Array, Array]:
        """States of rollouts, their log χ, and the mean acceptance."""
        paths = rollouts(kernel, starts, key, steps)
        acceptance = jnp.mean(jnp.exp(paths.log_accept))
        log_accept = paths.softened(self.config.soften, self.config.margin)
        if self.config.rescue is not None:
            least = jnp.log(self.config.rescue)
            log_accept = jnp.where(dead, jnp.maximum(log_accept, least), log_accept)
        return paths.positions, jax.vmap(log_chi)(log_accept), acceptance


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


def _mean_acceptance(terms: list[Term]) -> Array:
    return jnp.mean(jnp.stack([term.acceptance for term in terms]))

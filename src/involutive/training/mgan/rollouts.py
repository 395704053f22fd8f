"""Rollouts of b proposals, and the distribution of the chain over the states they visit.

A rollout draws π_0 … π_{b-1} once and sets (φ_{i+1}, π_i') = f(φ_i, π_i) whether or not the move
would be accepted. With the π's fixed, a chain of b steps that starts at φ_0 and waits at φ_i until
the move to φ_{i+1} is accepted ends at φ_j with probability χ_{j,b}, where

    χ_{0,0} = 1,    χ_{j,t} = χ_{j-1,t-1} A_{j-1} + χ_{j,t-1} (1 - A_j),    j = 0 … b,

and A_i is the acceptance probability of φ_i → φ_{i+1}. So E[D(φ)] = Σ_j χ_{j,b} D(φ_j) without
sampling any accept bit. A chain that is really run draws a fresh π after a rejection; that it is
reused here is the estimator's bias.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from involutive.kernel.kernel import Kernel, KeyBits, State

NEVER = -1e4  # log of a probability that is zero in every precision, with finite gradients


class Rollout(NamedTuple):
    """The states φ_0 … φ_b of one rollout and the log acceptance ratios between them."""

    positions: Float[Array, "*n states dim"]
    log_ratio: Float[Array, "*n steps"]

    @property
    def log_accept(self) -> Float[Array, "*n steps"]:
        """The log acceptance probabilities."""
        return jnp.clip(self.log_ratio, NEVER, 0.0)


def rollout(
    kernel: Kernel, position: Float[Array, " dim"], auxiliaries: Float[Array, "steps aux"]
) -> Rollout:
    """Propose once with each auxiliary in turn, from `position`, moving on in any case."""
    return _visited(kernel, position, auxiliaries, lambda state, auxiliary: auxiliary)


def rollouts(
    kernel: Kernel, positions: Float[Array, "n dim"], key: Key[Array, ""], steps: int
) -> Rollout:
    """One rollout of `steps` proposals from every position; arrays of `(n, …)`."""

    def one(position: Array, key_rollout: Array) -> Rollout:
        keys = jr.split(key_rollout, steps)
        if kernel.conditional:  # each π is drawn at the state it is used at
            bits = jax.vmap(KeyBits)(keys)
            return _visited(
                kernel,
                position,
                bits,
                lambda state, bits: kernel.draw_auxiliary(bits.key(), state.position),
            )
        return rollout(kernel, position, jax.vmap(kernel.auxiliary.sample)(keys))

    return jax.vmap(one)(positions, jr.split(key, positions.shape[0]))


def _visited(
    kernel: Kernel, position: Array, each: PyTree, auxiliary_at: Callable[[State, PyTree], Array]
) -> Rollout:
    """The rollout whose i-th auxiliary is `auxiliary_at(state, each[i])`."""
    start = kernel.init(position)

    def propose(state: State, item: PyTree) -> tuple[State, tuple[Array, Array]]:
        proposal = kernel.propose(state, auxiliary_at(state, item))
        return proposal.state, (proposal.state.position, proposal.log_ratio)

    _, (visited, log_ratio) = jax.lax.scan(propose, start, each)
    return Rollout(jnp.concatenate([start.position[None, :], visited]), log_ratio)


def log_reject(log_accept: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """`log(1 - A)` from `log A`; `NEVER` at A = 1, where the gradient is zero."""
    # so near to 1 that the difference is lost: its derivative 1/(1 - A) would overflow
    certain = log_accept > -jnp.finfo(log_accept.dtype).eps
    inside = jnp.where(certain, -1.0, log_accept)
    return jnp.where(certain, NEVER, jnp.log(-jnp.expm1(inside)))


def log_chi(log_accept: Float[Array, " steps"]) -> Float[Array, " states"]:
    """Return `log χ_{j,b}` for j = 0 … b from `log A_0 … log A_{b-1}`."""
    never = jnp.full((1,), NEVER, log_accept.dtype)
    # the last state has nowhere to go: what is there stays
    stay = jnp.concatenate([log_reject(log_accept), jnp.zeros_like(never)])
    chi = jnp.concatenate([jnp.zeros_like(never), jnp.broadcast_to(never, log_accept.shape)])
    for _ in range(log_accept.shape[0]):
        arrive = jnp.concatenate([never, chi[:-1] + log_accept])
        chi = jnp.maximum(jnp.logaddexp(chi + stay, arrive), NEVER)
    return chi


def expectation(
    values: Float[Array, " states"], log_weights: Float[Array, " states"]
) -> Float[Array, ""]:
    """`Σ_j χ_j D(φ_j)`: the expectation over accept bits, exact given the rollout."""
    return jnp.sum(jnp.exp(log_weights) * values)


def sampled_expectation(
    values: Float[Array, " states"],
    log_accept: Float[Array, " steps"],
    uniforms: Float[Array, " steps"],
) -> Float[Array, ""]:
    """D at the state that sampled accept bits lead to, with the score-function gradient.

    Sampling a bit stops the gradient, so what the parameters do to A is restored by the term
    `D · ∇ log P(bits)`: the estimate has the gradient of `expectation` in the mean.
    """
    reject = log_reject(log_accept)
    at, log_probability = jnp.zeros((), int), jnp.zeros((), log_accept.dtype)
    for uniform in uniforms:
        accepted = jnp.log(uniform) < log_accept[at]
        log_probability += jnp.where(accepted, log_accept[at], reject[at])
        at = at + accepted
    score = jax.lax.stop_gradient(values[at]) * log_probability
    return values[at] + score - jax.lax.stop_gradient(score)

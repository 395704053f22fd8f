"""Multiple-try Metropolis as a distribution of π that depends on the state.

With tries y_1 … y_k ~ q(·|φ), one of them chosen with the weights `w(y|φ) = p(y) / q(y|φ)` and
k - 1 reference points x_2 … x_k ~ q(·|y), let π hold the chosen try first, then the other tries,
then the reference points. Its density is

    Y(π|φ) = k Π_i q(y_i|φ) · w(y_1|φ) / Σ_i w(y_i|φ) · Π_{i>1} q(x_i|y_1),

because the chosen one may have been any of the k. The exchange of φ with y_1 and of the other
tries with the reference points is a permutation block, and the kernel's ratio is
`Σ_i w(y_i|φ) / Σ_i w(x_i|y_1)` with x_1 = φ: that of Liu, Liang and Wong (2000).
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from flowjax.distributions import AbstractDistribution
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Key

from involutive.core.errors import check, check_count


class MultipleTry(AbstractDistribution):
    """The chosen try, the other tries and the reference points of multiple-try Metropolis.

    Args:
        log_density: log p, a function of one state vector.
        proposal: q, a FlowJAX distribution of one state vector; a conditional one is given φ.
        tries: k, at least 2.

    Raises:
        InputError: if there are fewer than two tries, or q is not a distribution of one vector
            given nothing or such a vector.

    Example:
        >>> import involutive as inv
        >>> from involutive.auxiliary import MultipleTry
        >>> target = inv.targets.gaussian(2)
        >>> MultipleTry(target.log_density, inv.standard_normal(2), tries=3).shape
        (10,)
    """

    log_density: Callable[[Array], Array]
    proposal: AbstractDistribution
    tries: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    cond_shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self, log_density: Callable[[Array], Array], proposal: AbstractDistribution, tries: int
    ):
        check_count("tries", tries, least=2)
        given = proposal.cond_shape
        check(
            len(proposal.shape) == 1 and given in (None, proposal.shape),
            f"proposal must be a distribution of one vector, given nothing or the state, got shape "
            f"{proposal.shape} and condition {given}",
        )
        self.log_density, self.proposal, self.tries = log_density, proposal, tries
        self.cond_shape = proposal.shape
        self.shape = ((2 * tries - 1) * proposal.shape[0],)

    def _sample(self, key: Key[Array, ""], condition: Array | None = None) -> Float[Array, " size"]:
        assert condition is not None
        key_tries, key_choice, key_references = jr.split(key, 3)
        tries = self._draw(key_tries, self.tries, condition)
        chosen = jr.categorical(key_choice, self._weights(tries, condition)[0])
        first = tries[chosen]
        tries = tries.at[chosen].set(tries[0]).at[0].set(first)
        references = self._draw(key_references, self.tries - 1, first)
        return jnp.concatenate([tries, references]).reshape(-1)

    def _log_prob(self, x: Array, condition: Array | None = None) -> Float[Array, ""]:
        assert condition is not None
        points = x.reshape(-1, *self.cond_shape)
        tries, references = points[: self.tries], points[self.tries :]
        log_w, log_q = self._weights(tries, condition)
        chosen = log_w[0] - logsumexp(log_w) + jnp.log(self.tries)
        behind = jax.vmap(lambda y: self._log_q(y, tries[0]))(references)
        return jnp.sum(log_q) + chosen + jnp.sum(behind)

    def _draw(self, key: Array, count: int, given: Array) -> Float[Array, "count dim"]:
        condition = None if self.proposal.cond_shape is None else given
        keys = jr.split(key, count)
        return jax.vmap(lambda k: self.proposal.sample(k, condition=condition))(keys)

    def _log_q(self, y: Array, given: Array) -> Float[Array, ""]:
        condition = None if self.proposal.cond_shape is None else given
        return self.proposal.log_prob(y, condition=condition)

    def _weights(self, tries: Array, given: Array) -> tuple[Array, Array]:
        """`log w(y|φ)` and `log q(y|φ)` of every try."""
        log_q = jax.vmap(lambda y: self._log_q(y, given))(tries)
        return jax.vmap(self.log_density)(tries) - log_q, log_q

"""NumPyro models as targets, and a NumPyro kernel that learns its proposal during warm-up."""

import hashlib
import warnings
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import Normal
from jax.core import Tracer
from jaxtyping import Array, Key, PyTree

from involutive.core.errors import check
from involutive.core.keys import KeyLike, as_key
from involutive.interop.extras import require
from involutive.interop.numpyro_model import Model, from_potential, read
from involutive.kernel.kernel import AbstractKernel, State
from involutive.targets.target import Target

require("numpyro", "numpyro")

from numpyro.infer.mcmc import MCMCKernel  # noqa: E402
from numpyro.util import is_prng_key  # noqa: E402

USUAL_WARMUP = 1000  # allows learning the evaluations that its default sizes take
STARTS = 100  # draws from X, of which the first with finite density is taken

Learner = Callable[[Target, Key[Array, ""]], AbstractKernel]

__all__ = ["InvolutiveKernel", "InvolutiveState", "target"]


def __dir__() -> list[str]:
    return list(__all__)


def target(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Target:
    """Return a NumPyro model, given its data, as a target.

    Inside, positions are one flat unconstrained vector; outside, draws are the model's latent and
    deterministic sites in their own supports, with plates as named dimensions.

    Args:
        model: any NumPyro model whose latent sites are continuous.
        *args: the model's arguments.
        **kwargs: the model's keyword arguments.
    """
    return read(model, args, kwargs).target


class InvolutiveState(NamedTuple):
    """One chain's state, under the field names NumPyro and ArviZ know.

    Attributes:
        i: steps made, warm-up included.
        z: the position, unconstrained, by site.
        potential_energy: minus the log density at z.
        accept_prob: the probability with which the last proposal was accepted.
        mean_accept_prob: its mean since warm-up (or, during warm-up, since the start).
        diverging: whether the last proposal had no finite density or did not return.
        rng_key: the key of the next step.
    """

    i: Array
    z: PyTree
    potential_energy: Array
    accept_prob: Array
    mean_accept_prob: Array
    diverging: Array
    rng_key: Array


class _Learned(NamedTuple):
    """A proposal learned for one data set, and the model it was learned for."""

    kernel: AbstractKernel
    model: Model


class InvolutiveKernel(MCMCKernel):
    """A NumPyro kernel with a learned involutive proposal.

    `MCMC(InvolutiveKernel(model), num_warmup=..., num_samples=...)` learns the proposal when
    warm-up begins, then freezes it: the warm-up steps let the chains settle. `num_warmup=1000`
    allows learning as many density evaluations as its default sizes take, another number
    proportionally fewer or more. Running again on the same data uses the same proposal.

    Args:
        model: a NumPyro model with continuous latent sites; or
        potential_fn: minus a log density of any pytree; `run` then needs `init_params`.
        learn: `(target, key) -> kernel`, to use another proposal than that of `inv.learn`, for
            example `lambda target, key: inv.load(path, target)`.
        progress: show the progress of learning; by default on a terminal.
    """

    def __init__(
        self,
        model: Callable[..., Any] | None = None,
        potential_fn: Callable[[Any], Any] | None = None,
        *,
        learn: Learner | None = None,
        progress: bool | None = None,
    ):
        check(
            (model is None) != (potential_fn is None),
            "give either model or potential_fn, got " + ("neither" if model is None else "both"),
        )
        self._model, self._potential_fn = model, potential_fn
        self._learn, self._progress = learn, progress
        self._num_warmup = 0
        self._by_data: dict[Hashable, _Learned] = {}
        self._sample_fn = None  # MCMC calls init while this is None

    @property
    def sample_field(self) -> str:
        """The field of the state that holds a draw."""
        return "z"

    @property
    def default_fields(self) -> tuple[str, ...]:
        """The fields that are always collected."""
        return ("z", "diverging")

    @property
    def model(self) -> Callable[..., Any] | None:
        """The model, where ArviZ looks for it."""
        return self._model

    def init(
        self,
        rng_key: Array,
        num_warmup: int,
        init_params: PyTree = None,
        model_args: tuple = (),
        model_kwargs: dict[str, Any] | None = None,
    ) -> InvolutiveState:
        """Learn the proposal, unless it was learned for this data, and place the chains."""
        batched = not is_prng_key(rng_key)
        self._num_warmup = num_warmup
        data = _fingerprint(model_args, model_kwargs)
        if data not in self._by_data:
            like = jax.tree.map(lambda x: np.zeros(x.shape[batched:]), init_params)
            first = rng_key[0] if batched else rng_key
            self._by_data[data] = _untraced(
                first, lambda key: self._prepare(key, like, model_args, model_kwargs or {})
            )
        learned = self._by_data[data]
        self._sample_fn = self.sample

        def place(key: Array, params: PyTree) -> InvolutiveState:
            return _place(learned, key, params)

        if init_params is None:
            return jax.vmap(lambda k: place(k, None))(rng_key) if batched else place(rng_key, None)
        return jax.vmap(place)(rng_key, init_params) if batched else place(rng_key, init_params)

    def sample(
        self, state: InvolutiveState, model_args: tuple, model_kwargs: dict[str, Any] | None
    ) -> InvolutiveState:
        """Make one step of one chain, or of all chains of a batch."""
        learned = self._by_data.get(_fingerprint(model_args, model_kwargs))
        check(
            learned is not None,
            "the kernel must have learned for the data it samples, got other data; call warmup "
            "or run on it without a post_warmup_state first",
        )

        def step(state: InvolutiveState) -> InvolutiveState:
            return _advance(learned, self._num_warmup, state)  # type: ignore[arg-type]

        return jax.vmap(step)(state) if jnp.ndim(state.i) else step(state)

    def postprocess_fn(
        self, model_args: tuple, model_kwargs: dict[str, Any] | None
    ) -> Callable[[Any], Any]:
        """Return the map from an unconstrained position to constrained sites."""
        return self._by_data[_fingerprint(model_args, model_kwargs)].model.constrain

    def get_diagnostics_str(self, state: InvolutiveState) -> str:
        """The mean acceptance, for NumPyro's progress bar."""
        return f"acc. prob={float(jnp.mean(state.mean_accept_prob)):.2f}"

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: not the compiled proposal, which is learned again."""
        return self.__dict__ | {"_by_data": {}, "_sample_fn": None}

    def _prepare(
        self, rng_key: KeyLike, like: PyTree, args: tuple, kwargs: dict[str, Any]
    ) -> _Learned:
        if self._model is not None:
            model = read(self._model, args, kwargs)
        else:
            assert self._potential_fn is not None  # one of the two is given
            check(like is not None, "init_params must be given with potential_fn, got none")
            model = from_potential(self._potential_fn, like)
        learn = self._learn or self._learn_in_warmup
        return _Learned(learn(model.target, jr.fold_in(as_key(rng_key), 1)), model)

    def _learn_in_warmup(self, goal: Target, key: Key[Array, ""]) -> AbstractKernel:
        from involutive.learning.budget import Budget
        from involutive.learning.learn import learn
        from involutive.learning.settings import BudgetSettings

        share = max(self._num_warmup, 1) / USUAL_WARMUP
        budget = Budget(evaluations=share * BudgetSettings().usual_evaluations)
        learned = learn(goal, key=key, budget=budget, progress=self._progress)
        if not learned.outcome.converged:
            warnings.warn(
                f"the learned proposal does not mix: {learned.outcome.advice} (num_warmup)",
                stacklevel=2,
            )
        return learned


def _untraced(rng_key: Array, work: Callable[[KeyLike], _Learned]) -> _Learned:
    """Run `work` on concrete values also where the chains are traced, as under pmap.

    A trace belongs to its thread, so that another one computes for real. A traced key has no value
    to learn with; key 0 takes its place.
    """
    if not isinstance(rng_key, Tracer):
        return work(rng_key)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work, 0).result()


def _place(learned: _Learned, rng_key: Array, params: PyTree) -> InvolutiveState:
    """A chain at `params`, or at a draw of the initial distribution with finite density."""
    kernel, (goal, restore, _) = learned
    key_start, key_chain = jr.split(rng_key)
    if params is None:
        law = kernel.initial or Normal(jnp.zeros(goal.dim), jnp.ones(goal.dim))
        starts = law.sample(as_key(key_start), (STARTS,))
        finite = jnp.isfinite(jax.jit(jax.vmap(goal.log_density))(starts))
        params = starts[jnp.argmax(finite)]
    state = kernel.init(params)
    zero = jnp.zeros_like(state.log_density)
    z = restore(state.position)
    return InvolutiveState(
        jnp.array(0), z, -state.log_density, zero, zero, jnp.array(False), key_chain
    )


def _advance(learned: _Learned, num_warmup: int, state: InvolutiveState) -> InvolutiveState:
    """One step of one chain."""
    key_next, key_step = jr.split(state.rng_key)
    position = learned.kernel.target.flatten(state.z)
    now = State(position, -state.potential_energy)
    new, info = learned.kernel.step(as_key(key_step), now)
    i = state.i + 1
    count = jnp.where(i <= num_warmup, i, i - num_warmup)
    mean = state.mean_accept_prob + (info.acceptance_rate - state.mean_accept_prob) / count
    return InvolutiveState(
        i=i,
        z=learned.model.restore(new.position),
        potential_energy=-new.log_density,
        accept_prob=info.acceptance_rate,
        mean_accept_prob=mean,
        diverging=info.nonfinite | info.irreversible,
        rng_key=key_next,
    )


def _fingerprint(args: tuple, kwargs: dict[str, Any] | None) -> Hashable:
    """What tells one data set from another: the bytes of its arrays."""
    leaves, tree = jax.tree.flatten((args, kwargs or {}))
    check(
        not any(isinstance(leaf, Tracer) for leaf in leaves),
        "the model's data must be concrete, so that a proposal can be learned for it, got a traced "
        "array; use MCMC(jit_model_args=False) and call run outside jit and vmap",
    )
    return tree, *(_mark(leaf) for leaf in leaves)


def _mark(leaf: object) -> Hashable:
    values = np.asarray(leaf)
    if values.dtype == object:
        return id(leaf)
    digest = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
    return values.shape, values.dtype.str, digest

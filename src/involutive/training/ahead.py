"""Compile training and the chains of the rounds beside the search for modes.

A model need not be safe to trace in two threads at once, so all tracing stays in the caller's
thread and only XLA's part, which is most of it, runs in another. JAX then finds the programs when
the functions are called.
"""

from concurrent.futures import Future, ThreadPoolExecutor, wait
from importlib import import_module
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array

from involutive.compiled import on_device
from involutive.involutions import FunctionBlock
from involutive.kernel import Kernel, Mixture
from involutive.sampling.chains import BLOCK, Chains, law_draws
from involutive.sampling.run import CHUNK
from involutive.targets import Target
from involutive.training import coverage, figures, local, loop, mixture_fit
from involutive.training.decay import DECAYED_ADAM
from involutive.training.likelihood import LogVariance, proposal_law
from involutive.training.recipe import Recipe
from involutive.training.whitening import whitening

TRAINING, ROUNDS, END = 1, 2, 3  # the stages


class Ahead:
    """Programs that are being compiled in the background, one after the other, in stages."""

    def __init__(self) -> None:
        self._pool, self._stages = ThreadPoolExecutor(1), list[list[Future[Any]]]()

    def begin(self) -> None:
        """What is added from here on belongs to the next stage."""
        self._stages.append([])

    def compile(self, function: Any, *arguments: Any) -> None:
        """Trace `function` now and compile it beside what the caller does next."""
        self._stages[-1].append(self._pool.submit(function.lower(*arguments).compile))

    def load(self, module: str) -> None:
        """Import a module."""
        self._stages[-1].append(self._pool.submit(import_module, module))

    def wait(self, last: int) -> None:
        """Wait for the stages up to `last`; what failed will fail again where it is called."""
        wait([future for stage in self._stages[:last] for future in stage])

    def close(self) -> None:
        """Begin nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def training_ahead(
    ahead: Ahead, target: Target, law: AbstractDistribution, recipe: Recipe, key: Any
) -> Kernel:
    """Stage one: begin to compile what the first training of a mixture calls; return its like."""
    ahead.begin()
    dummy = np.random.default_rng(0).normal(size=(recipe.rows, target.dim))
    data, held = loop.split_samples(dummy.astype(jnp.result_type(float)), key)
    means = _mixture_ahead(ahead, data, recipe.ladder(target.dim)[0])
    parts = _unit(means)
    ahead.compile(mixture_fit.law, parts)
    auxiliary = _like(mixture_fit.law_of, parts)
    kernel = Kernel(target, FunctionBlock(whitening(data)), auxiliary, law)
    objective = LogVariance(DECAYED_ADAM, recipe.batch)
    memory = _like(objective.init, kernel, key)
    _judging_ahead(ahead, kernel, key)
    ahead.compile(loop.held_out, objective, kernel, held, key)
    ahead.compile(loop.run_chunk, objective, kernel, memory, data, key, jnp.asarray(1))
    return kernel


def rounds_ahead(ahead: Ahead, kernel: Kernel, key: Any, keys: Array, gradients: bool) -> None:
    """Stages two and three: what the rounds and the end call for a proposal like `kernel`.

    The end does without gradients if the proposal is good.
    """
    ahead.begin()
    dim = kernel.target.dim
    rows = _floats(np.random.default_rng(1).normal(size=(local.FACTOR_POINTS, dim)))
    _mixture_ahead(ahead, rows, local.factor_components(dim))
    ahead.compile(coverage.latent_points, kernel, key)
    wide = _unit(np.zeros((1, dim)))
    ahead.compile(coverage.with_tails, kernel.auxiliary, wide, None)
    cover = _like(coverage.with_tails.__wrapped__, kernel.auxiliary, wide, None)
    covered = eqx.tree_at(lambda k: k.auxiliary, kernel, cover)
    _moving_ahead(ahead, covered, key, gradients)
    ahead.compile(law_draws, proposal_law(kernel), keys, jnp.asarray(0))
    ahead.load("involutive.interop.arviz")  # the last stage needs it
    ahead.begin()
    if gradients:
        _moving_ahead(ahead, covered, key, False)


def _moving_ahead(ahead: Ahead, proposal: Kernel, key: Any, gradients: bool) -> None:
    """Begin to compile a local move's tuning, and chains that mix it with a proposal."""
    dim = proposal.target.dim
    starts, unit = _floats(np.zeros((local.POINTS, dim))), _floats(np.eye(dim))
    move, goal = local.untuned(proposal.target, unit, gradients, proposal.initial)
    ahead.compile(local.tuned, move, starts, key, goal)
    mover = Mixture([move, proposal], [0.5, 0.5])
    ahead.compile(Chains(mover, key, range(BLOCK), capacity=CHUNK))


def _unit(means: np.ndarray) -> mixture_fit.Components:
    """Components of unit covariance."""
    count, dim = means.shape
    parts = (np.full(count, -np.log(count)), means, np.tile(np.eye(dim), (count, 1, 1)))
    return mixture_fit.Components(*map(_floats, parts))


def _like(function: Any, *arguments: Any) -> Any:
    """Zeros of the shapes that `function` returns; to run it would wait for the other thread."""

    def zeros(leaf: Any) -> Array:
        # a number of Python's own has a type that yields to others, and is compiled as such
        return (
            jnp.asarray(leaf.dtype.type(0).item())
            if leaf.weak_type
            else on_device(np.zeros(leaf.shape, leaf.dtype))
        )

    return jax.tree.map(zeros, eqx.filter_eval_shape(function, *arguments))


def _floats(values: np.ndarray) -> Array:
    return on_device(values.astype(jnp.result_type(float)))


def _mixture_ahead(ahead: Ahead, data: Array, count: int) -> np.ndarray:
    """Begin to compile the fit of a mixture; return as many rows as it has components."""
    seeds = np.asarray(data)[: mixture_fit.most_components(count, data)]
    weights = _floats(np.ones(len(data)))
    ahead.compile(mixture_fit.expectation_maximisation, data, weights, on_device(seeds))
    return seeds


def _judging_ahead(ahead: Ahead, kernel: Kernel, key: Any) -> None:
    points = _floats(np.zeros((figures.ROWS, kernel.target.dim)))
    ahead.compile(figures.many_draws, proposal_law(kernel), key)
    ahead.compile(figures.log_weights_at, kernel, points)

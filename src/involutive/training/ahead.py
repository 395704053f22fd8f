"""Compile training and the chains of the rounds beside the search for modes.

A model need not be safe to trace in two threads at once, so all tracing stays in the caller's
thread and only XLA's part, which is most of it, runs in another. JAX then finds the programs when
the functions are called.
"""

from concurrent.futures import Future, ThreadPoolExecutor, wait
from importlib import import_module
from typing import Any

import jax.numpy as jnp
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array

from involutive.involutions import FunctionBlock
from involutive.kernel import Kernel, Mixture
from involutive.sampling.chains import BLOCK, Chains, fold_all, law_draws
from involutive.sampling.run import CHUNK
from involutive.targets import Target
from involutive.training import coverage, figures, local, loop, mixture_fit
from involutive.training.decay import DECAYED_ADAM, decaying
from involutive.training.likelihood import LogVariance, proposal_law
from involutive.training.recipe import Recipe
from involutive.training.whitening import whitening

TRAINING, ROUNDS = 1, 2  # the stages


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
    weights, start = _first_guess(data, recipe.ladder(target.dim)[0])
    kernel = Kernel(target, FunctionBlock(whitening(data)), start.law(), law)
    objective = LogVariance(DECAYED_ADAM, recipe.batch)
    memory = decaying(objective.init(kernel, key), recipe.learning_rate, recipe.tune_steps)
    ahead.compile(mixture_fit.expectation_maximisation, data, weights, start)
    _judging_ahead(ahead, kernel, key)
    ahead.compile(loop.held_out, objective, kernel, held, key)
    ahead.compile(loop.run_chunk, objective, kernel, memory, data, key, jnp.asarray(1))
    return kernel


def rounds_ahead(ahead: Ahead, kernel: Kernel, key: Any, gradients: bool) -> None:
    """Stage two: begin to compile what the rounds and the end call for a proposal like `kernel`."""
    ahead.begin()
    target, dim = kernel.target, kernel.target.dim
    rows = np.random.default_rng(1).normal(size=(local.FACTOR_POINTS, dim))
    points, starts, unit = (_floats(part) for part in (rows, rows[: local.POINTS], np.eye(dim)))
    weights, start = _first_guess(points, local.factor_components(dim))
    ahead.compile(mixture_fit.expectation_maximisation, points, weights, start)
    move, goal = local.untuned(target, unit, gradients, kernel.initial)
    ahead.compile(local.tuned, move, starts, key, goal)
    ahead.compile(coverage.latent_points, kernel, key)
    one = (np.zeros(1), np.zeros((1, dim)), np.eye(dim)[None])
    wide = mixture_fit.Components(*map(_floats, one)).law()
    if not gradients:  # the number of HMC's steps is not known yet
        mover = Mixture([move, coverage.with_cover(kernel, wide)], [0.5, 0.5])
        ahead.compile(Chains(mover, key, range(BLOCK), capacity=CHUNK))
    _judging_ahead(ahead, coverage.with_cover(kernel, wide, 0.0), key)
    keys = fold_all(key, jnp.asarray(np.arange(BLOCK)))
    ahead.compile(law_draws, proposal_law(kernel), keys, jnp.asarray(0))
    ahead.load("involutive.interop.arviz")  # the last stage needs it


def _floats(values: np.ndarray) -> Array:
    return jnp.asarray(values, jnp.result_type(float))


def _first_guess(data: Array, count: int) -> tuple[Array, mixture_fit.Components]:
    weights = jnp.asarray(np.ones(len(data)), data.dtype)
    count = mixture_fit.most_components(count, data)
    return weights, mixture_fit.first_guess(data, weights, jnp.asarray(np.asarray(data)[:count]))


def _judging_ahead(ahead: Ahead, kernel: Kernel, key: Any) -> None:
    points = _floats(np.zeros((figures.ROWS, kernel.target.dim)))
    ahead.compile(figures.log_weights_of_draws, kernel, key)
    ahead.compile(figures.log_weights_at, kernel, points)

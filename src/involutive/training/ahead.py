"""Compile the training of a mixture beside the search for modes.

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

from involutive.involutions import FunctionBlock
from involutive.kernel import Kernel
from involutive.targets import Target
from involutive.training import figures, loop, mixture_fit
from involutive.training.decay import DECAYED_ADAM, decaying
from involutive.training.likelihood import LogVariance
from involutive.training.recipe import Recipe
from involutive.training.whitening import whitening


class Ahead:
    """Programs that are being compiled in the background."""

    def __init__(self) -> None:
        self._pool, self._futures = ThreadPoolExecutor(1), list[Future[Any]]()

    def compile(self, function: Any, *arguments: Any) -> None:
        """Trace `function` now and compile it beside what the caller does next."""
        self._futures.append(self._pool.submit(function.lower(*arguments).compile))

    def load(self, module: str) -> None:
        """Import a module."""
        self._futures.append(self._pool.submit(import_module, module))

    def wait(self) -> None:
        """Wait until all is done; what failed will fail again where it is called."""
        wait(self._futures)
        self._pool.shutdown()


def training_ahead(target: Target, law: AbstractDistribution, recipe: Recipe, key: Any) -> Ahead:
    """Begin to compile what the first training of a mixture calls."""
    dummy = np.random.default_rng(0).normal(size=(recipe.rows, target.dim))
    data, held = loop.split_samples(dummy.astype(jnp.result_type(float)), key)
    weights = jnp.asarray(np.ones(len(data)), data.dtype)
    count = mixture_fit.most_components(recipe.ladder(target.dim)[0], data)
    seeds = jnp.asarray(np.asarray(data)[:count])
    start = mixture_fit.first_guess(data, weights, seeds)
    kernel = Kernel(target, FunctionBlock(whitening(data)), start.law(), law)
    objective = LogVariance(DECAYED_ADAM, recipe.batch)
    memory = decaying(objective.init(kernel, key), recipe.learning_rate, recipe.tune_steps)
    ahead = Ahead()
    ahead.compile(mixture_fit.expectation_maximisation, data, weights, start)
    ahead.compile(figures.log_weights_of_draws, kernel, key)
    ahead.compile(figures.log_weights_at, kernel, data[: figures.ROWS])
    ahead.compile(loop.held_out, objective, kernel, held, key)
    ahead.compile(loop.run_chunk, objective, kernel, memory, data, key, jnp.asarray(1))
    ahead.load("involutive.interop.arviz")  # the last stage needs it
    return ahead

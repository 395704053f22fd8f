"""Compile chains and training beside what learning does on the host.

A model need not be safe to trace in two threads at once, so all tracing stays in the caller's
thread and what follows, which is most of it, runs in another. JAX then finds the programs when the
functions are called.
"""

from concurrent.futures import Future, ThreadPoolExecutor, wait
from importlib import import_module
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from involutive._xla.compilation import on_device
from involutive.kernel.kernel import Kernel
from involutive.learning.fit.recipe import Recipe
from involutive.learning.judge import independence as figures
from involutive.learning.outcome import compose
from involutive.learning.refine import local
from involutive.sampling.runner import BLOCK, Chains, fold_all, law_draws
from involutive.sampling.sample import CHUNK
from involutive.training import fit as loop
from involutive.training.likelihood import LogVariance, proposal_law
from involutive.training.schedules import DECAYED_ADAM

CHAINS, START, TRAINING = 1, 2, 3  # the stages


class Ahead:
    """Programs that are being compiled in the background, one after the other, in stages."""

    def __init__(self) -> None:
        self._pool, self._stages = ThreadPoolExecutor(1), dict[int, list[Future[Any]]]()
        self._stage = CHAINS

    def begin(self, stage: int) -> None:
        """What is added from here on belongs to that stage."""
        self._stage = stage

    def compile(self, function: Any, *arguments: Any) -> None:
        """Trace `function` now and compile it beside what the caller does next."""
        if hasattr(function, "trace"):
            traced = function.trace(*arguments)
            self._add(lambda: traced.lower().compile())
        else:
            self._add(function.lower(*arguments).compile)

    def load(self, module: str) -> None:
        """Import a module."""
        self._add(import_module, module)

    def _add(self, task: Any, *arguments: Any) -> None:
        self._stages.setdefault(self._stage, []).append(self._pool.submit(task, *arguments))

    def wait(self, stage: int) -> None:
        """Wait for a stage; what failed will fail again where it is called."""
        wait(self._stages.get(stage, []))

    def close(self) -> None:
        """Begin nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def training_ahead(ahead: Ahead, kernel: Kernel, recipe: Recipe, key: Any) -> None:
    """Begin to compile what the training of a mixture like that of `kernel` calls."""
    ahead.begin(TRAINING)
    zeros = np.zeros((recipe.rows, kernel.target.dim), jnp.result_type(float))
    data, held = loop.split_samples(zeros, key)
    objective = LogVariance(DECAYED_ADAM, recipe.batch)
    memory = _like(objective.init, kernel, key)
    points = _floats(np.zeros((figures.ROWS, kernel.target.dim)))
    ahead.compile(figures.many_draws, proposal_law(kernel), key)
    ahead.compile(figures.log_weights_at, kernel, points)
    ahead.compile(loop.held_out, objective, kernel, held, key)
    run = loop.run_chunk(kernel, recipe.tune_steps)
    ahead.compile(run, objective, kernel, memory, data, key, jnp.asarray(1))


def chains_ahead(ahead: Ahead, proposal: Kernel, start: Kernel, key: Any, gradients: bool) -> None:
    """Begin to compile chains of a proposal and a local move, from another proposal's law.

    The move is HMC before every proposal with `gradients`, and else a random walk now and then.
    """
    ahead.begin(CHAINS)
    ahead.load("involutive.interop.arviz")  # what judges them
    unit = np.eye(proposal.target.dim)
    move, _ = local.untuned(proposal.target, unit, gradients, proposal.initial)
    mover = compose(proposal, move, 1.0 if gradients else 0.5)
    ahead.compile(Chains(mover, key, range(BLOCK), capacity=CHUNK))
    ahead.begin(START)
    keys = fold_all(key, on_device(np.arange(BLOCK)))
    ahead.compile(law_draws, proposal_law(start), keys, jnp.asarray(0))


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

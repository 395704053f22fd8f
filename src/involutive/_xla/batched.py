"""A log density of many rows, given and returned on the host.

Symptom: `jax.jit` compiles a density afresh for every number of rows, and a search asks for many.
Seen with jax 0.10.2: `python -m involutive.bench.xla rows` evaluates mog6 at 20 different numbers
of rows, compilation included, in 3.54 s by `jit` and in 0.12 s here, where rows are cut into blocks
of one size. Three small programs are all there is to compile: the density, its gradient and its
Hessian, each mapped over a block.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.distributions import AbstractDistribution, Normal
from jaxtyping import Array, Key, PyTree

from involutive._xla.compilation import SHORT, Jitted, jit_once, on_device
from involutive._xla.cost import much_work
from involutive._xla.program import factorises_many, program_of
from involutive.core.keys import generator
from involutive.core.types import Number

BLOCK = 512  # rows per call: enough to keep a core busy
WIDE = 16 * BLOCK  # rows per call of many: a call may have to wait for XLA's threads
GRADIENT = 3  # evaluations that a gradient counts as


def in_blocks(program: Callable[[Array], PyTree], rows: np.ndarray, size: int) -> PyTree:
    """The results of a compiled program at every row, in NumPy arrays.

    Blocks of `size` rows serve any number of rows with one compilation; the last one repeats its
    own rows. Every block is sent before the first result is awaited, unless `program` waits.
    """
    parts = []
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        full = part if len(part) == size else part[np.resize(np.arange(len(part)), size)]
        parts.append(program(on_device(full)))
    return jax.tree.map(
        lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves])[: len(rows)], *parts
    )


class OutOfBudget(Exception):
    """The next batch would exceed the evaluations or the time that a stage was given."""


class BatchedDensity:
    """A log density of one vector, evaluated on as many rows as asked for.

    Args:
        function: the log density of one vector.
        dim: its number of coordinates.
        block: rows per compiled call.
        limit: evaluations after which `OutOfBudget` is raised instead of the next batch.
        deadline: the same for `time.perf_counter()`.

    Attributes:
        evaluations: how many were made; a gradient counts as three, a Hessian as three per
            coordinate.
        spent: whether a batch was refused.
        infinite: the first point at which the density was found to be infinite, or None.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        dim: int,
        block: int = BLOCK,
        limit: Number = float("inf"),
        deadline: Number = float("inf"),
    ):
        self.dim, self.block, self.evaluations = dim, block, 0
        self.limit, self.deadline, self.spent = limit, deadline, False
        self.infinite: np.ndarray | None = None
        self.dtype = jnp.result_type(float)
        # a density of the host (a NumPy function, perhaps on a pool) is called for given rows alone
        self._on_host = getattr(function, "rows", None)
        program = program_of(function, dim)
        compiled = _WELL if much_work(program) else _QUICKLY
        self._values, self._gradients, self._hessians = (partial(c, function) for c in compiled)
        # such calls wait for each other for ever if two run at once
        self._alone = factorises_many(program)

    @property
    def left(self) -> float:
        """Evaluations left."""
        return self.limit - self.evaluations

    def values(self, points: np.ndarray) -> np.ndarray:
        """The log density at every row."""
        if self._on_host is not None:
            return self._noted(points, self._each_on_host(points))
        if not len(points):
            return np.zeros(0, self.dtype)
        self._spend(len(points))
        block = WIDE if self.block == BLOCK and len(points) >= WIDE else self.block
        return self._noted(points, self._each(self._values, points, block)[0])

    def gradients(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The log density and its gradient at every row."""
        if not len(points):
            return np.zeros(0, self.dtype), np.zeros((0, self.dim), self.dtype)
        self._spend(GRADIENT * len(points))
        values, gradients = self._each(self._gradients, points, self.block)
        return self._noted(points, values), gradients

    def hessians(self, points: np.ndarray) -> np.ndarray:
        """The matrix of second derivatives at every row."""
        if not len(points):
            return np.zeros((0, self.dim, self.dim), self.dtype)
        self._spend(GRADIENT * self.dim * len(points))
        return self._each(self._hessians, points, self.block)[0]

    def _noted(self, points: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The values, after the first point with an infinite density was remembered."""
        if self.infinite is None and np.isposinf(values).any():
            self.infinite = points[np.flatnonzero(np.isposinf(values))[0]]
        return values

    def _spend(self, count: int) -> None:
        if self.evaluations + count > self.limit or time.perf_counter() > self.deadline:
            self.spent = True
            raise OutOfBudget
        self.evaluations += count

    def _each_on_host(self, points: np.ndarray) -> np.ndarray:
        """The values of a density of the host, in batches between which the budget is checked."""
        assert self._on_host is not None
        parts = [points[:0, 0]]
        for i in range(0, len(points), self.block):
            rows = points[i : i + self.block]
            self._spend(len(rows))
            parts.append(np.asarray(self._on_host(rows), points.dtype))
        return np.concatenate(parts)

    def _each(
        self, program: Callable[[Array], tuple[Array, ...]], points: np.ndarray, block: int
    ) -> tuple[np.ndarray, ...]:
        def one(rows: Array) -> tuple[Array, ...]:
            if time.perf_counter() > self.deadline:
                self.spent = True
                raise OutOfBudget
            part = program(rows)
            return jax.block_until_ready(part) if self._alone else part

        return in_blocks(one, points, block)


def _scalar(function: Callable[..., Any]) -> Callable[[Array], Array]:
    return lambda x: jnp.asarray(function(x), x.dtype)


def _values(function: Callable[..., Any], points: Array) -> tuple[Array]:
    return (jax.vmap(_scalar(function))(points),)


def _gradients(function: Callable[..., Any], points: Array) -> tuple[Array, Array]:
    return jax.vmap(jax.value_and_grad(_scalar(function)))(points)


def hessians(function: Callable[..., Any], points: Array) -> tuple[Array]:
    return (jax.vmap(jax.hessian(_scalar(function)))(points),)


_QUICKLY, _WELL = (
    [Jitted(program, options) for program in (_values, _gradients, hessians)]
    for options in (SHORT, {})
)


class BatchedDistribution:
    """A distribution X on the host: draws and log densities; of a normal without JAX."""

    def __init__(self, law: AbstractDistribution, block: int = BLOCK):
        self.law, self.dim = law, law.shape[0]
        self._normal = type(law) is Normal
        if self._normal:
            self._centre, self._scale = (np.asarray(x) for x in (law.loc, law.scale))  # type: ignore[attr-defined]
        self._density = None if self._normal else BatchedDensity(_LogProb(law), self.dim, block)

    @property
    def evaluations(self) -> int:
        """Log densities computed so far; 0 for a normal, which costs next to nothing."""
        return 0 if self._density is None else self._density.evaluations

    def draws(self, key: Key[Array, ""], count: int) -> np.ndarray:
        """`count` draws of X."""
        if not self._normal:
            return np.asarray(_law_draws(self.law, key, count))
        noise = generator(key).normal(size=(count, self.dim)).astype(self._centre.dtype)
        return self._centre + self._scale * noise

    def values(self, points: np.ndarray) -> np.ndarray:
        """The log density of X at every row."""
        if self._density is not None:
            return self._density.values(points)
        white = (points - self._centre) / self._scale
        constant = np.sum(np.log(self._scale)) + 0.5 * self.dim * np.log(2 * np.pi)
        return -0.5 * np.sum(white**2, axis=1) - constant.astype(points.dtype)

    def gradients(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The log density of X and its gradient at every row."""
        if self._density is not None:
            return self._density.gradients(points)
        return self.values(points), -(points - self._centre) / self._scale**2


class _LogProb(eqx.Module):
    law: AbstractDistribution

    def __call__(self, x: Array) -> Array:
        return self.law.log_prob(x)


@jit_once
def _law_draws(law: AbstractDistribution, key: Array, count: int) -> Array:
    return law.sample(key, (count,))

"""A log density of many rows, given and returned on the host.

The search for modes runs on the host and calls the density here, so that three small programs are
all there is to compile: the density, its slope, its curvature. Written as one program for XLA, the
search took four times as long to compile as to run.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from flowjax.distributions import AbstractDistribution, Normal
from jaxtyping import Array, Key

from involutive._xla.compilation import SHORTEST, Jitted, jit_once, on_device
from involutive._xla.cost import much_work
from involutive._xla.program import factorises_many, program_of
from involutive.core.keys import generator

BLOCK = 512  # rows a call: enough to keep a core busy
WIDE = 16 * BLOCK  # of many rows: beside XLA's compiler every call may have to wait for its threads
GRADIENT = 3  # evaluations that a slope counts as


class Rows:
    """`function` of one vector, evaluated on rows, as many as asked for, in blocks of one size.

    Attributes:
        evaluations: how many were made; a slope counts as three, a curvature as three a coordinate.
    """

    def __init__(self, function: Callable, dim: int, block: int = BLOCK):
        self.dim, self.block, self.evaluations = dim, block, 0
        self.dtype = jnp.result_type(float)
        # a density of the host (a NumPy function, perhaps on a pool) is called for given rows alone
        self._on_host = getattr(function, "rows", None)
        program = program_of(function, dim)
        compiled = _WELL if much_work(program) else _QUICKLY
        self._values, self._slopes, self._curvatures = (c.with_first(function) for c in compiled)
        # such calls wait for each other for ever if two run at once
        self._alone = factorises_many(program)

    def values(self, points: np.ndarray) -> np.ndarray:
        """The function at every row."""
        self.evaluations += len(points)
        if self._on_host is not None:
            return self._on_host(points)
        block = WIDE if self.block == BLOCK and len(points) >= WIDE else self.block
        return self._each(self._values, points, block)[0]

    def slopes(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The function and its gradient at every row."""
        self.evaluations += GRADIENT * len(points)
        values, slopes = self._each(self._slopes, points, self.block)
        return values, slopes

    def curvatures(self, points: np.ndarray) -> np.ndarray:
        """The matrix of second derivatives at every row."""
        self.evaluations += GRADIENT * self.dim * len(points)
        return self._each(self._curvatures, points, self.block)[0]

    def _each(self, program: Any, points: np.ndarray, block: int) -> list[np.ndarray]:
        count = len(points)
        padded = points[np.resize(np.arange(count), -(-count // block) * block)]
        parts = []
        for rows in padded.reshape(-1, block, self.dim):
            part = program(on_device(rows))
            parts.append(jax.block_until_ready(part) if self._alone else part)
        return [
            np.concatenate([np.asarray(leaf) for leaf in leaves])[:count]
            for leaves in zip(*parts, strict=True)
        ]


def _scalar(function: Callable) -> Callable:
    return lambda x: jnp.asarray(function(x), x.dtype)


def _values(function: Callable, points: Array) -> tuple[Array]:
    return (jax.vmap(_scalar(function))(points),)


def _slopes(function: Callable, points: Array) -> tuple[Array, Array]:
    return jax.vmap(jax.value_and_grad(_scalar(function)))(points)


def _curvatures(function: Callable, points: Array) -> tuple[Array]:
    return (jax.vmap(jax.hessian(_scalar(function)))(points),)


_QUICKLY, _WELL = (
    [Jitted(program, options) for program in (_values, _slopes, _curvatures)]
    for options in (SHORTEST, {})
)


class LawRows:
    """A law X on the host: draws, and its log density with slopes; of a normal without JAX."""

    def __init__(self, law: AbstractDistribution, block: int = BLOCK):
        self.law, self.dim = law, law.shape[0]
        self._normal = type(law) is Normal
        if self._normal:
            self._centre, self._spread = (np.asarray(x) for x in (law.loc, law.scale))  # type: ignore[attr-defined]
        self._rows = Rows(_LogDensity(law), self.dim, block) if not self._normal else None

    def draws(self, key: Key[Array, ""], count: int) -> np.ndarray:
        """`count` draws of X."""
        if not self._normal:
            return np.asarray(_law_draws(self.law, key, count))
        noise = generator(key).normal(size=(count, self.dim)).astype(self._centre.dtype)
        return self._centre + self._spread * noise

    def values(self, points: np.ndarray) -> np.ndarray:
        """The log density of X at every row."""
        if self._rows is not None:
            return self._rows.values(points)
        white = (points - self._centre) / self._spread
        constant = np.sum(np.log(self._spread)) + 0.5 * self.dim * np.log(2 * np.pi)
        return -0.5 * np.sum(white**2, axis=1) - constant.astype(points.dtype)

    def slopes(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The log density of X and its gradient at every row."""
        if self._rows is not None:
            return self._rows.slopes(points)
        return self.values(points), -(points - self._centre) / self._spread**2


class _LogDensity(eqx.Module):
    law: AbstractDistribution

    def __call__(self, x: Array) -> Array:
        return self.law.log_prob(x)


@jit_once
def _law_draws(law: AbstractDistribution, key: Array, count: int) -> Array:
    return law.sample(key, (count,))

"""Densities that are no JAX programs: NumPy, SciPy, wrapped C; called on the host.

The function is called with NumPy values and nothing else is asked of it: it is never traced, and
pickled only if a pool of processes needs it. Without a pool its calls are made one after the other,
so that it may hold files, locks and state of C. In a compiled run the calls of all chains arrive
together through `jax.pure_callback`; the search of `learn` calls it by rows.

A call that raises, or gives NaN or something else than a number, counts as NaN: the move is
rejected and counted. The first such calls are named in a warning with their parameters.
"""

import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from involutive.core.errors import InputError, check, check_count
from involutive.core.text import in_words
from involutive.targets.by_name import Arguments, arguments_of
from involutive.targets.executors import Executor, Pool
from involutive.targets.parameters import Parameters, Vector
from involutive_worker import Batch, Density

NAMED = 3  # calls that fail which are named in warnings; all are counted
KEPT = 100  # calls that fail which are kept with their parameters
STEP = 1e-5  # relative step of the central differences of a gradient, for curvatures; a guess


class Failed(NamedTuple):
    """A call that gave no number: its parameters, and what happened."""

    parameters: dict[str, Any]
    words: str


class BlackBox:
    """A NumPy log density, with what it cost and where it failed.

    Args:
        density: the function and how it is called.
        size: how many numbers make a point.
        executor: a pool to spread calls over, or None.
        name: of the function, for messages.

    Attributes:
        calls: how many points were evaluated.
        seconds: seconds per call, as measured; None before the first.
        failed: how many calls gave no number.
        failures: the first of them, with their parameters.
    """

    def __init__(self, density: Density, size: int, executor: Executor | None, name: str):
        self.density, self.size, self.name = density, size, name
        self.pool = None if executor is None else Pool(executor, density)
        self.calls, self.failed, self.failures = 0, 0, list[Failed]()
        self.seconds: float | None = None
        self._lock = threading.Lock()

    def use(self, executor: Executor, load: Callable[[], Density] | None = None) -> None:
        """Spread calls over a pool from now on; `load` makes the density on each worker."""
        known = self.density
        density = Density(
            known.function, known.value_and_grad, known.how, known.shapes, known.vectorized, load
        )
        self.pool = Pool(executor, density)

    @property
    def has_gradient(self) -> bool:
        """Whether the user gave `value_and_grad`."""
        return self.density.value_and_grad is not None

    def rows(self, points: np.ndarray, slopes: bool = False) -> np.ndarray:
        """Return the log density at every row; with `slopes`, the gradient beside it."""
        points = np.asarray(points, float)
        if not len(points):
            return np.zeros((0, 1 + self.size) if slopes else 0)
        with self._lock:
            began = time.perf_counter()
            batch = (
                self.density.batch(points, slopes)
                if self.pool is None
                else self.pool.rows(points, slopes)
            )
            each = (time.perf_counter() - began) / len(points)
            self.calls += len(points)
            if self.pool is not None and self.pool.seconds is not None:
                each = self.pool.seconds
            self.seconds = each if self.seconds is None else 0.8 * self.seconds + 0.2 * each
            self._note(points, batch)
        return batch.outputs if slopes else batch.outputs[:, 0]

    def described(self, point: np.ndarray) -> dict[str, Any]:
        """The parameters of a point by name, as the function gets them."""
        if not self.density.shapes:
            return {f"x[{i}]": float(value) for i, value in enumerate(point)}
        values, at = {}, 0
        for name, shape in self.density.shapes.items():
            count = int(np.prod(shape))
            part = point[at : at + count].reshape(shape)
            values[name] = part.tolist() if shape else float(part)
            at += count
        return values

    def check(self, points: np.ndarray) -> None:
        """Call the function before any work: it must give a number, and the same one twice."""
        for point in points:
            batch = self.density.batch(point[None], False)
            first = batch.outputs[0, 0]
            if batch.failures and not batch.failures[0].words.startswith("returned"):
                raise InputError(
                    f"log_density of {self.name} must give a number at every position, but at "
                    f"{in_words(self.described(point))} {_said(batch.failures[0].words)}"
                )
            if np.isfinite(first):
                break
        else:
            return
        second = self.density.batch(point[None], False).outputs[0, 0]
        check(
            np.isclose(first, second, rtol=1e-9, atol=1e-9, equal_nan=True),
            f"log_density of {self.name} must give the same value at the same position, got "
            f"{first:.8g} and then {second:.8g} at {in_words(self.described(point))}; take random "
            "numbers and changing state out of it",
        )
        if self.has_gradient:
            self._check_gradient(point, float(first))

    def _check_gradient(self, point: np.ndarray, value: float) -> None:
        """Call `value_and_grad` once: it must give the same value, and a gradient beside it."""
        batch = self.density.batch(point[None], True)
        rule = f"value_and_grad of {self.name} must return the log density and its gradient"
        at = in_words(self.described(point))
        if batch.failures:
            raise InputError(f"{rule}, but at {at} {_said(batch.failures[0].words)}")
        check(
            np.isclose(batch.outputs[0, 0], value, rtol=1e-4, atol=1e-4),
            f"{rule}, but at {at} it gives {batch.outputs[0, 0]:.8g} where the log density is "
            f"{value:.8g}; return the same value from both",
        )

    def _note(self, points: np.ndarray, batch: Batch) -> None:
        for failure in batch.failures:
            self.failed += 1
            if self.failed <= KEPT:
                known = Failed(self.described(points[failure.row]), failure.words)
                self.failures.append(known)
                if self.failed <= NAMED:
                    warnings.warn(
                        f"log_density of {self.name} gave no number at "
                        f"{in_words(known.parameters)}: {_said(failure.words)}; the call counts as "
                        "NaN, and moves there are rejected and counted",
                        stacklevel=2,
                    )


def _said(words: str) -> str:
    return words if words.startswith("it") else f"it {words}"


class OnHost(eqx.Module):
    """A black box as a density of the flat vector, for JAX, and for rows on the host."""

    box: BlackBox = eqx.field(static=True)
    parameters: Parameters | None = eqx.field(static=True, default=None)

    def __call__(self, x: Vector) -> Float[Array, ""]:
        flat, log_term = self._values(x)
        function = _differentiable(self.box) if self.box.has_gradient else partial(_value, self.box)
        return function(flat) + log_term

    def rows(self, points: np.ndarray) -> np.ndarray:
        """Return the log density at every row; the function is called for these rows alone."""
        points = np.asarray(points, jnp.result_type(float))
        if self.parameters is None:
            return _cast(self.box.rows(points), points.dtype)
        flat, term = map(np.asarray, over_rows(self._values, points))
        values, inside = np.full(len(points), -np.inf), np.isfinite(term)
        values[inside] = self.box.rows(flat[inside]) + term[inside]
        return _cast(values, points.dtype)

    def check(self, points: Array | np.ndarray) -> None:
        """Call the function at flat points before any work; say what is wrong with it."""
        points = np.asarray(points, jnp.result_type(float))
        self.box.check(np.asarray(over_rows(self._values, points)[0], float))

    def _values(self, x: Vector) -> tuple[Array, Array]:
        """What the function takes, in one vector, and the log prior plus log-Jacobian."""
        if self.parameters is None:
            return x, jnp.zeros((), x.dtype)
        values, log_term = self.parameters.values_and_log_term(x)
        return jnp.concatenate([jnp.ravel(value) for value in values.values()]), log_term


def _cast(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Values in the width of JAX; -1e300, which stands for "outside" elsewhere, becomes -inf."""
    with np.errstate(over="ignore"):
        return values.astype(dtype)


@eqx.filter_jit
def over_rows(function: Callable[..., PyTree], points: Array | np.ndarray) -> PyTree:
    """A function of one point at every row."""
    return jax.vmap(function)(points)


def _value(box: BlackBox, x: Array) -> Array:
    def host(points: Array | np.ndarray) -> np.ndarray:
        rows = np.asarray(points)
        values = box.rows(rows.reshape(-1, rows.shape[-1]))
        return _cast(values.reshape(rows.shape[:-1]), rows.dtype)

    like = jax.ShapeDtypeStruct((), x.dtype)
    return jax.pure_callback(host, like, x, vmap_method="expand_dims")


def _slope(box: BlackBox, x: Array) -> Array:
    def host(points: Array | np.ndarray) -> np.ndarray:
        rows = np.asarray(points)
        found = box.rows(rows.reshape(-1, rows.shape[-1]), slopes=True)
        return _cast(found.reshape(*rows.shape[:-1], -1), rows.dtype)

    like = jax.ShapeDtypeStruct((1 + box.size,), x.dtype)
    return jax.pure_callback(host, like, x, vmap_method="expand_dims")


def _differentiable(box: BlackBox) -> Callable[[Array], Array]:
    """The value with the user's gradient, and that gradient with differences as its derivative."""

    @jax.custom_jvp
    def gradient(x: Array) -> Array:
        return _slope(box, x)[1:]

    @gradient.defjvp
    def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
        (x,), (along,) = primals, tangents
        step = STEP * (1 + jnp.max(jnp.abs(x)))
        rise = _slope(box, x + step * along)[1:] - _slope(box, x - step * along)[1:]
        return gradient(x), rise / (2 * step)

    @jax.custom_jvp
    def value(x: Array) -> Array:
        return _value(box, x)

    @value.defjvp
    def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
        (x,), (along,) = primals, tangents
        return value(x), jnp.dot(gradient(x), along)

    return value


def black_box(
    function: Callable[..., Any],
    parameters: Parameters | None,
    dim: int,
    *,
    value_and_grad: Callable[..., Any] | None,
    vectorized: bool,
    executor: Executor | None,
    arguments: Arguments | None,
    name: str,
) -> BlackBox:
    """A user's NumPy function as a black box of declared values, or of one vector."""
    check(
        value_and_grad is None or callable(value_and_grad),
        f"value_and_grad must be a function, got {type(value_and_grad).__name__}",
    )
    if parameters is None:
        density = Density(function, value_and_grad, "vector", None, vectorized)
        return BlackBox(density, dim, executor, name)
    how = arguments_of(function, parameters, arguments)
    shapes = {key: parameters[key].shape for key in parameters}
    size = sum(int(np.prod(shape)) for shape in shapes.values())
    density = Density(function, value_and_grad, how, shapes, vectorized)
    return BlackBox(density, size, executor, name)


def box_of(
    log_density: Callable[..., Any],
    dim: object,
    like: PyTree,
    backend: str,
    arguments: Arguments | None,
    name: str,
    options: dict[str, Any],
) -> BlackBox | None:
    """The NumPy function of `backend="numpy"`, with its options; None for a density of JAX."""
    check(backend in ("jax", "numpy"), f"backend must be jax or numpy, got {backend!r}")
    if backend == "jax":
        strange = ", ".join(option for option, value in options.items() if value)
        check(not strange, f"{strange} is for backend='numpy', got backend='jax'")
        return None
    check(like is None, "like must be left out with backend='numpy'; declare parameters")
    parameters = dim if isinstance(dim, Parameters) else None
    size = 0 if isinstance(dim, Parameters) else check_count("dim", dim)
    return black_box(log_density, parameters, size, arguments=arguments, name=name, **options)

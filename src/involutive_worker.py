"""What runs on a worker of a pool: a NumPy log density, called on rows.

This module imports NumPy and nothing else, so that a worker process starts at once and holds no
JAX. A function arrives with a first batch of rows and is kept under its token; later batches name
the token alone.
"""

import pickle
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

_functions: dict[str, "Density"] = {}


class Failure(NamedTuple):
    """A call that gave no number: which row, and what happened."""

    row: int
    words: str


class Batch(NamedTuple):
    """Results of a batch: rows of value (and gradient), the calls that failed, seconds it took."""

    outputs: np.ndarray
    failures: list[Failure]
    seconds: float


class Density:
    """A log density of NumPy values.

    Args:
        function: of one point, or of rows if `vectorized`, to a number or one number a row.
        value_and_grad: of one point to the value and its gradient.
        how: "vector", "dict" or "names": how a point is passed.
        shapes: names and shapes of the values that make a point, for "dict" and "names".
        vectorized: whether the function takes all rows at once.
        load: makes the density on a worker, in place of sending its functions.
    """

    def __init__(
        self,
        function: Callable[..., Any] | None,
        value_and_grad: Callable[..., Any] | None = None,
        how: str = "vector",
        shapes: dict[str, tuple[int, ...]] | None = None,
        vectorized: bool = False,
        load: Callable[[], "Density"] | None = None,
    ):
        self.function, self.value_and_grad = function, value_and_grad
        self.how, self.shapes, self.vectorized = how, shapes or {}, vectorized
        self.load = load

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if self.load is not None:
            state["function"] = state["value_and_grad"] = None
        return state

    def ready(self) -> "Density":
        """The same with its function loaded."""
        if self.function is None and self.load is not None:
            loaded = self.load()
            self.function, self.value_and_grad = loaded.function, loaded.value_and_grad
        return self

    def batch(self, rows: np.ndarray, slopes: bool) -> Batch:
        """Call the function on every row; a call that fails is named and gives NaN."""
        began = time.perf_counter()
        if self.vectorized and not slopes:
            outputs, failures = self._at_once(rows)
        else:
            outputs, failures = self._in_turn(rows, slopes)
        return Batch(outputs, failures, time.perf_counter() - began)

    def _at_once(self, rows: np.ndarray) -> tuple[np.ndarray, list[Failure]]:
        try:
            outputs = self._checked(rows)
            wrong = np.flatnonzero(~(outputs[:, 0] < np.inf))
            return outputs, [Failure(int(i), f"returned {outputs[i, 0]}") for i in wrong]
        except Exception as error:
            if len(rows) == 1:
                return np.full((1, 1), np.nan), [Failure(0, _words(error))]
        parts = [self._at_once(rows[i : i + 1]) for i in range(len(rows))]
        failures = [Failure(i, part[1][0].words) for i, part in enumerate(parts) if part[1]]
        return np.concatenate([part[0] for part in parts]), failures

    def _checked(self, rows: np.ndarray) -> np.ndarray:
        values = np.asarray(self._call(self.function, rows.copy()))
        if np.iscomplexobj(values):
            raise ValueError(f"it must return real numbers, got dtype {values.dtype}")
        values = values.astype(float)
        if values.shape != (len(rows),):
            raise ValueError(
                f"it must return one number for each of {len(rows)} rows, got shape {values.shape}"
            )
        return values[:, None]

    def _in_turn(self, rows: np.ndarray, slopes: bool) -> tuple[np.ndarray, list[Failure]]:
        outputs = np.full((len(rows), 1 + (rows.shape[1] if slopes else 0)), np.nan)
        failures = []
        for i, row in enumerate(rows):
            try:
                outputs[i] = self._with_slope(row) if slopes else _number(self._one(row))
            except Exception as error:
                failures.append(Failure(i, _words(error)))
                continue
            if not outputs[i, 0] < np.inf:
                failures.append(Failure(i, f"returned {outputs[i, 0]}"))
        return outputs, failures

    def _one(self, row: np.ndarray) -> Any:
        if self.vectorized:
            return np.asarray(self._call(self.function, row[None].copy()))[0]
        return self._call(self.function, row.copy())

    def _with_slope(self, row: np.ndarray) -> np.ndarray:
        value, slope = self._call(self.value_and_grad, row.copy())
        if isinstance(slope, dict):
            slope = np.concatenate([np.ravel(slope[name]) for name in self.shapes])
        flat = np.ravel(np.asarray(slope, float))
        if flat.shape != row.shape:
            raise ValueError(f"its gradient must hold {row.size} numbers, got {flat.size}")
        return np.concatenate([[_number(value)], flat])

    def _call(self, function: Callable[..., Any] | None, x: np.ndarray) -> Any:
        if function is None:
            raise ValueError("there is no such function")
        if self.how == "vector":
            return function(x)
        values, at = {}, 0
        for name, shape in self.shapes.items():
            size = int(np.prod(shape))
            part = x[..., at : at + size].reshape((*x.shape[:-1], *shape))
            values[name] = part if part.ndim else part[()]
            at += size
        return function(**values) if self.how == "names" else function(values)


class Transformed:
    """`log_likelihood(prior_transform(u))` of a point u of the unit cube."""

    def __init__(self, log_likelihood: Any, prior_transform: Any):
        self.log_likelihood, self.prior_transform = log_likelihood, prior_transform

    def __call__(self, u: np.ndarray) -> Any:
        return self.log_likelihood(self.prior_transform(u))


def work(token: str, payload: bytes | None, rows: np.ndarray, slopes: bool) -> Batch | None:
    """Evaluate rows with the function known by a token; None if it must be sent first."""
    if token not in _functions:
        if payload is None:
            return None
        keep(token, pickle.loads(payload))
    return _functions[token].batch(rows, slopes)


def work_mapped(token: str, slopes: bool, task: tuple[bytes | None, np.ndarray]) -> Batch | None:
    """`work` as a function of one argument, for pools that only map."""
    return work(token, task[0], task[1], slopes)


def keep(token: str, density: Density) -> None:
    """Keep a function under its token in this process."""
    _functions[token] = density.ready()


def _number(value: Any) -> float:
    if value is None or np.shape(value) != ():
        found = "None: end it with return" if value is None else f"shape {np.shape(value)}"
        raise ValueError(f"it must return one number, got {found}")
    if np.iscomplexobj(value):
        raise ValueError(f"it must return a real number, got {value}")
    return float(value)


def _words(error: BaseException) -> str:
    line = (str(error).strip() or "no message").splitlines()[0][:200]
    return line if line.startswith("it must") else f"raised {type(error).__name__}: {line}"

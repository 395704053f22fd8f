"""A pointwise log likelihood that is a NumPy function: called on the host, never traced."""

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from involutive.targets.black_box import over_rows
from involutive.targets.by_name import Arguments, arguments_of, call
from involutive.targets.parameters import Parameters


class PointwiseOnHost:
    """A NumPy pointwise log likelihood, called as the density is: per point, or for all rows.

    Args:
        function: the log likelihood of every observation, as an array or a dict of arrays.
        parameters: the declared parameters, or None.
        arguments: how declared values are passed.
        vectorized: whether the function takes rows of points and returns a row per point.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        parameters: Parameters | None,
        arguments: Arguments | None,
        vectorized: bool,
    ):
        how = None if parameters is None else arguments_of(function, parameters, arguments)
        self.function, self.parameters, self.how = function, parameters, how
        self.vectorized = vectorized

    def rows(self, positions: np.ndarray) -> dict[str, np.ndarray]:
        """Return the log likelihood of every observation at every flat position `(n, dim)`."""
        values = self._values(np.asarray(positions, jnp.result_type(float)))
        if self.vectorized:
            return _by_name(self._call(values))
        count = len(positions)
        each = [_by_name(self._call({n: v[i] for n, v in values.items()})) for i in range(count)]
        return {name: np.stack([row[name] for row in each]) for name in each[0]}

    def _values(self, points: np.ndarray) -> dict[str, np.ndarray]:
        """What the function takes, a row per point, in the order that was declared."""
        if self.parameters is None:
            return {"x": points.astype(float)}
        found = over_rows(self.parameters.constrain, points)  # JAX sorts a dict by the alphabet
        values = {name: np.asarray(found[name], float) for name in self.parameters}
        if self.how != "vector":
            return values
        wide = [value.reshape(len(points), -1) for value in values.values()]
        return {"x": np.concatenate(wide, axis=1)}

    def _call(self, values: Mapping[str, np.ndarray | np.generic]) -> Any:
        if self.how in ("names", "dict"):
            return call(self.function, values, self.how)
        return self.function(values["x"])


def _by_name(found: Any) -> dict[str, np.ndarray]:
    named = found if isinstance(found, Mapping) else {"y": found}
    return {str(name): np.asarray(values, float) for name, values in named.items()}

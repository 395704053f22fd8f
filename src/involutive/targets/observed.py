"""What a target knows of its data: pointwise log likelihood, observations, predictions, prior.

None of it is needed to sample. ArviZ's groups `log_likelihood`, `observed_data`, `constant_data`,
`posterior_predictive`, `prior` and `prior_predictive` are made of it.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Key

Named = dict[str, np.ndarray]


@runtime_checkable
class OnRows(Protocol):
    """A pointwise log likelihood that is called on the host: a NumPy function."""

    def rows(self, positions: np.ndarray) -> Named:
        """Return the log likelihood of every observation at every flat position `(n, dim)`."""
        ...


class Prior(NamedTuple):
    """Draws of the prior `(1, n, ...)` by name, and of what would be observed under it."""

    prior: Named
    predictive: Named


class Observed:
    """The data of a model; hashed by identity, so that a target may hold it as static.

    Attributes:
        log_likelihood: maps a flat position to the log likelihood of every observation, by name;
            a NumPy function maps many positions at once.
        data: the observations by name.
        constant: other data by name.
        dims: names of the axes of the observations.
        predict: `(key, positions (chains, draws, dim)) -> {name: (chains, draws, ...)}`, new
            observations given draws; None where the model cannot make any.
        prior: `(key, n) -> Prior`; None where there is no prior to draw from.
    """

    def __init__(
        self,
        log_likelihood: Callable[[Array], dict[str, Array]] | OnRows | None,
        data: Mapping[str, Any] | None = None,
        constant: Mapping[str, Any] | None = None,
        dims: Mapping[str, Any] | None = None,
        predict: Callable[[Key[Array, ""], np.ndarray], Named] | None = None,
        prior: Callable[[Key[Array, ""], int], Prior] | None = None,
    ):
        self.log_likelihood, self.predict, self.prior = log_likelihood, predict, prior
        self.data = {name: np.asarray(values) for name, values in (data or {}).items()}
        self.constant = {name: np.asarray(values) for name, values in (constant or {}).items()}
        self.dims = dict(dims or {})


def pointwise(log_likelihood: Callable[[Array], Any]) -> Observed:
    """A user's pointwise log likelihood.

    Args:
        log_likelihood: maps a flat position to one number per observation, an array or a dict of
            arrays.
    """

    def by_name(x: Array) -> dict[str, Array]:
        values = log_likelihood(x)
        return dict(values) if isinstance(values, Mapping) else {"y": values}

    return Observed(by_name)

"""The data of a PyMC model: pointwise log likelihood, observations, predictions and the prior."""

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import jax.random as jr
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from involutive.interop.extras import require
from involutive.sampling.quantities import over
from involutive.targets.observed import Named, Observed, Prior

if TYPE_CHECKING:
    from pymc import Model
else:
    Model = Any


def observed(
    bridge: ModuleType,
    model: Model,
    constrain: Callable[[Array], dict[str, Array]],
    restore: Callable[[Array], dict[str, Array]],
) -> Observed | None:
    """What the model knows of its data.

    Args:
        bridge: PyMC's JAX bridge.
        model: the model.
        constrain: maps a flat vector to the reported variables.
        restore: maps a flat vector to the value variables.
    """
    from pymc.backends.arviz import (
        coords_and_dims_for_inferencedata,
        find_constants,
        find_observations,
    )

    data = find_observations(model)
    seen = [variable for variable in model.observed_RVs if variable.name in data]
    dims = coords_and_dims_for_inferencedata(model)[1]
    named = {
        name: [dim or f"{name}_dim_{axis}" for axis, dim in enumerate(dims[name])]
        for name in data
        if name in dims
    }
    prior = _Prior(model, [variable.name for variable in seen])
    predict = _Predict(model, constrain) if seen else None
    likelihood = _log_likelihood(bridge, model, seen, restore) if seen else None
    return Observed(likelihood, data, find_constants(model), named, predict, prior)


def _log_likelihood(
    bridge: ModuleType, model: Model, seen: list[Any], restore: Callable[[Array], dict[str, Array]]
) -> Callable[[Array], dict[str, Array]]:
    """PyMC's own terms, not summed."""
    terms = model.logp(vars=seen, sum=False)
    graph = bridge.get_jaxified_graph(inputs=model.value_vars, outputs=terms)
    names = [variable.name for variable in model.value_vars]

    def log_likelihood(x: Array) -> dict[str, Array]:
        values = restore(x)
        found = graph(*[values[name] for name in names])
        return {variable.name: part for variable, part in zip(seen, found, strict=True)}

    return log_likelihood


class _Predict:
    """New observations by PyMC's own sampler, of draws in the variables' supports."""

    def __init__(self, model: Model, constrain: Callable[[Array], dict[str, Array]]):
        self.model, self.constrain = model, constrain

    def __call__(self, key: Key[Array, ""], positions: np.ndarray) -> Named:
        pm = require("pymc", "pymc")
        values = over(self.constrain, positions)
        data = {
            name: (("chain", "draw", *(f"{name}_{i}" for i in range(array.ndim - 2))), array)
            for name, array in values.items()
        }
        drawn = pm.sample_posterior_predictive(
            xr.Dataset(data),
            model=self.model,
            random_seed=_seed(key),
            progressbar=False,
            return_inferencedata=False,
        )
        return {name: np.asarray(array) for name, array in drawn.items()}


class _Prior:
    """Draws of the prior by PyMC's own sampler."""

    def __init__(self, model: Model, seen: list[str]):
        self.model, self.seen = model, seen

    def __call__(self, key: Key[Array, ""], count: int) -> Prior:
        pm = require("pymc", "pymc")
        drawn = pm.sample_prior_predictive(
            count, model=self.model, random_seed=_seed(key), return_inferencedata=False
        )
        rows = {name: np.asarray(values)[None] for name, values in drawn.items()}
        plain = {variable.name for variable in self.model.unobserved_RVs}
        latent = {name: values for name, values in rows.items() if name in plain}
        return Prior(latent, {name: rows[name] for name in self.seen if name in rows})


def _seed(key: Key[Array, ""]) -> int:
    return int(np.asarray(jr.key_data(key)).ravel()[-1])

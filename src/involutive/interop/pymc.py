"""PyMC models as targets.

The density is PyMC's own, of its transformed value variables, with log-Jacobians, compiled to JAX
by PyTensor. Importing PyMC's JAX bridge sets JAX's precision for the whole process to PyTensor's
`floatX`: 64 bits, unless it was configured otherwise. `target` warns when that changed it;
`jax.config.update("jax_enable_x64", False)` afterwards goes back to 32 bits, and both work.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import Array

from involutive.core.errors import InputError, check
from involutive.core.text import first_line
from involutive.interop.extras import require
from involutive.interop.pymc_data import observed
from involutive.targets.positions import Form
from involutive.targets.target import Target

if TYPE_CHECKING:
    from pymc import Model
else:
    Model = Any

STARTS = 100  # points tried for a finite density

__all__ = ["target"]


def __dir__() -> list[str]:
    return list(__all__)


def target(model: Model) -> Target:
    """Return a PyMC model as a target.

    Inside, positions are one flat unconstrained vector; outside, draws are the model's free and
    deterministic variables in their own supports, with the model's dims and coords. The model's
    data are those at the time of the call.

    Args:
        model: a `pymc.Model` whose free variables are continuous.
    """
    pm = require("pymc", "pymc")
    bridge = _bridge()
    found = type(model).__name__
    check(isinstance(model, pm.Model), f"model must be a pymc.Model, got {found}")
    _check_free(model)
    density, constrain = _compile(bridge, model)
    start = _start(model, density)
    form = Form(start)
    coords, dims = _labels(model, {name: np.ndim(x) for name, x in constrain(start).items()})
    return Target(
        density,
        like=start,
        name=model.name or "model",
        constrain=constrain,
        dims=dims,
        coords=coords,
        observed=observed(bridge, model, lambda x: constrain(form.restore(x)), form.restore),
    )


def _bridge() -> ModuleType:
    """PyMC's JAX bridge; says so when importing it changed JAX's precision."""
    before = jax.config.read("jax_enable_x64")
    bridge = require("pymc.sampling.jax", "pymc")
    after = jax.config.read("jax_enable_x64")
    if after != before:
        bits, old = (64, False) if after else (32, True)
        warnings.warn(
            f"importing PyMC's JAX bridge switched JAX to {bits} bits for the whole process; "
            f"jax.config.update('jax_enable_x64', {old}) switches it back",
            stacklevel=3,
        )
    return bridge


def _check_free(model: Model) -> None:
    check(
        model.value_vars,
        "the model must have a free variable to sample, got none; leave at least one variable "
        "without observed=",
    )
    discrete = [variable.name for variable in model.discrete_value_vars]
    check(
        not discrete,
        f"the model's free variables must be continuous, but {', '.join(discrete)} is discrete; "
        "sum it out, for example with pymc.Mixture",
    )


def _compile(bridge: ModuleType, model: Model) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """The log density of, and the reported variables at, a dict of value variables."""
    from pymc.util import get_default_varnames

    names = [variable.name for variable in model.value_vars]
    reported = get_default_varnames(model.unobserved_value_vars, include_transformed=False)
    try:
        log_density = bridge.get_jaxified_logp(model)
        outputs = bridge.get_jaxified_graph(inputs=model.value_vars, outputs=reported)
    except Exception as error:
        raise _does_not_run(error) from error

    def density(z: dict[str, Any]) -> Array:
        with _truncation():
            return log_density([z[name] for name in names])

    def constrain(z: dict[str, Any]) -> dict[str, Any]:
        with _truncation():
            values = outputs(*[z[name] for name in names])
        return {variable.name: value for variable, value in zip(reported, values, strict=True)}

    return density, constrain


@contextlib.contextmanager
def _truncation() -> Iterator[None]:
    """In 32 bits, do not warn of each 64-bit constant in PyMC's graph that JAX shortens."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Explicitly requested dtype float64")
        warnings.filterwarnings("ignore", "Explicitly requested dtype int64")
        yield


def _start(model: Model, density: Callable[[Any], Any]) -> dict[str, np.ndarray]:
    """PyMC's initial point, or one near it, of finite density."""
    from pytensor.configdefaults import config

    try:
        with config.change_flags(mode="FAST_COMPILE"):  # run once: not worth a C compiler
            point = model.initial_point(random_seed=0)
    except Exception as error:
        raise _does_not_run(error) from error
    point = {
        variable.name: np.asarray(point[variable.name], float) for variable in model.value_vars
    }
    random = np.random.default_rng(0)
    for attempt in range(STARTS):
        near = {
            name: np.asarray(x + (random.uniform(-2, 2, x.shape) if attempt else 0.0))
            for name, x in point.items()
        }
        if np.isfinite(_value(density, near)):
            return near
    raise InputError(
        "the model's log density must be finite somewhere, but it was -inf or NaN at every one of "
        f"{STARTS} starting points; check the data against the support of the distribution it is "
        "observed under, for example with model.point_logps()"
    )


def _value(density: Callable[[Any], Any], point: dict[str, np.ndarray]) -> float:
    try:
        return float(density(point))
    except Exception as error:
        raise _does_not_run(error) from error


def _does_not_run(error: Exception) -> InputError:
    return InputError(
        f"the model must run on its data, but it raised {first_line(error, named=True)}; "
        "check the shapes of the data against the model"
    )


def _labels(model: Model, axes: dict[str, int]) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The model's coords, and the names of every axis of every reported variable."""
    from pymc.backends.arviz import coords_and_dims_for_inferencedata

    coords, given = coords_and_dims_for_inferencedata(model)
    dims = {
        name: [dim or f"{name}_dim_{axis}" for axis, dim in enumerate(given[name])]
        for name, count in axes.items()
        if len(given.get(name, ())) == count > 0
    }
    used = {dim for names in dims.values() for dim in names}
    return {name: values for name, values in coords.items() if name in used}, dims

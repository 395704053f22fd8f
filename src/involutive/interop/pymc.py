"""PyMC models as targets.

The density is PyMC's own, of its transformed value variables, with log-Jacobians, compiled to JAX
by PyTensor. Importing PyMC's JAX bridge sets JAX's precision for the whole process to PyTensor's
`floatX`: 64 bits, unless it was configured otherwise. `target` warns when that changed it;
`jax.config.update("jax_enable_x64", False)` afterwards goes back to 32 bits, and both work.
"""

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Scalar

from involutive.core.errors import InputError, check
from involutive.core.text import first_line
from involutive.interop.extras import require
from involutive.interop.pymc_data import observed
from involutive.targets.positions import Form
from involutive.targets.supports import Angle
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
    point = _initial_point(model)
    circles = _circles(model, point)
    density, constrain = _compile(bridge, model, circles)
    start = _start(point, density, circles)
    form = Form(start)
    coords, dims = _labels(model, {name: np.ndim(x) for name, x in constrain(start).items()})
    return Target(
        density,
        like=start,
        name=model.name or "model",
        constrain=constrain,
        dims=dims,
        coords=coords,
        periods={
            variable.name: (-math.pi, math.pi)
            for variable in model.free_RVs
            if model.rvs_to_values[variable].name in circles
        },
        observed=observed(
            bridge,
            model,
            lambda x: constrain(form.restore(x)),
            lambda x: _value_variables(circles, form.restore(x))[0],
        ),
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


def _circles(model: Model, point: dict[str, np.ndarray]) -> dict[str, Angle]:
    """The value variables that are angles.

    PyMC's own are numbers on the whole line, along which the density repeats itself for ever; here
    they are directions of points of the plane, and the density is proper.
    """
    circular = [
        model.rvs_to_values[variable].name
        for variable, transform in model.rvs_to_transforms.items()
        if getattr(transform, "name", None) == "circular"
    ]
    return {name: Angle(np.shape(point[name])) for name in circular if name in point}


def _value_variables(
    circles: dict[str, Angle], z: dict[str, Any]
) -> tuple[dict[str, Any], Scalar | float]:
    """PyMC's value variables, angles from points of the plane, and the log-Jacobian of these."""
    values, total = dict(z), 0.0
    for name, circle in circles.items():
        values[name], log_det = circle.constrain(jnp.ravel(z[name]))
        total = total + log_det
    return values, total


def _compile(
    bridge: ModuleType, model: Model, circles: dict[str, Angle]
) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """The log density of, and the reported variables at, a dict of positions."""
    from pymc.util import get_default_varnames

    names = [variable.name for variable in model.value_vars]
    reported = get_default_varnames(model.unobserved_value_vars, include_transformed=False)
    try:
        log_density = bridge.get_jaxified_logp(model)
        outputs = bridge.get_jaxified_graph(inputs=model.value_vars, outputs=reported)
    except Exception as error:
        raise _does_not_run(error) from error

    def density(z: dict[str, Any]) -> Array:
        values, log_det = _value_variables(circles, z)
        with _truncation():
            return log_density([values[name] for name in names]) + log_det

    def constrain(z: dict[str, Any]) -> dict[str, Any]:
        values, _ = _value_variables(circles, z)
        with _truncation():
            found = outputs(*[values[name] for name in names])
        return {variable.name: value for variable, value in zip(reported, found, strict=True)}

    return density, constrain


@contextlib.contextmanager
def _truncation() -> Iterator[None]:
    """In 32 bits, do not warn of each 64-bit constant in PyMC's graph that JAX shortens."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Explicitly requested dtype float64")
        warnings.filterwarnings("ignore", "Explicitly requested dtype int64")
        yield


def _initial_point(model: Model) -> dict[str, np.ndarray]:
    """PyMC's initial point, by value variable."""
    from pytensor.configdefaults import config

    try:
        with config.change_flags(mode="FAST_COMPILE"):  # run once: not worth a C compiler
            point = model.initial_point(random_seed=0)
    except Exception as error:
        raise _does_not_run(error) from error
    return {variable.name: np.asarray(point[variable.name], float) for variable in model.value_vars}


def _start(
    point: dict[str, np.ndarray], density: Callable[[Any], Any], circles: dict[str, Angle]
) -> dict[str, np.ndarray]:
    """PyMC's initial point as a position, or a position near it, of finite density."""
    for name, circle in circles.items():
        flat = circle.unconstrain(jnp.asarray(point[name]), jr.key(0))
        point = point | {name: np.asarray(flat).reshape(2, *circle.shape)}
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

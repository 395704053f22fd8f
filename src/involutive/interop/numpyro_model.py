"""A NumPyro model read: its density on R^dim, the way back to its sites, and their names.

NumPyro's own transforms map the latent sites to R^dim; the density there includes their
log-Jacobians.
"""

import math
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, PyTree

from involutive.core.errors import InputError, check
from involutive.core.text import first_line
from involutive.interop.extras import require
from involutive.interop.numpyro_data import is_latent, observed
from involutive.targets.positions import Form
from involutive.targets.target import Target

require("numpyro", "numpyro")

import numpyro.distributions as dist  # noqa: E402
from numpyro import handlers  # noqa: E402
from numpyro.infer import init_to_uniform  # noqa: E402
from numpyro.infer.util import ModelInfo, initialize_model  # noqa: E402


class Model(NamedTuple):
    """A model as a target, and the ways from its flat vector to sites and to their supports."""

    target: Target
    restore: Callable[[Any], Any]
    constrain: Callable[[Any], Any]


def read(model: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Model:
    """Read a model with its data, or say in one line why it cannot be sampled."""
    found = type(model).__name__
    check(callable(model), f"model must be a NumPyro model, a function, got {found}")
    with jax.debug_key_reuse(False):  # NumPyro uses a key twice when it looks for a start
        sites = _trace(model, args, kwargs)
        _check_latent(sites)
        info = _initialise(model, args, kwargs)
    dims, form = _dims(sites), Form(info.param_info.z)
    reported = jax.eval_shape(info.postprocess_fn, info.param_info.z)

    def constrain(z: PyTree) -> dict[str, Any]:
        return dict(info.postprocess_fn(z))

    def at(x: Array) -> dict[str, Any]:
        return constrain(form.restore(x))

    goal = Target(
        lambda z: -info.potential_fn(z),
        like=info.param_info.z,
        name=getattr(model, "__name__", "model"),
        constrain=constrain,
        dims={name: axes for name, axes in dims.items() if name in reported},
        periods=_circles(sites),
        observed=observed(model, args, kwargs, sites, at, dims),
    )
    return Model(goal, goal.restore, info.postprocess_fn)


def _trace(model: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Run the model once and return its sites by name."""
    seeded = handlers.substitute(handlers.seed(model, jr.key(0)), substitute_fn=init_to_uniform)
    try:
        return handlers.trace(seeded).get_trace(*args, **kwargs)
    except Exception as error:
        raise _does_not_run(error) from error


def _check_latent(sites: dict[str, Any]) -> None:
    latent = {name: site for name, site in sites.items() if is_latent(site)}
    check(
        latent,
        "the model must have a latent variable to sample, got none; leave at least one "
        "numpyro.sample site without obs=",
    )
    discrete = [name for name, site in latent.items() if site["fn"].support.is_discrete]
    # NumPyro sums such sites out, as for NUTS, with funsor's help
    finite = all(latent[name]["fn"].has_enumerate_support for name in discrete)
    funsor = find_spec("funsor") is not None
    check(
        not discrete or (finite and funsor and len(discrete) < len(latent)),
        f"the model's latent variables must be continuous, but {', '.join(discrete)} is discrete; "
        "sum it out, for example with numpyro.distributions.MixtureSameFamily"
        + (", or install funsor" if finite and not funsor else ""),
    )


def _initialise(model: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> ModelInfo:
    """NumPyro's potential, transforms and a start of finite density; its warnings once it runs."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            info = initialize_model(
                jr.key(0), model, model_args=args, model_kwargs=kwargs, validate_grad=False
            )
        except RuntimeError as error:
            if "valid initial parameters" not in str(error):
                raise _does_not_run(error) from error
            reason = f" ({first_line(caught[-1].message)})" if caught else ""
            raise InputError(
                "the model's log density must be finite somewhere, but it was -inf or NaN at every "
                f"one of 100 starting points{reason}; check the data against the support of the "
                "distribution it is observed under"
            ) from error
        except Exception as error:
            raise _does_not_run(error) from error
    for warning in caught:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return info


def _does_not_run(error: Exception) -> InputError:
    line = first_line(error, named=True)
    return InputError(
        f"the model must run on the data it is given, but it raised {line}; "
        "check the shapes of the data against the model"
    )


def _circles(sites: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """The ends of the circle of every latent site that is an angle."""
    supports = {name: site["fn"].support for name, site in sites.items() if is_latent(site)}
    circular = type(dist.constraints.circular)
    return {
        name: (-math.pi, math.pi)
        for name, support in supports.items()
        if isinstance(getattr(support, "base_constraint", support), circular)
    }


def _dims(sites: dict[str, Any]) -> dict[str, list[str]]:
    """Names of the axes of every reported site: its plates, then the infer option `event_dims`."""
    named = {}
    for name, site in sites.items():
        if site["type"] not in ("sample", "deterministic"):
            continue
        shape = np.shape(site["value"])
        plates = [frame for frame in site["cond_indep_stack"] if frame.dim is not None]
        drawn = site["type"] == "sample"
        event = site["fn"].event_dim if drawn else max(len(shape) - len(plates), 0)
        axes = [f"{name}_dim_{axis}" for axis in range(len(shape))]
        for frame in plates:
            axis = len(shape) - event + frame.dim
            if 0 <= axis < len(shape) and shape[axis] == frame.size:
                axes[axis] = frame.name
        events = list(site.get("infer", {}).get("event_dims", ()))
        if 0 < len(events) <= len(axes):
            axes[-len(events) :] = events
        if axes:
            named[name] = axes
    return named


def from_potential(potential_fn: Callable[[Any], Any], like: PyTree) -> Model:
    """A potential energy, minus a log density, of a pytree shaped as `like`."""
    goal = Target(lambda z: -potential_fn(z), like=like, name="potential_fn")
    return Model(goal, goal.restore, lambda z: z)

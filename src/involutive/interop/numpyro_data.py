"""The data of a NumPyro model: pointwise log likelihood, observations, predictions and the prior.

Observed sites are looked at in traces with the latent sites replaced by draws, so a model needs no
`obs=None` to predict: a new observation is a draw of the site's own distribution.
"""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive.interop.extras import require
from involutive.targets.observed import Named, Observed, Prior

require("numpyro", "numpyro")

from numpyro import handlers  # noqa: E402

Site = dict[str, Any]
Call = Callable[[Key[Array, ""], dict[str, Array]], dict[str, Site]]


def observed(
    model: Callable[..., Any],
    args: tuple,
    kwargs: dict[str, Any],
    sites: dict[str, Site],
    constrain: Callable[[Array], dict[str, Array]],
    dims: dict[str, list[str]],
) -> Observed | None:
    """What the model knows of its data; None for a model without observations.

    Args:
        model, args, kwargs: the model with its data.
        sites: a trace of it.
        constrain: maps a flat vector to the latent and deterministic sites.
        dims: names of the axes of every site.
    """
    seen = [name for name, site in sites.items() if is_data(site)]
    latent = [name for name, site in sites.items() if is_latent(site)]
    discrete = any(sites[name]["fn"].support.is_discrete for name in latent)

    def traced(key: Key[Array, ""], values: dict[str, Array]) -> dict[str, Site]:
        given = handlers.substitute(handlers.seed(model, key), data=values)
        return handlers.trace(given).get_trace(*args, **kwargs)

    def log_likelihood(x: Array) -> dict[str, Array]:
        known = constrain(x)
        trace = traced(jr.key(0), {name: known[name] for name in latent})
        return {name: trace[name]["fn"].log_prob(trace[name]["value"]) for name in seen}

    def predict_one(key: Key[Array, ""], x: Array) -> dict[str, Array]:
        known = constrain(x)
        return _new(traced, key, {name: known[name] for name in latent}, seen)

    # a model with discrete sites summed out has no value of them to condition on
    return Observed(
        log_likelihood if seen and not discrete else None,
        {name: sites[name]["value"] for name in seen},
        _constants(model, args, kwargs, [sites[name]["value"] for name in seen]),
        {name: dims[name] for name in seen if name in dims},
        _over_positions(predict_one) if seen and not discrete else None,
        _prior(traced, sites, seen),
    )


def _over_positions(
    predict: Callable[[Key[Array, ""], Array], dict[str, Array]],
) -> Callable[[Key[Array, ""], np.ndarray], Named]:
    """A prediction from one flat vector as one from positions `(chains, draws, dim)`."""

    def every(key: Key[Array, ""], positions: np.ndarray) -> Named:
        rows = jnp.asarray(positions.reshape(-1, positions.shape[-1]))
        with jax.debug_key_reuse(False):
            drawn = jax.jit(jax.vmap(predict))(jr.split(key, len(rows)), rows)
        lead = positions.shape[:2]
        return {n: np.asarray(v).reshape(*lead, *v.shape[1:]) for n, v in drawn.items()}

    return every


def _prior(traced: Call, sites: dict[str, Site], seen: list[str]) -> Callable[..., Prior]:
    """Draws of the prior: the model run with nothing but keys."""
    reported = [n for n, s in sites.items() if is_latent(s) or s["type"] == "deterministic"]

    def prior(key: Key[Array, ""], count: int) -> Prior:
        def one(key: Key[Array, ""]) -> tuple[dict[str, Array], dict[str, Array]]:
            key_prior, key_new = jr.split(key)
            trace = traced(key_prior, {})
            latent = {n: trace[n]["value"] for n in reported if is_latent(trace[n])}
            return {n: trace[n]["value"] for n in reported}, _new(traced, key_new, latent, seen)

        with jax.debug_key_reuse(False):
            drawn = jax.jit(jax.vmap(one))(jr.split(key, count))
        return Prior(*({n: np.asarray(v)[None] for n, v in part.items()} for part in drawn))

    return prior


def _new(
    traced: Call, key: Key[Array, ""], latent: dict[str, Array], seen: list[str]
) -> dict[str, Array]:
    """New observations given the latent sites."""
    key_trace, *keys = jr.split(key, len(seen) + 1)
    trace = traced(key_trace, latent)
    return {
        name: trace[name]["fn"].sample(k, trace[name]["kwargs"].get("sample_shape", ()))
        for name, k in zip(seen, keys, strict=True)
    }


def is_latent(site: Site) -> bool:
    """Whether a site is a variable to sample."""
    return site["type"] == "sample" and not site["is_observed"]


def is_data(site: Site) -> bool:
    """Whether a site is an observation, and not a factor added to the density."""
    return (
        site["type"] == "sample"
        and site["is_observed"]
        and type(site["fn"]).__name__ != "Unit"
        and np.size(site["value"]) > 0
    )


def _constants(
    model: Callable[..., Any], args: tuple, kwargs: dict[str, Any], seen: list[Any]
) -> dict[str, Any]:
    """The numeric arguments of the model that are not its observations, by name."""
    try:
        given = inspect.signature(model).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        given = dict(kwargs)
    arrays = {
        name: value
        for name, value in given.items()
        if isinstance(value, np.ndarray | jax.Array | int | float) and not isinstance(value, bool)
    }
    return {
        name: value
        for name, value in arrays.items()
        if np.asarray(value).dtype.kind in "fiub"
        and not any(np.array_equal(np.asarray(value), np.asarray(y)) for y in seen)
    }

"""ArviZ's groups on data: log_likelihood, observed_data, constant_data, predictions, the prior."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive.core.errors import check
from involutive.core.keys import split
from involutive.sampling.draws import Draws
from involutive.sampling.quantities import over
from involutive.targets.observed import Observed, OnRows, Prior
from involutive.targets.target import Target

MOST = 50_000_000  # numbers of a log likelihood that is worked out without being asked for
CHAIN_DRAW = ("chain", "draw")


class Asked(NamedTuple):
    """What a user asked for beside the posterior."""

    log_likelihood: bool | None
    posterior_predictive: bool
    prior: int
    key: Key[Array, ""]


def data_groups(draws: Draws, asked: Asked, dataset: Callable[..., Any]) -> dict[str, Any]:
    """The groups that rest on the target's data, as datasets made by `dataset`."""
    target, known = draws.target, draws.target.observed
    key_new, key_prior = split(asked.key, 2)
    coords, groups = dict(target.labels.coords), {}

    def add(name: str, values: dict[str, np.ndarray], lead: tuple[str, ...] = CHAIN_DRAW) -> None:
        if values:
            axes = _axes(known, values, len(lead)) if name not in ("prior",) else {}
            groups[name] = dataset(values, axes or _own(target, values, name), coords, lead)

    if known is not None:
        add("log_likelihood", _log_likelihood(draws, known, asked.log_likelihood))
        add("observed_data", known.data, ())
        add("constant_data", known.constant, ())
    can = known is not None and known.predict is not None
    check(
        can or not asked.posterior_predictive,
        f"posterior_predictive needs a model with observed variables, and {target.name} has none; "
        "use a NumPyro or PyMC model with data",
    )
    if asked.posterior_predictive and known is not None and known.predict is not None:
        add("posterior_predictive", known.predict(key_new, draws.positions))
    if asked.prior:
        found = _prior(target, key_prior, asked.prior)
        add("prior", found.prior)
        add("prior_predictive", found.predictive)
    return groups


def _log_likelihood(draws: Draws, known: Observed, asked: bool | None) -> dict[str, np.ndarray]:
    check(
        known.log_likelihood is not None or not asked,
        f"log_likelihood needs a pointwise log likelihood, {draws.target.name} has none; pass "
        "log_likelihood= to Target",
    )
    if known.log_likelihood is None or asked is False:
        return {}
    if isinstance(known.log_likelihood, OnRows):
        return _on_rows(known.log_likelihood, draws, asked)
    point = jax.ShapeDtypeStruct((draws.target.dim,), draws.positions.dtype)
    with jax.debug_key_reuse(False):
        shapes = jax.eval_shape(known.log_likelihood, point)
        each = sum(int(np.prod(part.shape)) for part in shapes.values())
        if asked is None and each * draws.log_density.size > MOST:
            return {}
        return over(known.log_likelihood, draws.positions)


def _on_rows(log_likelihood: OnRows, draws: Draws, asked: bool | None) -> dict[str, np.ndarray]:
    """The log likelihood of a NumPy function, which is called for every draw."""
    lead = draws.log_density.shape
    flat = draws.positions.reshape(-1, draws.positions.shape[2])
    each = sum(values.size for values in log_likelihood.rows(flat[:1]).values())
    if asked is None and each * len(flat) > MOST:
        return {}
    found = log_likelihood.rows(flat)
    return {name: values.reshape(lead + values.shape[1:]) for name, values in found.items()}


def _prior(target: Target, key: Key[Array, ""], count: int) -> Prior:
    if target.observed is not None and target.observed.prior is not None:
        return target.observed.prior(key, count)
    law = target.prior
    check(
        law is not None,
        f"prior needs a prior, and {target.name} declares none; declare one with inv.Parameters",
    )
    points = np.asarray(jax.vmap(law.sample)(jr.split(key, count)))[None]  # type: ignore[union-attr]
    return Prior(over(target.constrain, points), {})


def _axes(
    known: Observed | None, values: dict[str, np.ndarray], first: int
) -> dict[str, list[str]]:
    """Names of the axes of observations; a log likelihood has fewer, without those of an event."""
    dims = {} if known is None else known.dims
    return {
        name: list(dims[name])[: array.ndim - first]
        for name, array in values.items()
        if name in dims and len(dims[name]) >= array.ndim - first
    }


def _own(target: Target, values: dict[str, np.ndarray], name: str) -> dict[str, Any]:
    """Names of the axes of the target's own variables."""
    dims = target.labels.dims
    return {n: dims[n] for n in values if n in dims} if name == "prior" else {}

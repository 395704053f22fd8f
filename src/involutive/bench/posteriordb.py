"""A local clone of posteriordb: `involutive bench --suite posteriors --posteriordb DIR`.

Models are written here as JAX densities of their constrained parameters, after their Stan programs;
a posterior whose model has no such form is skipped and named. Its reference draws are mapped to the
unconstrained coordinates that every sampler works in.
"""

import json
import re
import zipfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array

from involutive.bench.entry import Entry, data_file
from involutive.bench.targets import Reference, summary, with_square
from involutive.targets.declare import interval, ordered, positive, real
from involutive.targets.parameters import Parameters
from involutive.targets.target import Target

Data = dict[str, Any]
Numbers = Array | np.ndarray | float | int
Model = tuple[Parameters, Callable[..., Array]]
EFFECTIVE = 10_000  # posteriordb's reference draws: ten chains of 1000, thinned to independence


def _normal(x: Numbers, mean: Numbers, sd: Numbers) -> Array:
    return jnp.sum(-0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd) * jnp.ones_like(x - mean))


def _cauchy(x: Numbers, scale: float) -> Array:
    return -jnp.log1p((x / scale) ** 2)


def _schools(d: Data, centred: bool) -> Model:
    y, sigma, name = d["y"], d["sigma"], "theta" if centred else "theta_trans"
    effects = real(shape=len(y))
    parameters = (
        Parameters(theta=effects, mu=real(), tau=positive())
        if centred
        else Parameters(theta_trans=effects, mu=real(), tau=positive())
    )

    def log_density(values: dict[str, Array]) -> Array:
        mu, tau, effects = values["mu"], values["tau"], values[name]
        theta = effects if centred else mu + tau * effects
        prior = _normal(effects, mu, tau) if centred else _normal(effects, 0.0, 1.0)
        return prior + _normal(mu, 0.0, 5.0) + _cauchy(tau, 5.0) + _normal(y, theta, sigma)

    return parameters, log_density


def _regression(columns: tuple[str, ...], response: str, scale: float | None) -> Callable:
    """`response ~ N(β_1 + β_2 x + …, σ)` with flat β and a half-Cauchy or flat σ."""

    def model(d: Data) -> Model:
        x = np.column_stack([np.ones(len(d[response])), *(d[name] for name in columns)])

        def log_density(values: dict[str, Array]) -> Array:
            prior = 0.0 if scale is None else _cauchy(values["sigma"], scale)
            return prior + _normal(d[response], x @ values["beta"], values["sigma"])

        return Parameters(beta=real(shape=x.shape[1]), sigma=positive()), log_density

    return model


def _blr(d: Data) -> Model:
    def log_density(values: dict[str, Array]) -> Array:
        beta, sigma = values["beta"], values["sigma"]
        return (
            _normal(beta, 0.0, 10.0) + _normal(sigma, 0.0, 10.0)
            + _normal(d["y"], d["X"] @ beta, sigma)
        )  # fmt: skip

    return Parameters(beta=real(shape=d["X"].shape[1]), sigma=positive()), log_density


def _ark(d: Data) -> Model:
    count, y = int(d["K"]), d["y"]
    past = np.column_stack([y[count - k - 1 : len(y) - k - 1] for k in range(count)])

    def log_density(values: dict[str, Array]) -> Array:
        alpha, beta, sigma = values["alpha"], values["beta"], values["sigma"]
        prior = _normal(alpha, 0.0, 10.0) + _normal(beta, 0.0, 10.0) + _cauchy(sigma, 2.5)
        return prior + _normal(y[count:], alpha + past @ beta, sigma)

    return Parameters(alpha=real(), beta=real(shape=count), sigma=positive()), log_density


def _two_normals(d: Data) -> Model:
    def log_density(values: dict[str, Array]) -> Array:
        mu, sigma, theta = values["mu"], values["sigma"], values["theta"]
        gaps = (jnp.asarray(d["y"])[:, None] - mu[None]) / sigma[None]
        parts = -0.5 * gaps**2 - jnp.log(sigma)[None]
        shares = jnp.log(jnp.stack([theta, 1 - theta]))
        prior = _normal(mu, 0.0, 2.0) + _normal(sigma, 0.0, 2.0) + 4 * jnp.sum(shares)
        return prior + jnp.sum(logsumexp(shares[None] + parts, axis=1))

    return Parameters(mu=ordered(2), sigma=positive(shape=2), theta=interval(0, 1)), log_density


MODELS: dict[str, Callable[[Data], Model]] = {
    "eight_schools_centered": lambda d: _schools(d, True),
    "eight_schools_noncentered": lambda d: _schools(d, False),
    "kidscore_momiq": _regression(("mom_iq",), "kid_score", 2.5),
    "kidscore_momhs": _regression(("mom_hs",), "kid_score", 2.5),
    "kidscore_momhsiq": _regression(("mom_hs", "mom_iq"), "kid_score", 2.5),
    "earn_height": _regression(("height",), "earn", None),
    "blr": _blr,
    "arK": _ark,
    "low_dim_gauss_mix": _two_normals,
}


def is_database(folder: Path) -> bool:
    """Whether the folder is a clone of posteriordb."""
    return (folder / "posterior_database" / "posteriors").is_dir()


@lru_cache
def _posteriors(folder: Path) -> dict[str, dict[str, Any]]:
    places = sorted((folder / "posterior_database" / "posteriors").glob("*.json"))
    return {place.stem: json.loads(place.read_text(encoding="utf-8")) for place in places}


def names(folder: Path) -> list[str]:
    """Posteriors whose model has a JAX form here and that have reference draws."""
    return [
        name for name, about in _posteriors(folder).items()
        if about["model_name"] in MODELS and about.get("reference_posterior_name")
    ]  # fmt: skip


def skipped(folder: Path) -> list[str]:
    """Posteriors that are not run."""
    return [name for name in _posteriors(folder) if name not in names(folder)]


def entry(name: str) -> Entry:
    """The posterior of that name, flat and unconstrained."""
    return Entry(lambda folder: _target(name, folder), protocol="posteriordb's reference draws")


def _target(name: str, folder: Path | None) -> Target:
    parameters, declared = _declared(name, folder)
    return Target(declared.log_density, parameters.dim, name=name)


def _declared(name: str, folder: Path | None) -> tuple[Parameters, Target]:
    folder = folder or Path()
    about = _posteriors(folder)[name]
    path = data_file(
        folder / "posterior_database" / "data" / "data",
        f"{about['data_name']}.json.zip", f"{about['data_name']}.json",
    )  # fmt: skip
    raw = _json(path)
    data = {key: np.asarray(value, float) for key, value in raw.items()}
    parameters, log_density = MODELS[about["model_name"]](data)
    return parameters, Target(log_density, parameters, arguments="dict", name=name)


def reference(name: str, folder: Path) -> Reference:
    """posteriordb's draws in unconstrained coordinates."""
    about = _posteriors(folder)[name]
    stem = about["reference_posterior_name"]
    path = data_file(
        folder / "posterior_database" / "reference_posteriors" / "draws" / "draws",
        f"{stem}.json.zip", f"{stem}.json",
    )  # fmt: skip
    chains = _json(path)
    flat = {key: np.concatenate([np.asarray(c[key], float) for c in chains]) for key in chains[0]}
    parameters, _ = _declared(name, folder)
    values = {each: _of(flat, each) for each in parameters}
    places = np.asarray(jax.vmap(lambda v: parameters.unconstrain(v))(values), np.float64)
    count = min(len(places), EFFECTIVE)
    return summary(with_square(places), count, cloud=places[:8000])


def _of(flat: dict[str, np.ndarray], name: str) -> Array:
    """The draws of one parameter, `(n,)` or `(n, size)`, of columns `name` or `name[i]`."""
    if name in flat:
        return jnp.asarray(flat[name])
    found = {int(m[1]): key for key in flat if (m := re.fullmatch(rf"{name}\[(\d+)\]", key))}
    return jnp.stack([jnp.asarray(flat[found[i]]) for i in sorted(found)], axis=1)


def _json(path: Path) -> Any:
    if path.suffix != ".zip":
        return json.loads(path.read_text(encoding="utf-8"))
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(archive.namelist()[0]))

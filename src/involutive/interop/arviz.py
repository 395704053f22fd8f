"""ArviZ: draws out as `InferenceData` (0.x) or `DataTree` (1.x), and its ESS, R-hat and MCSE in.

The two lines of ArviZ differ in containers and defaults; this file is the only one that knows.
"""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import arviz
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from involutive._version import __version__
from involutive.core.errors import InputError, check
from involutive.core.files import replacing
from involutive.core.keys import KeyLike, as_key
from involutive.core.text import first_line
from involutive.interop.arviz_data import Asked, data_groups
from involutive.sampling.draws import Draws
from involutive.sampling.quantities import Quantities, quantities
from involutive.targets.target import Target

az: ModuleType = arviz  # its two lines have different types
TREES = int(az.__version__.split(".")[0]) >= 1  # xarray's DataTree replaced InferenceData in 1.0


# ── Containers ──────────────────────────────────────────────────────────────────────────────────


def from_draws(
    draws: Draws,
    log_likelihood: bool | None = None,
    posterior_predictive: bool = False,
    prior: int = 0,
    key: KeyLike = 0,
) -> Any:
    """Return draws as ArviZ's container; see `Draws.to_arviz`.

    Groups: `posterior` (constrained variables with the target's dims and coords), `sample_stats`
    under ArviZ's names (`lp`, `acceptance_rate`, `diverging`, ...), `unconstrained_posterior` (the
    flat positions), and for a target that knows its data `log_likelihood`, `observed_data`,
    `constant_data` and what else was asked for. What it takes to repeat the run is in the
    attributes.
    """
    found = draws.derived or quantities(draws.target, draws.positions)
    attributes = _attributes(draws, found)
    groups = {
        "posterior": _posterior(found),
        "sample_stats": _sample_stats(draws, found),
        "unconstrained_posterior": _dataset({"position": draws.positions}, {}, {}),
    }
    if draws.derived is None:
        asked = Asked(log_likelihood, posterior_predictive, prior, as_key(key))
        groups |= data_groups(draws, asked, _dataset)
    for dataset in groups.values():
        dataset.attrs.update(attributes)
    if TREES:
        return xr.DataTree.from_dict({f"/{name}": group for name, group in groups.items()})
    return az.InferenceData(**groups)


def group(data: Any, name: str) -> xr.Dataset:
    """Return one group of ArviZ's container as a dataset, on either line."""
    part = data[name]
    return part if isinstance(part, xr.Dataset) else part.to_dataset()


def to_netcdf(draws: Draws, path: str | Path) -> Path:
    """Write draws as NetCDF, to a temporary file first: a good file is never half replaced."""
    path = Path(path)
    check(path.parent.is_dir(), f"path must be in a folder that exists, got {path.parent}")
    with replacing(path) as temporary:
        from_draws(draws).to_netcdf(str(temporary), engine="h5netcdf")
    return path


def from_netcdf(path: str | Path) -> Any:
    """Read ArviZ's container from NetCDF, whole, on either line."""
    check(Path(path).is_file(), f"path must be a NetCDF file, but there is no file {path}")
    try:
        if TREES:
            with xr.open_datatree(path, engine="h5netcdf") as tree:
                return tree.load()
        return az.from_netcdf(str(path), engine="h5netcdf").load()
    except (OSError, ValueError, KeyError) as error:
        line = first_line(error)
        raise InputError(
            f"path must be a NetCDF file written by this library, {path} is not: {line}"
        ) from error


def read_draws(path: str | Path) -> Draws:
    """Read draws back from NetCDF. `summary` and `to_arviz` work; the density is not stored."""
    data = from_netcdf(path)
    try:
        posterior, stats = group(data, "posterior"), group(data, "sample_stats")
        positions = group(data, "unconstrained_posterior")["position"].to_numpy()
        known = posterior.attrs
        provenance = json.loads(known["provenance"])
        weights = tuple(json.loads(posterior.attrs["mode_weights"])) or None
        column = {name: stats[name].to_numpy() for name in stats.data_vars}
        kept = {name: column[name] for name in ("accepted", "acceptance_rate", "diverging")}
        counts = {name: column[name] for name in ("nonfinite", "irreversible", "stopped")}
    except (KeyError, ValueError) as error:
        raise InputError(
            f"path must be a NetCDF file written by this library, {path} lacks {error}"
        ) from error
    found = Quantities(
        {str(name): posterior[name].to_numpy() for name in posterior.data_vars},
        positions,
        column.get("mode"),
        weights,
        column.get("hill"),
        {str(name): posterior[name].dims[2:] for name in posterior.data_vars},
        {str(name): values.to_numpy() for name, values in posterior.coords.items()},
        {name: tuple(ends) for name, ends in json.loads(known.get("periods", "{}")).items()},
        bool(known.get("declared", 0)),
    )
    name = provenance.get("target", "target")
    target = Target(_not_stored, positions.shape[2], name=name)
    return Draws(
        positions,
        column["lp"],
        target=target,
        provenance=provenance,
        derived=found,
        **kept,
        **counts,
    )


def _not_stored(x: Array) -> Array:
    return jnp.nan * jnp.sum(x)


def _posterior(found: Quantities) -> xr.Dataset:
    variables = {name.replace("/", "."): values for name, values in found.variables.items()}
    dims = {name.replace("/", "."): tuple(names) for name, names in found.dims.items()}
    return _dataset(variables, dims, dict(found.coords))


def _sample_stats(draws: Draws, found: Quantities) -> xr.Dataset:
    diverging = np.isposinf(draws.log_density)
    stats = {
        "lp": draws.log_density,
        "acceptance_rate": draws.acceptance_rate,
        "accepted": draws.accepted,
        "diverging": diverging if draws.diverging is None else draws.diverging,
    }
    known = vars(draws).get("_modes")
    labels = {"mode": found.mode, "hill": found.hill if known is None else known.labels}
    stats |= {name: values for name, values in labels.items() if values is not None}
    dataset = _dataset(stats, {}, {})
    for name in ("nonfinite", "irreversible", "stopped"):
        dataset[name] = ("chain", np.asarray(getattr(draws, name)))
    return dataset


def _dataset(
    variables: dict[str, np.ndarray],
    dims: dict,
    coords: dict,
    lead: tuple[str, ...] = ("chain", "draw"),
) -> xr.Dataset:
    """A dataset with axes `chain`, `draw` and the named ones, as ArviZ lays it out."""
    data, places, first = {}, {}, len(lead)
    for name, values in variables.items():
        given = dims.get(name, ())
        check(
            len(given) in (0, values.ndim - first),
            f"dims of {name} must name its {values.ndim - first} axes, got {tuple(given)}",
        )
        axes = tuple(given) or tuple(f"{name}_dim_{i}" for i in range(values.ndim - first))
        data[name] = ((*lead, *axes), values)
        sizes = dict(zip((*lead, *axes), values.shape, strict=True))
        places |= {axis: np.asarray(coords.get(axis, np.arange(n))) for axis, n in sizes.items()}
    return xr.Dataset(data, coords=places)


def _attributes(draws: Draws, found: Quantities) -> dict[str, Any]:
    """Attributes that NetCDF can hold: text and numbers, and all of the provenance as JSON."""
    known = draws.provenance
    plain = {
        name: int(value) if isinstance(value, bool) else value
        for name, value in known.items()
        if isinstance(value, str | int | float)
    }
    return plain | {
        "inference_library": "involutive",
        "inference_library_version": known.get("version", __version__),
        "sampling_time": float(known.get("sampling_seconds", np.nan)),
        "tuning_steps": int(known.get("num_warmup", 0)),
        "provenance": json.dumps(known, default=str),
        "mode_weights": json.dumps(list(found.weights or ())),
        "periods": json.dumps({name: list(ends) for name, ends in found.periods.items()}),
        "declared": int(found.declared),
    }

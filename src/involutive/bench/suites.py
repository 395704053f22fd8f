"""Suites of targets by name, and the reference of each target.

A reference is made of exact draws where the target has them, else of a long run of NUTS: one that
ships with the package, one kept in the folder of results, or one made now.
"""

import json
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import jax.random as jr
import numpy as np

from involutive.bench import posteriordb
from involutive.bench.entry import EXACT_NUMBERS, Entry
from involutive.bench.field.suite import FIELD
from involutive.bench.field.suite import QUICK as FIELD_QUICK
from involutive.bench.growth import GROWTH
from involutive.bench.posteriors import POSTERIORS
from involutive.bench.reference import long_run
from involutive.bench.targets import DEFAULT, Reference, summary, with_square
from involutive.core.errors import check
from involutive.targets.target import Target

EVIDENCE = {  # integrals that are known, for nested samplers and SMC to estimate, too
    **{name: FIELD[name] for name in ("gmm_v1", "gmm40_2", "funnel_10", "many_well_32")},
    "two_modes": DEFAULT["two_modes"],
}
SUITES: dict[str, dict[str, Entry]] = {
    "default": DEFAULT,
    "field": FIELD,
    "evidence": EVIDENCE,
    "posteriors": POSTERIORS,
    "growth": GROWTH,
}
QUICK = {  # of `--quick`, which takes ten minutes at most
    "default": ("mog6",),
    "field": FIELD_QUICK,
    "evidence": ("gmm_v1",),
    "posteriors": ("eight_schools", "brownian_32"),
    "growth": ("dim_2", "dim_10", "modes_2", "modes_8"),
}
REFERENCE_DRAWS = 2000  # of each of 16 chains of NUTS, for a reference that is made while running
LARGEST_LONG_RHAT = 1.05  # of a long run that is believed; beyond it the draws are not judged
CLOUD = 8000  # draws kept for distances: four sets of 2000


def names_of(suite: str, quick: bool, data: Path | None) -> list[str]:
    """Names of a suite's targets; a folder of posteriordb adds its posteriors."""
    check(suite in SUITES, f"a suite must be one of {', '.join(SUITES)}, got {suite!r}")
    names = list(QUICK[suite]) if quick else list(SUITES[suite])
    if suite == "posteriors" and data is not None and posteriordb.is_database(data):
        return posteriordb.names(data)
    return names


def entry(name: str, data: Path | None = None) -> Entry:
    """The target of that name in any suite, or of a posteriordb folder."""
    for suite in SUITES.values():
        if name in suite:
            return suite[name]
    if data is not None and posteriordb.is_database(data) and name in posteriordb.names(data):
        return posteriordb.entry(name)
    known = ", ".join(dict.fromkeys(name for suite in SUITES.values() for name in suite))
    check(False, f"a benchmark target must be one of {known}, got {name!r}")
    raise AssertionError


def make(name: str, data: Path | None = None) -> Target:
    """Return the benchmark target of that name."""
    return entry(name, data).make(data)


@lru_cache
def reference(name: str, data: Path | None = None, kept: Path | None = None) -> Reference | None:
    """What exact draws of a target look like; None where nothing is known of its draws.

    Args:
        name: of the target.
        data: the folder of data files.
        kept: a folder in which references of long runs are kept.
    """
    known = entry(name, data)
    if data is not None and posteriordb.is_database(data) and name in posteriordb.names(data):
        return posteriordb.reference(name, data)
    target = known.make(data)
    if target.sample is not None:
        count = min(known.exact, EXACT_NUMBERS // target.dim)
        draws = with_square(np.asarray(target.sample(jr.key(0), count)))
        cloud = np.asarray(target.sample(jr.key(1), CLOUD), np.float64)
        return summary(draws, count, not known.heavy_tails, cloud)
    if not known.reference:
        return None
    if known.stored:
        shipped = files("involutive.bench") / f"{known.stored}.json"
        return _read(json.loads(shipped.read_text(encoding="utf-8")))
    path = None if kept is None else kept / f"{name}.json"
    if path is not None and path.is_file():
        return _read(json.loads(path.read_text(encoding="utf-8")))
    found = long_run(target, known, REFERENCE_DRAWS, cloud=CLOUD)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found) + "\n", encoding="utf-8")
    return _read(found)


def known_reference(name: str) -> Reference:
    """The reference of a target whose draws are known."""
    found = reference(name)
    check(found is not None, f"nothing is known of the draws of {name}")
    assert found is not None
    return found


def _read(kept: dict) -> Reference | None:
    """A long run as a reference; None if its chains did not agree."""
    if kept["r_hat"] > LARGEST_LONG_RHAT:
        return None
    arrays = {key: np.asarray(kept[key]) for key in ("quantiles", "mean", "sd")}
    cloud = np.asarray(kept["cloud"]) if kept.get("cloud") else None
    return Reference(draws=float(kept["draws"]), moments=True, cloud=cloud, **arrays)

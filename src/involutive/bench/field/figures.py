"""Metrics of the literature's tables: log Z error, distances between draws, modes seen.

Published Sinkhorn distances are of about 2000 draws with squared Euclidean cost. Between so few
*exact* draws they are not zero, and in 50 dimensions not small: the floor printed beside ours is
the same distance between two sets of exact draws.
"""

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from involutive.bench.entry import Entry
from involutive.bench.targets import Reference
from involutive.targets.target import Target

CLOUD = 2000  # draws of each set, as in the published tables
SETS = 4  # sets of reference draws: one to compare with, three for the floor
SEEN = 0.1  # share of its exact weight from which a mode counts as found


def squared_w2(a: np.ndarray, b: np.ndarray) -> float:
    """`min over matchings of mean |a_i - b_σ(i)|²`: unregularised W2² of two sets of equal size."""
    cost = cdist(a, b, "sqeuclidean")
    rows, columns = linear_sum_assignment(cost)
    return float(cost[rows, columns].mean())


def distances(known: Entry, reference: Reference | None, draws: np.ndarray) -> dict[str, float]:
    """W2² of draws `(chains, draws, dim)` against reference draws, and of those against others."""
    if reference is None or reference.cloud is None or not np.isfinite(draws).all():
        return {}
    flat = draws.reshape(-1, draws.shape[-1])
    rng = np.random.default_rng(0)
    count = min(CLOUD, len(reference.cloud) // SETS, len(flat))
    chosen = _prepared(known, flat[rng.choice(len(flat), count, replace=False)])
    first, *others = (
        _prepared(known, reference.cloud[i * count : (i + 1) * count]) for i in range(SETS)
    )
    found = squared_w2(chosen, first)
    floors = sorted(squared_w2(other, first) for other in others)
    return {
        "w2": found,
        "w2_floor": floors[0],
        "w2_floor_most": floors[-1],
        "w2_root": found**0.5,
        "w2_root_floor": floors[0] ** 0.5,
        "w2_draws": count,
    }


def _prepared(known: Entry, draws: np.ndarray) -> np.ndarray:
    draws = np.asarray(draws, np.float64)
    if known.clip:
        draws = np.clip(draws, -known.clip, known.clip)
    if known.centred:
        shaped = draws.reshape(len(draws), known.centred, -1)
        draws = (shaped - shaped.mean(axis=1, keepdims=True)).reshape(draws.shape)
    return draws


def integral(known: Entry, found: dict[str, Any] | None) -> dict[str, Any]:
    """log Z, its error, and the mean absolute error of the repeated estimates."""
    if not found:
        return {}
    row = {
        "log_z": found["log_z"],
        "log_z_stated": found["error"],
        "log_z_note": found["note"],
        "importance_share": found["share"],
        "evidence_seconds": found["seconds"],
        "evidence_evaluations": found["evaluations"],
        "alone_seconds": found["alone_seconds"],
        "alone_evaluations": found["alone_evaluations"],
    }
    if known.log_z is not None:
        if found["log_z"] is not None:
            row["log_z_off"] = found["log_z"] - known.log_z
        if found["repeats"]:
            off = np.abs(np.asarray(found["repeats"], float) - known.log_z)
            row["log_z_error"] = float(np.mean(off))
    return row


def modes_seen(target: Target, shares: np.ndarray | None) -> str:
    """How many modes hold at least a tenth of their exact weight, "9 of 9"."""
    if target.modes is None or shares is None:
        return ""
    weights = np.asarray(target.modes.weights)
    return f"{int(np.sum(shares >= SEEN * weights))} of {len(weights)}"

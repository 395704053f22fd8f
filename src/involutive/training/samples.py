"""Training draws: checked, and split into a training and a held-out part."""

import numpy as np
from jaxtyping import Array, Float, Key

from involutive._xla.compilation import on_device
from involutive.core.arrays import as_floats
from involutive.core.errors import check
from involutive.core.keys import generator
from involutive.core.types import ArrayLike

HELD_OUT = 0.15  # share of the draws that training never sees
LEAST_ROWS = 20  # minimum number of draws


def check_samples(samples: ArrayLike, dim: int) -> np.ndarray:
    """Return training draws as a finite float array `(n, dim)`.

    Raises:
        InputError: if their shape does not fit, there are too few, or they are not finite.
    """
    rows = as_floats(samples, "samples must be an array of numbers")
    check(
        rows.ndim == 2 and rows.shape[1] == dim,
        f"samples must have shape (n, {dim}), one row per draw, got {rows.shape}",
    )
    check(
        rows.shape[0] >= LEAST_ROWS,
        f"samples must hold at least {LEAST_ROWS} draws, got {rows.shape[0]}; draw more",
    )
    bad = int((~np.isfinite(rows)).any(axis=1).sum())
    check(bad == 0, f"samples must be finite, got NaN or infinity in {bad} of {len(rows)} rows")
    constant = np.flatnonzero(np.ptp(rows, axis=0) == 0)
    check(
        constant.size == 0,
        f"samples must vary in every coordinate, but {constant.tolist()[:8]} is constant; "
        "drop it from the model, or draw from the whole posterior",
    )
    return rows


def split_samples(
    rows: np.ndarray, key: Key[Array, ""]
) -> tuple[Float[Array, "train dim"], Float[Array, "held dim"]]:
    """Shuffle and split draws into a training and a held-out part."""
    order = generator(key).permutation(rows.shape[0])
    cut = max(int(HELD_OUT * rows.shape[0]), LEAST_ROWS // 4)
    return on_device(rows[order[cut:]]), on_device(rows[order[:cut]])

"""The types of what users pass in."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jax import Array

# what `jnp.asarray` takes: arrays, numbers, and nested sequences of them
ArrayLike = Array | np.ndarray | np.generic | bool | int | float | Sequence[Any]
Number = int | float

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # Matplotlib is imported where something is drawn
    Axes = Figure = Any

# Matplotlib axes to draw on: one, or as many as a plot has panels
AxesLike = Axes | np.ndarray | Sequence[Any]

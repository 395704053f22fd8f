"""The types of what users pass in."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array

# what `jnp.asarray` takes: arrays, numbers, and nested sequences of them
ArrayLike = Array | np.ndarray | np.generic | bool | int | float | Sequence[Any]
Number = int | float

"""Compilation: most of what learning costs in few dimensions, so it is kept short.

By how long a function runs. On the CPU, XLA's older code generator takes about half the time of the
newer one, and for what `learn` makes its code is as fast; with less optimisation it takes less
still. Bare networks (`sampling/chains.py`) and long trainings are run by the newer one.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

# later releases of JAX know only one code generator
SHORT: dict[str, Any] = (
    {"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11) else {}
)
LEVEL = "xla_backend_optimization_level"
# a fifth less time than SHORT, for code as fast within some hundredths; a level set outside stays
SHORTER: dict[str, Any] = SHORT if LEVEL in os.environ.get("XLA_FLAGS", "") else {**SHORT, LEVEL: 2}
SHORTEST: dict[str, Any] = {**SHORT, LEVEL: 1}


MAPS, LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")  # on Linux


def make_room() -> None:
    """Forget compiled programs before they take most of the memory maps a process may have.

    Every program takes some; when none are left, the process dies without a word.
    """
    if not (MAPS.exists() and LIMIT.exists()):
        return
    if MAPS.read_bytes().count(b"\n") > int(LIMIT.read_text()) // 2:
        jax.clear_caches()


def on_device(values: np.ndarray) -> jax.Array:
    """`values` as a JAX array; `jnp.asarray` would compile a program for every new shape."""
    return jax.device_put(values)


def jit_long(function: Callable) -> Any:
    """Compile `function` by JAX's own way, the slowest: it runs for many minutes."""
    return eqx.filter_jit(function)


def jit_often(function: Callable) -> Any:
    """Compile `function` well: it runs for most of the time."""
    options: dict[str, Any] = {"compiler_options": SHORT}
    return eqx.filter_jit(function, **options)


def jit_once(function: Callable) -> Any:
    """Compile `function` quickly rather than well: it runs a few times only."""
    options: dict[str, Any] = {"compiler_options": SHORTEST}
    return eqx.filter_jit(function, **options)


class Jitted:
    """`eqx.filter_jit` of a function that returns arrays alone, with less work per call."""

    def __init__(self, function: Callable, options: dict[str, Any] = SHORTEST):
        def run(arrays: tuple[Any, ...], rest: _Rest) -> Any:
            return function(*rest.joined(arrays))

        run.__name__ = function.__name__
        self._jitted = jax.jit(run, static_argnums=1, compiler_options=options)

    def __call__(self, *arguments: Any) -> Any:
        leaves, form = jax.tree.flatten(arguments)
        arrays = tuple(leaf for leaf in leaves if eqx.is_array(leaf))
        others = tuple(None if eqx.is_array(leaf) else leaf for leaf in leaves)
        return self._jitted(arrays, _Rest(form, others))


class _Rest:
    """What is not an array of some arguments, with None in the place of arrays."""

    def __init__(self, form: Any, others: tuple[Any, ...]):
        self.form, self.others = form, others
        self._hash = hash((form, others))

    def joined(self, arrays: tuple[Any, ...]) -> Any:
        """The arguments, with these arrays."""
        following = iter(arrays)
        leaves = [next(following) if leaf is None else leaf for leaf in self.others]
        return jax.tree.unflatten(self.form, leaves)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, _Rest):
            return self is other
        return self._hash == other._hash and self.form == other.form and self.others == other.others

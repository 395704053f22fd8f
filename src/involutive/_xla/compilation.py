"""Compilation time, calls of compiled functions, and memory maps of compiled programs.

Symptoms, seen with jax 0.10.2 on two cores of a busy CPU; the commands print them again.

`python -m involutive.bench.xla compiling`: XLA's newer code generator takes 1.46 s of CPU to
compile 250 steps of a mixture's chains, the older one (`SHORT`) 0.82 s, for code that runs in 1.28
and 1.46 ms; the Hessians of mog6 take 0.24 s and 0.13 s, and both run in 0.3 ms. The paper's
network runs in 19.9 ms by the newer one and in 38.9 ms by the older one, so bare networks
(`sampling/steps.py`) and long trainings keep the newer one. Less optimisation (levels 1 and 2)
compiles in 0.84 to 1.03 of the time of `SHORT`, less than the fifth that would keep it here.

`python -m involutive.bench.xla calls`: to call a compiled density of 512 rows through
`eqx.filter_jit` takes 106 µs, through `Jitted` 36 µs.

`python -m involutive.bench.xla arrays`: `jnp.asarray` compiles a program for every new shape, 1687
ms for 60 arrays; `on_device` takes 2.8 ms.

`python -m involutive.bench.xla maps`: every compiled program takes three of the 65 530 memory maps
that Linux gives a process, which dies without a message when none are left; `make_room` gives them
back.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

# later releases of JAX know only one code generator
SHORT: dict[str, Any] = (
    {"xla_cpu_use_fusion_emitters": False} if jax.__version_info__ < (0, 11) else {}
)

MAPS, LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")  # on Linux


def make_room() -> None:
    """Clear compiled programs before they take most of the memory maps of the process.

    Every program takes some; when none are left, the process dies without a message.
    """
    if not (MAPS.exists() and LIMIT.exists()):
        return
    if MAPS.read_bytes().count(b"\n") > int(LIMIT.read_text()) // 2:
        jax.clear_caches()


def on_device(values: np.ndarray) -> jax.Array:
    """`values` as a JAX array, without a compilation."""
    return jax.device_put(values)


def jit_long(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function` with JAX's default, slow options, for functions that run for minutes."""
    return eqx.filter_jit(function)


def jit_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function` with `SHORT`, quickly, for functions that run for seconds."""
    options: dict[str, Any] = {"compiler_options": SHORT}
    return eqx.filter_jit(function, **options)


class Jitted:
    """`eqx.filter_jit` of a function that returns arrays alone, with less work per call."""

    def __init__(self, function: Callable, options: dict[str, Any] = SHORT):
        def run(arrays: tuple[Any, ...], rest: _Rest) -> PyTree:
            return function(*rest.joined(arrays))

        run.__name__ = function.__name__
        self._jitted = jax.jit(run, static_argnums=1, compiler_options=options)

    def __call__(self, *arguments: PyTree) -> PyTree:
        leaves, form = jax.tree.flatten(arguments)
        arrays = tuple(leaf for leaf in leaves if eqx.is_array(leaf))
        others = tuple(None if eqx.is_array(leaf) else leaf for leaf in leaves)
        return self._jitted(arrays, _Rest(form, others))


class _Rest:
    """The leaves of arguments that are not arrays, with None in place of arrays."""

    def __init__(self, form: Any, others: tuple[Any, ...]):
        self.form, self.others = form, others
        self._hash = hash((form, others))

    def joined(self, arrays: tuple[Any, ...]) -> PyTree:
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

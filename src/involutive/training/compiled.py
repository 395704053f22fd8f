"""Compilation for functions that run a few times only."""

from collections.abc import Callable
from typing import Any

import equinox as eqx

# less optimised code: half the time to compile, which is most of what such a function costs
OPTIONS: dict[str, Any] = {"compiler_options": {"xla_backend_optimization_level": 1}}


def jit_once(function: Callable) -> Any:
    """Compile `function` quickly rather than well."""
    return eqx.filter_jit(function, **OPTIONS)

"""Foreign libraries, one per file, each imported when it is first named and not before."""

import importlib
from typing import Any

from involutive.core.errors import InputError

_EXTRAS = {"arviz": None, "blackjax": "blackjax", "numpyro": "numpyro", "pymc": "pymc"}


def __getattr__(name: str) -> Any:
    if name not in _EXTRAS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        missing, extra = error.name or name, _EXTRAS[name]
        if missing.startswith("involutive") or extra is None:
            raise
        raise InputError(
            f"interop.{name} needs the library {missing}, which is not installed; "
            f"run pip install 'involutive[{extra}]'"
        ) from error


def __dir__() -> list[str]:
    return sorted(_EXTRAS)

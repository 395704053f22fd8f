"""Learned MCMC with proposals that are their own inverse.

The kernel leaves the target invariant, whatever was learned.

The public names stand in `_public.py`. They are imported when the first of them is used: JAX and
the rest take seconds, and the command must answer a mistyped file name before that.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import involutive._wiring  # noqa: F401  says where views of results are made
from involutive._version import __version__ as __version__

if TYPE_CHECKING:
    from involutive._public import *  # noqa: F403
    from involutive._public import __all__ as __all__
else:  # a type checker would take every name for one of the package's

    def __getattr__(name: str) -> Any:
        if name == "__all__" or not name.startswith("_"):
            public = import_module("involutive._public")
            # without names of its own it is being imported, and asks for a part of this package
            if name == "__all__" or name in getattr(public, "__all__", ()):
                value = globals()[name] = getattr(public, name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(import_module("involutive._public").__all__)

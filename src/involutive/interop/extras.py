"""Optional libraries: without one, the error names the extra that installs it."""

from types import ModuleType

from involutive.core.errors import InputError


class MissingExtra(InputError, ImportError):
    """An optional library is not installed; the message says how to install it."""


def require(library: str, extra: str) -> ModuleType:
    """Import and return an optional library, or say which extra of this package brings it."""
    import importlib

    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise MissingExtra(
            f"this needs {library}, which could not be imported ({error}); "
            f"install it with: pip install 'involutive[{extra}]'"
        ) from error

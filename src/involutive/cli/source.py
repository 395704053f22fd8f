"""`FILE.py:NAME`: run the user's file and return what NAME is as a target.

NAME may be a Target, a function with a number DIM beside it (a log density of one vector), a
NumPyro model (a function of no required arguments, without DIM) or a PyMC model. The file is
ordinary Python and is executed.
"""

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeGuard

from involutive.cli.arguments import check_source
from involutive.core.errors import InputError, check
from involutive.core.text import first_line
from involutive.targets.parameters import Parameters
from involutive.targets.target import Target

if TYPE_CHECKING:
    from pymc import Model
else:
    Model = Any


def read_target(source: str) -> Target:
    """Return the target that `FILE.py:NAME` names."""
    path, name = check_source(source)
    module = _run(path)
    check(
        hasattr(module, name),
        f"{path} must define {name}, but it defines {_defined(module) or 'nothing usable'}",
    )
    return as_target(getattr(module, name), getattr(module, "DIM", None), name)


def as_target(found: object, dim: int | Parameters | None, name: str) -> Target:
    """Return what a file holds under `name`, with DIM if it has one, as a target."""
    if isinstance(found, Target):
        return found
    if _is_pymc(found):
        from involutive.interop import pymc

        return pymc.target(found)
    if not callable(found):
        raise InputError(
            f"{name} must be a Target, a log density with DIM, a NumPyro model or a PyMC model, "
            f"got {type(found).__name__}"
        )
    if dim is not None:
        return Target(found, dim, name=name)
    needed = _required(found)
    check(
        not needed,
        f"{name} takes {', '.join(needed)}: for a log density set DIM = its number of coordinates "
        "in the file; for a NumPyro model give the data as defaults or with functools.partial",
    )
    from involutive.interop import numpyro

    return numpyro.target(found)


def _run(path: Path) -> ModuleType:
    name = f"user_{path.stem}"  # a file called jax.py must not take that library's place
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.path.insert(0, str(path.parent.resolve()))  # as python FILE.py would
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)  # type: ignore[union-attr]
    except SystemExit as error:
        raise InputError(
            f"{path} must run to its end, but it called exit({error.code!r}); move that under "
            "if __name__ == '__main__':"
        ) from error
    except Exception as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if _same(f, path)]
        line = getattr(error, "lineno", None) or (lines[-1] if lines else 0)
        raise InputError(
            f"{path} must run without error, but line {line} raised {first_line(error, named=True)}"
        ) from error
    return module


def _same(frame: traceback.FrameSummary, path: Path) -> bool:
    return Path(frame.filename).resolve() == path.resolve()


def _defined(module: ModuleType) -> str:
    """The names in a module that could be meant: targets, models and the file's own functions."""
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (
            isinstance(value, Target)
            or _is_pymc(value)
            or (inspect.isfunction(value) and value.__module__ == module.__name__)
        )
    ]
    return ", ".join(own)


def _is_pymc(found: object) -> TypeGuard[Model]:
    pymc = sys.modules.get("pymc")  # a PyMC model cannot exist before PyMC was imported
    return pymc is not None and isinstance(found, pymc.Model)


def _required(function: Callable[..., object]) -> list[str]:
    """The arguments a call cannot leave out."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in kinds]

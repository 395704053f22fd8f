"""Views of a result that packages to its right make: a summary, a report, ArviZ's container.

`Draws` lies left of the code that judges, draws and converts it, so it cannot import that code.
It offers methods all the same: each asks for its view here, and `involutive._wiring`, which may
import everything, says once where every view is made.
"""

from collections.abc import Callable
from typing import Any

_makers: dict[str, Callable[[], Callable[..., Any]]] = {}


def offer(name: str, load: Callable[[], Callable[..., Any]]) -> None:
    """Say where a view is made: `load()` returns the function, and is called when it is needed."""
    _makers[name] = load


def view(name: str) -> Callable[..., Any]:
    """The function that makes a view."""
    return _makers[name]()

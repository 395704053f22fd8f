"""Where every view of a result is made (`core/views.py`): the one file that sees all rooms."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from involutive.core.views import offer


def _from(module: str, name: str) -> Callable[[], Callable[..., Any]]:
    """A loader: reports, plots and ArviZ's containers are imported when they are asked for."""
    return lambda: getattr(import_module(f"involutive.{module}"), name)


offer("summary", _from("diagnostics.metrics", "summarise"))
offer("modes", _from("diagnostics.modes", "modes_of"))
offer("comparison_bars", _from("plotting.evidence", "comparison_bars"))
offer("arviz", _from("interop.arviz", "from_draws"))
offer("report", _from("report.page", "write_report"))
offer("draws_html", _from("report.notebook", "draws_html"))
offer("learned_html", _from("report.notebook", "learned_html"))

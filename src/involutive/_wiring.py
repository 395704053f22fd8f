"""Where every view of a result is made (`core/views.py`): it may import all packages."""

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
offer("kernel_html", _from("report.notebook", "kernel_html"))
offer("outcome_html", _from("report.notebook", "outcome_html"))
offer("target_html", _from("report.notebook", "target_html"))
offer("plot_pair", _from("plotting.pairs", "plot_pair"))
offer("plot_trace", _from("plotting.traces", "plot_trace"))
offer("plot_proposal", _from("plotting.moves", "plot_proposal"))
offer("plot_outcome", _from("plotting.outcome", "plot_outcome"))
offer("live", _from("plotting.live", "LiveView"))

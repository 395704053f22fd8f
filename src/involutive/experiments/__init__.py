"""The paper's figures and theorems, and studies beyond it: one file per experiment."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from involutive.experiments.catalogue import everything, list_experiments

if TYPE_CHECKING:
    from involutive.experiments.framework import (
        Experiment,
        ExperimentRun,
        find_experiment,
        load_result,
        run_experiment,
    )

__all__ = [
    "Experiment",
    "ExperimentRun",
    "everything",
    "find_experiment",
    "list_experiments",
    "load_result",
    "run_experiment",
]


def __getattr__(name: str) -> Any:
    """What runs experiments, imported when it is used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.framework"), name)

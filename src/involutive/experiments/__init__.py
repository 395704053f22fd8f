"""The paper's figures and theorems, and studies beyond it: one file an experiment."""

from involutive.experiments.framework import (
    Experiment,
    Outcome,
    everything,
    find_experiment,
    list_experiments,
    load_result,
    run_experiment,
)

__all__ = [
    "Experiment",
    "Outcome",
    "everything",
    "find_experiment",
    "list_experiments",
    "load_result",
    "run_experiment",
]

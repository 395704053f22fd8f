"""The paper's figures and theorems, and studies beyond it: one file an experiment."""

from involutive.experiments.framework import (
    Experiment,
    ExperimentRun,
    everything,
    find_experiment,
    list_experiments,
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

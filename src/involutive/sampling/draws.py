"""Draws: what a run of chains returns, with where it came from."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from involutive.core.views import view
from involutive.targets.target import Target


@dataclass(frozen=True, repr=False)
class Draws:
    """The draws of several chains.

    Attributes:
        positions: `(chains, draws, dim)`, in the target's flat coordinates.
        log_density: `(chains, draws)`.
        accepted: `(chains, draws)`, whether the step to this draw moved.
        acceptance_rate: `(chains, draws)`, the probability with which it was accepted.
        nonfinite: `(chains,)`, how many draws met a density that was NaN or +inf.
        irreversible: `(chains,)`, how many draws met a move that did not return.
        stopped: `(chains,)`, whether the chain met a density of +inf and was stopped.
        target: the density sampled.
        provenance: versions, seed, sizes, seconds: what it takes to repeat the run.
        diverging: `(chains, draws)`, whether the step to this draw met a density of NaN or +inf.
        derived: the named quantities, for draws read from a file without their density.
    """

    positions: np.ndarray
    log_density: np.ndarray
    accepted: np.ndarray
    acceptance_rate: np.ndarray
    nonfinite: np.ndarray
    irreversible: np.ndarray
    stopped: np.ndarray
    target: Target
    provenance: dict[str, Any] = field(default_factory=dict)
    diverging: np.ndarray | None = None
    derived: Any = None

    @property
    def num_chains(self) -> int:
        return self.positions.shape[0]

    @property
    def num_samples(self) -> int:
        return self.positions.shape[1]

    def to_arviz(self) -> Any:
        """Return ArviZ's `InferenceData` (0.x) or `DataTree` (1.x), variables named."""
        return view("arviz")(self)

    def summary(self) -> Any:
        """Return the table of means, ESS, R-hat and MCSE, with a verdict in plain words."""
        return view("summary")(self)

    def report(self, path: Any, kernel: Any = None, assessment: Any = None) -> Any:
        """Write one self-contained HTML file that says whether these draws can be trusted.

        Args:
            path: the file to write.
            kernel: what made the draws, to show how it moves and how it was learned.
            assessment: what `assess` returned, to show the bound against steps.

        Returns:
            The path.
        """
        return view("report")(self, path, kernel=kernel, assessment=assessment)

    def _repr_html_(self) -> str:
        return view("draws_html")(self)

    def __repr__(self) -> str:
        return (
            f"Draws({self.num_chains} chains × {self.num_samples} draws of {self.target.name}, "
            f"dim {self.positions.shape[2]}; summary() judges them)"
        )

"""Draws: what a run of chains returns, with where it came from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from involutive.core.errors import check
from involutive.core.keys import KeyLike
from involutive.core.types import Axes, AxesLike, Number
from involutive.core.views import view
from involutive.kernel.kernel import AbstractKernel
from involutive.sampling.quantities import Quantities, quantities
from involutive.storage.format import PathLike
from involutive.targets.target import Target

if TYPE_CHECKING:  # views of draws, made by packages to the right
    from pandas import DataFrame

    from involutive.diagnostics.assess import Assessment
    from involutive.diagnostics.measured import Evidence
    from involutive.diagnostics.modes import Modes
    from involutive.diagnostics.summary import Summary
else:
    Assessment = DataFrame = Evidence = Modes = Summary = Any


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

    Example:
        >>> import involutive as inv
        >>> kernel = inv.random_walk(inv.targets.gaussian(2), 0.5)
        >>> draws = inv.sample(kernel, key=0, num_chains=4, num_samples=20)
        >>> draws.positions.shape, draws.accepted.shape
        ((4, 20, 2), (4, 20))
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
    derived: Quantities | None = None

    @property
    def num_chains(self) -> int:
        return self.positions.shape[0]

    @property
    def num_samples(self) -> int:
        return self.positions.shape[1]

    def __getitem__(self, name: str) -> np.ndarray:
        """The draws of one variable, `(chains, draws, ...)`, constrained as the target reports it.

        Raises:
            InputError: if the target reports no variable of that name.

        Example:
            ```python
            import involutive as inv

            kernel = inv.random_walk(inv.targets.mog2_1d(), 0.8)
            draws = inv.sample(kernel, key=0, num_chains=2, num_samples=9)
            assert draws["x"].shape == (2, 9, 1)
            ```
        """
        known = self._variables()
        names = ", ".join(known)
        check(name in known, f"a variable must be one of {names}, got {name!r}")
        return known[name]

    def get_samples(self, group_by_chain: bool = False) -> dict[str, np.ndarray]:
        """Return every variable by name, chains joined, as NumPyro's `MCMC.get_samples` does.

        Args:
            group_by_chain: keep the axis of chains in front.
        """
        known = self._variables()
        if group_by_chain:
            return known
        return {name: values.reshape(-1, *values.shape[2:]) for name, values in known.items()}

    def to_dataframe(self) -> DataFrame:
        """Return a pandas table: `chain`, `draw`, a column per scalar (`theta[2]`), and `lp`."""
        import pandas as pd

        rows = self._quantities().scalars()
        chain, draw = np.indices(self.log_density.shape)
        columns = {"chain": chain, "draw": draw} | rows | {"lp": self.log_density}
        return pd.DataFrame({name: values.ravel() for name, values in columns.items()})

    def _variables(self) -> dict[str, np.ndarray]:
        return dict(self._quantities().variables)

    def _quantities(self) -> Quantities:
        return self.derived or quantities(self.target, self.positions)

    def to_arviz(
        self,
        *,
        log_likelihood: bool | None = None,
        posterior_predictive: bool = False,
        prior: int = 0,
        key: KeyLike = 0,
    ) -> Any:
        """Return ArviZ's `InferenceData` (0.x) or `DataTree` (1.x), variables named.

        It has the groups posterior and sample_stats; for a target that knows its data (a NumPyro
        or PyMC model, or `Target(..., log_likelihood=...)`) also log_likelihood, observed_data and
        constant_data.

        Args:
            log_likelihood: whether to add the pointwise log likelihood; by default if it is known
                and not larger than 50 million numbers.
            posterior_predictive: whether to add new observations, one set per draw.
            prior: how many draws of the prior, and of observations under it, to add.
            key: an int seed or a JAX key, for predictions and the prior.

        Example:
            ```python
            import involutive as inv

            kernel = inv.random_walk(inv.targets.mog2_1d(), 0.8)
            data = inv.sample(kernel, key=0, num_chains=2, num_samples=9).to_arviz()
            assert data["posterior"]["x"].shape == (2, 9, 1)
            ```
        """
        return view("arviz")(self, log_likelihood, posterior_predictive, prior, key)

    def summary(self) -> Summary:
        """Return the table of means, ESS, R-hat and MCSE, with a verdict in plain words."""
        return view("summary")(self)

    def modes(self, evidence: Evidence | None = None) -> Modes:
        """Return the modes: groups of draws joined by density, with their weights.

        Two draws belong to one mode if a path joins them along which the log density does not
        drop. Some draws climb the density, and paths are tried between where they arrive.

        Args:
            evidence: what `inv.evidence` returned, to give every mode its own log Z.

        Returns:
            The modes, the heaviest first: weight with its error, mean and sd of every parameter,
            how many chains visited it, and how often chains changed their mode.

        Example:
            ```python
            import involutive as inv

            kernel = inv.random_walk(inv.targets.mog2_1d(), 0.8)
            draws = inv.sample(kernel, key=0, num_chains=8, num_samples=500)
            assert len(draws.modes()) == 2
            ```
        """
        kept = self.__dict__.get("_modes")
        if kept is None or evidence is not None:
            kept = view("modes")(self, evidence)
            self.__dict__["_modes"] = kept  # the run does not change, and climbs take seconds
        return kept

    def noting(self, **facts: object) -> "Draws":
        """Return the draws with additional facts in their provenance."""
        noted = replace(self, provenance=self.provenance | facts)
        noted.__dict__.update(
            {name: self.__dict__[name] for name in ("_modes",) if name in vars(self)}
        )
        return noted

    def plot_pair(
        self,
        names: Iterable[str] | str | None = None,
        *,
        modes: bool = True,
        truths: Mapping[str, Number] | None = None,
        axes: AxesLike | None = None,
    ) -> np.ndarray:
        """Plot every pair of quantities, and each quantity alone on the diagonal.

        The two contours hold 50 % and 90 % of the draws; colours tell modes apart.

        Args:
            names: variables or scalars (`"theta"`, `"theta[2]"`); by default the first six.
            modes: whether to colour draws by mode, if the density is available.
            truths: known values by name, drawn as dashed lines.
            axes: Matplotlib axes to draw on; by default those of a new figure.

        Returns:
            A NumPy array of Matplotlib axes, one row and one column per quantity.

        Raises:
            InputError: if a name is not known, or the axes do not fit.

        Example:
            ```python
            import involutive as inv

            kernel = inv.random_walk(inv.targets.mog2(), 0.8)
            draws = inv.sample(kernel, key=0, num_chains=4, num_samples=100)
            assert draws.plot_pair(modes=False).shape == (2, 2)
            ```
        """
        return view("plot_pair")(self, names, modes, truths, axes)

    def plot_trace(
        self,
        names: Iterable[str] | str | None = None,
        *,
        chains: int = 4,
        axes: AxesLike | None = None,
    ) -> np.ndarray:
        """Plot the path of some chains, one row per quantity and one chain per panel.

        Args:
            names: variables or scalars; by default the first six.
            chains: how many chains to show.
            axes: Matplotlib axes to draw on; by default those of a new figure.

        Returns:
            A NumPy array of Matplotlib axes `(quantities, chains)`.

        Raises:
            InputError: if a name is not known, or the axes do not fit.
        """
        return view("plot_trace")(self, names, chains, axes)

    def plot_proposal(
        self, kernel: AbstractKernel, *, count: int = 48, axes: AxesLike | None = None
    ) -> Axes:
        """Plot where a kernel's proposal sends some draws; faint arrows are likely to be rejected.

        Args:
            kernel: a learned kernel, or one made of one involution.
            count: how many arrows.
            axes: one Matplotlib axes to draw on; by default that of a new figure.

        Returns:
            The Matplotlib axes.

        Raises:
            InputError: if the kernel has no single proposal.
        """
        return view("plot_proposal")(self, kernel, count, axes)

    def report(
        self,
        path: PathLike,
        kernel: AbstractKernel | None = None,
        assessment: Assessment | None = None,
        evidence: Evidence | None = None,
        truths: Mapping[str, Number] | None = None,
    ) -> Path:
        """Write one self-contained HTML file that says whether these draws can be trusted.

        Args:
            path: the file to write.
            kernel: the kernel of the draws, to show how it moves and how it was learned.
            assessment: what `assess` returned, to show the bound against steps.
            evidence: what `evidence` returned, to show log Z, also of every mode.
            truths: known values by name, drawn in the pair plot.

        Returns:
            The path.
        """
        return view("report")(self, path, kernel, assessment, evidence, truths)

    def _repr_html_(self) -> str:
        return view("draws_html")(self)

    def __repr__(self) -> str:
        return (
            f"Draws({self.num_chains} chains × {self.num_samples} draws of {self.target.name}, "
            f"dim {self.positions.shape[2]}; summary() judges them)"
        )

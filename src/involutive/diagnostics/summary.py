"""The summary of a run: metrics, problems in plain words, and one sentence that decides."""

from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from involutive.core.text import decimal
from involutive.diagnostics.findings import Finding, Metrics
from involutive.diagnostics.modes import line_of
from involutive.diagnostics.search import behind, looked_frugally, not_compared

if TYPE_CHECKING:
    import pandas as pd

ROWS = 24  # parameters shown; of more, those with the fewest effective draws


@dataclass(frozen=True, repr=False)
class Summary:
    """What can be said about a run.

    Attributes:
        metrics: the metrics, and the draws they come from.
        findings: problems, each with what to try; serious ones first.
    """

    metrics: Metrics
    findings: list[Finding] = field(default_factory=list)

    @cached_property
    def table(self) -> "pd.DataFrame":
        """One row per quantity: mean, sd, 5% and 95% quantile, ESS, R-hat, MCSE."""
        import pandas as pd

        return pd.DataFrame(self.metrics.figures, index=self.metrics.names)

    @property
    def ess_per_draw(self) -> float:
        """The minimum bulk ESS per draw over coordinates, |x|² and mode indicators."""
        return self.metrics.ess_per_draw

    @property
    def trustworthy(self) -> bool:
        """Whether nothing serious was found. It cannot vouch for a mode that no chain has seen."""
        return not any(finding.serious for finding in self.findings)

    @property
    def verdict(self) -> str:
        """One sentence."""
        if not self.trustworthy:
            kinds = [finding.kind for finding in self.findings if finding.serious]
            return f"Not trustworthy yet: {', '.join(kinds)}."
        _, rhat = self.metrics.worst(self.metrics.rhat, largest=True)
        name, size = self.metrics.worst("ess_bulk", largest=False)
        numbers = (
            f"at least {size:,.0f} effective draws ({name}) and R-hat at most {rhat:.3f} for every "
            "quantity"
        )
        reasons = behind(self.metrics)
        if reasons is None:
            looked = looked_frugally(self.metrics) or not_compared(self.metrics)
            looked = looked or "No search was made for modes that no chain has visited"
            return f"No sign of trouble in the chains: {numbers}. {looked}."
        return f"Trustworthy: {numbers}; {reasons}."

    @property
    def movement(self) -> str:
        """Acceptance beside effective draws."""
        seen = self.metrics
        return (
            f"acceptance {seen.acceptance:.3f} with {seen.ess_per_draw:.3g} effective draws per "
            f"draw (minimum bulk ESS: {seen.slowest})"
        )

    @cached_property
    def modes(self) -> str | None:
        """One line on the modes; None if the density is not available or is expensive."""
        return line_of(self.metrics.draws)

    def __str__(self) -> str:
        parts = [self._title(), "", self._shown().to_string(), "", self.movement]
        left = len(self.table) - len(self._rows())
        if left > 0:
            parts.insert(3, f"({left} quantities with more effective draws are in .table)")
        parts += [*self._modes(), "", self.verdict]
        parts += [f"  - {finding}" for finding in self.findings]
        return "\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{escape(str(finding))}</li>" for finding in self.findings)
        notes = "".join(f"<p>{escape(line)}</p>" for line in [self.movement, *self._modes()])
        return (
            f"<div><p><b>{escape(self.verdict)}</b></p><ul>{items}</ul>{notes}"
            f"{self._shown().to_html(escape=True)}<p>{escape(self._title())}</p></div>"
        )

    def _title(self) -> str:
        draws, every = self.metrics.draws, self.metrics.every
        size = f"{draws.num_chains} chains of {draws.num_samples} draws"
        thinned = f", every {every}-th diagnosed (ESS is at least this)" if every > 1 else ""
        return f"{draws.target.name}: {size}{thinned}"

    def _modes(self) -> list[str]:
        lines = [] if self.modes is None else [self.modes]
        share, exact = self.metrics.share, self.metrics.exact
        if share is None or exact is None:
            return lines
        distance = 0.5 * np.abs(share - exact).sum()
        return [*lines, f"mode weights {distance:.4f} in total variation from the exact ones"]

    def _shown(self) -> "pd.DataFrame":
        """The rows to print: parameters in their own order, then |x|² and the modes.

        Of many parameters those with the fewest effective draws are shown. Digits follow the
        Monte Carlo error.
        """
        kept = set(self._rows())
        table = self.table.loc[[name for name in self.metrics.names if name in kept]]
        shown = table.copy().astype(object)
        for name, row in table.iterrows():
            noise = float(row["mcse"])
            spread = float(row["sd"]) / np.sqrt(2 * max(float(np.nan_to_num(row["ess_bulk"])), 1.0))
            for column in table.columns:
                error = spread if column == "sd" else noise
                shown.at[name, column] = _cell(str(column), float(row[column]), error)
        return shown

    def _rows(self) -> list[str]:
        shape = [name for name in self.metrics.names if _is_shape(name)]
        parameters = [name for name in self.metrics.names if not _is_shape(name)]
        if len(parameters) > ROWS:
            sizes = self.metrics.figures["ess_bulk"]
            parameters = sorted(parameters, key=lambda name: np.nan_to_num(sizes[name]))[:ROWS]
        return parameters + shape[: max(2, ROWS - len(parameters))]


def _is_shape(name: str) -> bool:
    """Whether a row is |x|² or the indicator of a mode, and no parameter."""
    return name == "|x|²" or name.startswith("mode ")


def _cell(column: str, value: float, error: float) -> str:
    if np.isnan(value):
        return "-"
    if column.startswith("ess"):
        return f"{value:,.0f}"
    if "r_hat" in column:
        return f"{value:.3f}"
    if column == "mcse":
        return f"{value:.2g}"
    return decimal(value, error)

"""The result of `evidence`: log Z with its error, and whether to trust it."""

import math
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

from involutive.core.text import decimal

NORMAL_95 = 1.959963984540054  # half-width of the 95% interval of N(0, 1)


class Estimate(NamedTuple):
    """A log Z with its standard error."""

    log_z: float
    error: float

    def __str__(self) -> str:
        return f"{decimal(self.log_z, self.error)} ± {decimal(self.error, self.error)}"


@dataclass(frozen=True, repr=False)
class Evidence:
    """An estimate of log Z.

    Attributes:
        log_z: the estimate by bridge sampling; NaN if it is withheld.
        error: its standard error.
        pareto_k: the shape of the tail of the importance weights; below 0.7 they are reliable.
        effective_share: the share of the proposal's draws that are effective.
        importance, bridge: both estimates, `(log_z, error)`, also if log Z is withheld.
        reasons: why the estimate is not trustworthy; empty if it is.
        marginal: whether a prior was declared, so that log Z is the marginal likelihood.
        target: what was integrated.
        num_samples: number of draws of the proposal.
        evaluations: number of density evaluations; a gradient counts as three.
        seconds: wall time.

    Example:
        >>> import involutive as inv
        >>> found = inv.Evidence(-3.0, 0.1, 0.2, 0.9, (-3.0, 0.1), (-3.0, 0.1))
        >>> found.log_z, found.trustworthy
        (-3.0, True)
    """

    log_z: float
    error: float
    pareto_k: float
    effective_share: float
    importance: Estimate
    bridge: Estimate
    reasons: tuple[str, ...] = ()
    marginal: bool = False
    target: str = "target"
    num_samples: int = 0
    evaluations: int = 0
    seconds: float = field(default=0.0, compare=False)

    @property
    def lower(self) -> float:
        """The lower end of the 95 % interval."""
        return self.log_z - NORMAL_95 * self.error

    @property
    def upper(self) -> float:
        """The upper end of the 95 % interval."""
        return self.log_z + NORMAL_95 * self.error

    @property
    def trustworthy(self) -> bool:
        """Whether nothing speaks against the estimate."""
        return not self.reasons

    @property
    def withheld(self) -> bool:
        """Whether no estimate is given: the two estimates disagree, or mass lies outside q."""
        return math.isnan(self.log_z)

    @property
    def meaning(self) -> str:
        """What log Z means: a log marginal likelihood, or the log of an integral."""
        if self.marginal:
            return "log marginal likelihood"
        return "log of the integral of the density given (no prior was declared)"

    def record(self) -> dict[str, Any]:
        """The result as plain numbers and text, for JSON."""
        names = ("target", "log_z", "error", "lower", "upper", "pareto_k", "effective_share")
        plain = {name: getattr(self, name) for name in (*names, "trustworthy", "meaning")}
        more = {"importance": self.importance._asdict(), "bridge": self.bridge._asdict()}
        sizes = ("num_samples", "evaluations", "seconds")
        return plain | more | {"reasons": list(self.reasons)} | {n: getattr(self, n) for n in sizes}

    def rows(self) -> dict[str, str]:
        """The result as short lines, by their names."""
        rows = {"log Z": "withheld"}
        if not self.withheld:
            ends = (decimal(end, self.error) for end in (self.lower, self.upper))
            rows["log Z"] = f"{Estimate(self.log_z, self.error)}, 95 % from {' to '.join(ends)}"
        return rows | {
            "meaning": self.meaning,
            "importance sampling": str(self.importance),
            "bridge sampling": str(self.bridge),
            "Pareto k": f"{self.pareto_k:.2f}" if self.pareto_k > -math.inf else "-inf (no tail)",
            "effective share": f"{self.effective_share:.3f} of {self.num_samples:,} draws",
        }

    def __str__(self) -> str:
        verdict = "trustworthy" if self.trustworthy else "NOT trustworthy"
        head = f"Evidence of {self.target}: {verdict}"
        width = max(map(len, self.rows()))
        lines = [f"  {name:{width}}  {value}" for name, value in self.rows().items()]
        return "\n".join([head, *lines, *(f"  - {reason}" for reason in self.reasons)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        verdict = "Trustworthy" if self.trustworthy else "Not trustworthy"
        cells = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>"
            for name, value in self.rows().items()
        )
        items = "".join(f"<li>{escape(reason)}</li>" for reason in self.reasons)
        return (
            f"<div><p><b>{verdict}.</b> Evidence of {escape(self.target)}.</p>"
            f"<table>{cells}</table><ul>{items}</ul></div>"
        )

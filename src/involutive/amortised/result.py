"""The result of `sample_many`: draws and one verdict per data set."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from involutive.amortised.family import Family
from involutive.amortised.layout import DataSet
from involutive.amortised.verdict import SetVerdict
from involutive.core.errors import check
from involutive.sampling.draws import Draws

if TYPE_CHECKING:
    from pandas import DataFrame
else:
    DataFrame = Any

NAMED = 8  # data sets named in one line


@dataclass(frozen=True)
class SetDraws:
    """The chains of one data set.

    Attributes:
        positions: `(chains, draws, dim)`.
        log_density: `(chains, draws)`.
        accepted: `(chains, draws)`.
        acceptance_rate: `(chains, draws)`.
        nonfinite: `(chains,)`.
        labels: `(chains, draws)`, the mode that each draw lies in.
    """

    positions: np.ndarray
    log_density: np.ndarray
    accepted: np.ndarray
    acceptance_rate: np.ndarray
    nonfinite: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True, repr=False)
class Many:
    """Chains of many posteriors, with one verdict each.

    Attributes:
        verdicts: one per data set, in their order; None where this process did not run it.
        chains: the draws of each data set; None where this process did not run it.
        family: the density of parameters and data.
        data_sets: what was sampled.
        seconds: wall time.
        provenance: seed, sizes and versions.

    Example:
        >>> import involutive as inv, jax.numpy as jnp
        >>> def log_density(x, data): return -jnp.sum((x - data) ** 2)
        >>> family = inv.Family(log_density, 2, data=[jnp.zeros(2)])
        >>> nothing = inv.Many([None], [None], family, family.data)
        >>> nothing.failed, len(nothing)
        ([], 1)
    """

    verdicts: list[SetVerdict | None]
    chains: list[SetDraws | None]
    family: Family
    data_sets: Sequence[DataSet]
    seconds: float = 0.0
    provenance: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.verdicts)

    def __getitem__(self, number: int) -> SetVerdict:
        """The verdict on one data set.

        Raises:
            InputError: if there is no data set of that number, or it was not run here.
        """
        check(
            -len(self) <= number < len(self),
            f"a data set must be numbered 0 to {len(self) - 1}, got {number}",
        )
        found = self.verdicts[number]
        check(found is not None, f"data set {number} was not run here; merge with resume=True")
        assert found is not None
        return found

    @property
    def done(self) -> list[int]:
        """The numbers of the data sets that were run."""
        return [i for i, verdict in enumerate(self.verdicts) if verdict is not None]

    @property
    def failed(self) -> list[int]:
        """The numbers of the data sets whose draws are not to be trusted."""
        return [i for i in self.done if not self[i].trusted]

    def column(self, name: str) -> np.ndarray:
        """One number of every verdict: `ess_per_draw`, `log_z`, …; NaN where there is none."""
        return np.array(
            [np.nan if v is None else float(getattr(v, name)) for v in self.verdicts], np.float64
        )

    def positions(self, number: int) -> np.ndarray:
        """The draws of one data set, `(chains, draws, dim)`, unconstrained."""
        return self._chains(number).positions

    def labels(self, number: int) -> np.ndarray:
        """The mode of each draw of one data set, `(chains, draws)`."""
        return self._chains(number).labels

    def draws(self, number: int) -> Draws:
        """The draws of one data set, with everything that `Draws` offers."""
        found = self._chains(number)
        chains = len(found.positions)
        return Draws(
            found.positions, found.log_density, found.accepted, found.acceptance_rate,
            found.nonfinite, np.zeros(chains, int), np.isposinf(found.log_density[:, -1]),
            self.family.at(self.data_sets[number]), self.provenance | {"data_set": number},
        )  # fmt: skip

    def _chains(self, number: int) -> SetDraws:
        self[number]  # refuses a number that there is not
        found = self.chains[number]
        assert found is not None
        return found

    def to_dataframe(self) -> DataFrame:
        """Return a pandas table with one row per data set."""
        import pandas as pd

        rows = [{"data_set": i} | asdict(self[i]) for i in self.done]
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        done, failed = self.done, self.failed
        if not done:
            return f"{self.family.name}: no data set was run"
        rate, each = self.column("ess_per_draw")[done], self.seconds / len(done)
        more = f", … ({len(failed)} in all)" if len(failed) > NAMED else ""
        named = ", ".join(map(str, failed[:NAMED])) + more
        lines = [
            f"{self.family.name}: {len(done)} of {len(self)} data sets in {self.seconds:.1f} s "
            f"({1000 * each:.0f} ms each)",
            f"effective draws per draw: median {np.median(rate):.2f}, 5 % below "
            f"{np.quantile(rate, 0.05):.2f}",
            f"trusted: {len(done) - len(failed)}; not trusted: {named or 'none'}",
        ]
        lines += [f"  data set {i}: {'; '.join(self[i].reasons)}" for i in failed[:NAMED]]
        return "\n".join(lines)

    __repr__ = __str__

"""Models compared by their evidence: Bayes factors and posterior probabilities, with errors.

With evidences Z_i and prior probabilities a_i the posterior probability of model i is
`P_i = a_i Z_i / Σ_j a_j Z_j`. Errors of log Z_j carry over by
`∂P_i/∂log Z_j = P_i (1{i=j} - P_j)`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

import numpy as np

from involutive.core.errors import check
from involutive.core.text import decimal, html_table, text_table
from involutive.core.types import Figure
from involutive.core.views import view
from involutive.diagnostics.measured import Estimate, Evidence


@dataclass(frozen=True, repr=False)
class Comparison:
    """Models side by side, the most probable first.

    Attributes:
        names: the names of the models.
        log_z: their evidence with its error.
        log_bayes_factor: log of each model's evidence over the best one's, with its error.
        probability: posterior probability of each model.
        probability_error: its standard error.
        notes: warnings about the comparison.

    Example:
        >>> import involutive as inv
        >>> one, two = ((name, inv.Evidence(z, 0.1, 0.2, 0.9, (z, 0.1), (z, 0.1))) for name, z in
        ...             (("one", -3.0), ("two", -5.0)))
        >>> inv.compare(dict([one, two])).names
        ('one', 'two')
    """

    names: tuple[str, ...]
    log_z: tuple[Estimate, ...]
    log_bayes_factor: tuple[Estimate, ...]
    probability: tuple[float, ...]
    probability_error: tuple[float, ...]
    notes: tuple[str, ...] = ()

    def table(self) -> list[dict[str, str]]:
        """One row per model, with as many digits as the errors allow."""
        rows = zip(
            self.names, self.log_z, self.log_bayes_factor, self.probability,
            self.probability_error, strict=True,
        )  # fmt: skip
        return [
            {
                "model": name,
                "log Z": str(log_z),
                "log Bayes factor": str(factor) if factor.error > 0 else "0",
                "probability": _probability(chance, error),
            }
            for name, log_z, factor, chance, error in rows
        ]

    def plot(self) -> Figure:
        """Return a Matplotlib figure: posterior probabilities and log Bayes factors as bars."""
        return view("comparison_bars")(self)

    def __str__(self) -> str:
        return "\n".join([text_table(self.table()), *(f"  - {note}" for note in self.notes)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return f"<div>{html_table(self.table())}<ul>{notes}</ul></div>"


def compare(models: Mapping[str, Evidence], prior: Mapping[str, float] | None = None) -> Comparison:
    """Compare models of the same data by their evidence.

    Args:
        models: what `evidence` returned for each model, by the model's name.
        prior: prior probabilities of the models, up to a constant; equal by default.

    Returns:
        Bayes factors against the most probable model and posterior probabilities, with errors.

    Raises:
        InputError: if there are fewer than two models, or the evidence of one was withheld.

    Example:
        ```python
        import involutive as inv

        small, large = (inv.learn(inv.targets.gaussian(d), key=0) for d in (1, 2))
        found = {"one": inv.evidence(small, key=1), "two": inv.evidence(large, key=2)}
        print(inv.compare(found))
        ```
    """
    check(len(models) >= 2, f"models must name at least two models, got {len(models)}")
    for name, found in models.items():
        kind = type(found).__name__
        check(isinstance(found, Evidence), f"models must hold inv.Evidence, got {kind} for {name}")
        check(
            not found.withheld,
            f"the evidence of {name} must be known, but it was withheld: "
            f"{(found.reasons or ('?',))[0]}",
        )
    chances = _prior(models, prior)
    log_z = np.array([found.log_z for found in models.values()])
    error = np.array([found.error for found in models.values()])
    score = log_z + np.log(chances)
    probability = np.exp(score - np.logaddexp.reduce(score))
    slopes = probability[:, None] * (np.eye(len(models)) - probability)
    spread = np.sqrt(np.sum((slopes * error) ** 2, axis=1))
    order = np.argsort(-probability, kind="stable")
    best = order[0]
    names = list(models)
    return Comparison(
        names=tuple(names[i] for i in order),
        log_z=tuple(Estimate(float(log_z[i]), float(error[i])) for i in order),
        log_bayes_factor=tuple(
            Estimate(
                float(log_z[i] - log_z[best]),
                float(np.hypot(error[i], error[best])) if i != best else 0.0,
            )
            for i in order
        ),
        probability=tuple(float(probability[i]) for i in order),
        probability_error=tuple(float(spread[i]) for i in order),
        notes=tuple(_notes(models)),
    )


def _prior(models: Mapping[str, Evidence], prior: Mapping[str, float] | None) -> np.ndarray:
    if prior is None:
        return np.ones(len(models))
    check(
        set(prior) == set(models), f"prior must name the models {list(models)}, got {list(prior)}"
    )
    chances = np.array([float(prior[name]) for name in models])
    check((chances > 0).all(), f"prior must be positive, got {chances.tolist()}")
    return chances


def _notes(models: Mapping[str, Evidence]) -> list[str]:
    notes = [
        f"the evidence of {name} is not trustworthy: {found.reasons[0]}"
        for name, found in models.items()
        if not found.trustworthy
    ]
    bare = [name for name, found in models.items() if not found.marginal]
    if bare:
        notes.append(
            f"no prior was declared for {', '.join(bare)}: the factors compare marginal "
            "likelihoods only if each density is a normalised prior times a normalised likelihood"
        )
    return notes


def _probability(chance: float, error: float) -> str:
    if min(chance, 1 - chance) < 1e-6:
        return f"{chance:.2g}" if chance < 0.5 else "1"
    return f"{decimal(chance, error)} ± {decimal(error, error)}"

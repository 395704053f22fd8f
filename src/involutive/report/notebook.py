"""How targets, kernels, outcomes and draws show themselves in a notebook."""

from html import escape
from typing import TYPE_CHECKING

from involutive.kernel.describe import parts_of
from involutive.kernel.kernel import AbstractKernel
from involutive.targets.target import Target

if TYPE_CHECKING:
    from involutive.learning.outcome import Learned, Outcome
    from involutive.sampling.draws import Draws


def target_html(target: Target) -> str:
    """What a target is, as a small table."""
    return card(f"Target {target.name}", target.facts())


def kernel_html(kernel: AbstractKernel) -> str:
    """What a kernel samples, and the moves it is made of."""
    rows = {"target": f"{kernel.target.name}, {kernel.target.dim} coordinates"}
    rows |= {
        f"move {i + 1}": f"{move} ({chance})" for i, (chance, move) in enumerate(parts_of(kernel))
    }
    return card(type(kernel).__name__, rows)


def outcome_html(outcome: "Outcome", name: str = "", more: dict[str, str] | None = None) -> str:
    """The outcome of learning as a small table, the verdict first."""
    verdict = "Learned." if outcome.converged else f"Not converged: {outcome.advice}."
    rows = {
        "effective draws per draw": f"{outcome.ess_per_draw:.3g}",
        "acceptance": f"{outcome.acceptance:.3g}",
        "R-hat, chains started apart": f"{outcome.r_hat:.3f}",
        "modes that climbs found": str(outcome.modes) if outcome.modes else "-",
        "rounds": str(outcome.rounds),
        "density evaluations": f"{outcome.evaluations:,}",
        "seconds": f"{outcome.seconds:.1f}",
        "ended": outcome.ended,
    }
    return card(f"{verdict} {name}".strip(), rows | (more or {}))


def learned_html(kernel: "Learned") -> str:
    """The outcome of learning, and the moves of the kernel."""
    moves = ", ".join(f"{move} ({chance})" for chance, move in parts_of(kernel))
    name = f"Kernel for {kernel.target.name}."
    return outcome_html(kernel.outcome, name, {"moves": moves})


def draws_html(draws: "Draws") -> str:
    """The summary: verdict, findings, table."""
    return draws.summary()._repr_html_()


def card(title: str, rows: dict[str, str]) -> str:
    """A title and a table of two columns."""
    cells = "".join(
        f'<tr><th scope="row" style="text-align:left">{escape(k)}</th>'
        f'<td style="text-align:left">{escape(v)}</td></tr>'
        for k, v in rows.items()
    )
    return f"<div><p><b>{escape(title)}</b></p><table>{cells}</table></div>"

"""How kernels and draws show themselves in a notebook."""

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from involutive.learning.outcome import Learned
    from involutive.sampling.draws import Draws


def learned_html(kernel: "Learned") -> str:
    """The outcome of learning as a small table, the verdict first."""
    out = kernel.outcome
    verdict = "Learned." if out.converged else f"Not converged: {out.advice}."
    rows = {
        "effective draws per draw": f"{out.ess_per_draw:.3g}",
        "acceptance": f"{out.acceptance:.3g}",
        "R-hat, chains started apart": f"{out.r_hat:.3f}",
        "rounds": str(out.rounds),
        "density evaluations": f"{out.evaluations:,}",
        "seconds": f"{out.seconds:.1f}",
        "moves": _moves(kernel),
    }
    cells = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in rows.items())
    name = escape(kernel.target.name)
    return f"<div><p><b>{escape(verdict)}</b> Kernel for {name}.</p><table>{cells}</table></div>"


def draws_html(draws: "Draws") -> str:
    """The summary: verdict, findings, table."""
    return draws.summary()._repr_html_()


def _moves(kernel: "Learned") -> str:
    """The parts of the composed kernel, by the names of their involutions."""
    inner = kernel.kernel
    parts = getattr(inner, "kernels", (inner,))
    chances = getattr(inner, "probabilities", (None,) * len(parts))
    names = [type(getattr(part, "involution", part)).__name__ for part in parts]
    return ", ".join(
        name if chance is None else f"{name} ({chance:.0%})"
        for name, chance in zip(names, chances, strict=True)
    )

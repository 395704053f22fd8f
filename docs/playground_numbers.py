"""Export the playground's learned proposal: `python docs/playground_numbers.py`.

It learns mog6 in 64 bits with seed 0 and writes `_static/playground-numbers.js`: the target's means
and standard deviation, the whitening g and the mixture Y. `_static/playground.js` computes with
these numbers alone, and `tests/test_playground.py` compares it with this library on 1000 points.
"""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

import involutive as inv

OUT = Path(__file__).parent / "_static" / "playground-numbers.js"


def numbers(kernel: inv.Learned) -> dict[str, Any]:
    """The proposal as plain lists: whitening x ↦ L⁻¹(x - m), mixture Σ w N(μ, (AᵀA)⁻¹)."""
    proposal = kernel.proposal
    g, law = proposal.involution.g, proposal.auxiliary
    factors = np.tril(np.asarray(law.lower), -1) + np.stack(
        [np.diag(row) for row in np.exp(np.asarray(law.log_diagonal))]
    )
    logits = np.asarray(law.logits)
    weights = np.exp(logits - logits.max())
    angle = np.arange(6) * np.pi / 3
    return {
        "target": {
            "means": (5 * np.stack([np.cos(angle), np.sin(angle)], axis=1)).tolist(),
            "sd": 0.5,
        },
        "whitening": {
            "mean": np.asarray(g.mean.unwrap()).tolist(),
            "factor": np.asarray(g.factor.unwrap()).tolist(),
        },
        "mixture": {
            "weights": (weights / weights.sum()).tolist(),
            "means": np.asarray(law.means).tolist(),
            "factors": factors.tolist(),
        },
        "learned": str(kernel.outcome),
    }


def main() -> None:
    """Learn and write."""
    jax.config.update("jax_enable_x64", True)
    kernel = inv.learn(inv.targets.mog6(), key=0, progress=False)
    text = json.dumps(numbers(kernel), indent=1)
    head = "// Written by docs/playground_numbers.py; do not edit.\n"
    tail = "\nif (typeof module !== 'undefined') module.exports = PLAYGROUND;\n"
    OUT.write_text(f"{head}const PLAYGROUND = {text};{tail}")


if __name__ == "__main__":
    main()

"""The demo: learn mog6 from its log density alone, sample it, and put HMC beside it.

Both samplers start from the same distribution and make the same number of draws; HMC's trajectory
is the one that makes independent draws inside a mode.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from involutive.cli.speech import Speech, summary_record
from involutive.core.types import Axes, Figure
from involutive.diagnostics.metrics import mode_labels, mode_weights
from involutive.kernel.classical import hmc
from involutive.learning.learn import learn
from involutive.plotting.panels import panels
from involutive.sampling.draws import Draws
from involutive.sampling.sample import sample
from involutive.targets.benchmarks import mog6
from involutive.targets.target import Target

STEP, LEAPS = 0.2, 4  # a quarter turn of a mode of sd 0.5: independent draws inside it
SHOWN = 1000  # draws of one chain in the picture


@dataclass(frozen=True)
class Size:
    """How much work the demo does."""

    chains: int = 64
    samples: int = 1000
    budget: float | None = None


def run_demo(seed: int, out: Path, speech: Speech, size: Size | None = None) -> dict[str, Any]:
    """Run the demo, write `report.html` and `demo.png` into `out`, return what was measured."""
    size = size or Size()
    target = mog6()
    speech.say("mog6: six Gaussians on a circle, known only through their log density.\n")
    kernel = learn(target, key=seed, budget=size.budget, progress=speech.progress)
    speech.say(f"{kernel.outcome}\n")
    counts: dict[str, Any] = {"num_chains": size.chains, "num_samples": size.samples}
    draws = sample(kernel, key=seed + 1, progress=speech.progress, **counts)
    summary = draws.summary()
    speech.say(summary)
    peer = hmc(target, STEP, LEAPS, initial=kernel.initial)
    other = sample(peer, key=seed + 1, num_warmup=100, progress=speech.progress, **counts)
    rows = {"involutive": figures(draws), "HMC": figures(other)}
    speech.say("\n" + side_by_side(rows))
    report = draws.report(out / "report.html", kernel=kernel)
    picture = out / "demo.png"
    draw_picture(target, other, draws).savefig(picture, dpi=110)
    speech.say(f"\nwrote {report} (open it in a browser) and {picture}")
    return {
        "outcome": str(kernel.outcome),
        "learning_seconds": kernel.outcome.seconds,
        "converged": kernel.outcome.converged,
        "summary": summary_record(summary),
        "samplers": rows,
        "report": str(report),
        "picture": str(picture),
    }


def figures(draws: Draws) -> dict[str, float]:
    """What tells the two samplers apart."""
    weights = mode_weights(draws)
    metrics = draws.summary().metrics
    label = mode_labels(draws)
    return {
        "modes visited per chain": float(np.mean([len(np.unique(row)) for row in label])),
        "mode weights off by": weights.total_variation,
        "largest R-hat": metrics.worst("r_hat", largest=True)[1],
        "ESS per draw": metrics.ess_per_draw,
        "acceptance": metrics.acceptance,
        "draws per second": draws.positions[..., 0].size / draws.provenance["sampling_seconds"],
    }


def side_by_side(rows: dict[str, dict[str, float]]) -> str:
    """A small table, one column per sampler."""
    names = list(next(iter(rows.values())))
    head = f"{'':24}" + "".join(f"{name:>12}" for name in rows)
    lines = [
        f"{name:24}" + "".join(f"{_short(row[name]):>12}" for row in rows.values())
        for name in names
    ]
    return "\n".join([head, *lines])


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def draw_picture(target: Target, left: Draws, right: Draws) -> Figure:
    """One chain of HMC and one of the learned kernel, over the density."""
    figure, axes = panels(1, 2, (8.0, 4.2))
    extent = float(target.extent or 1.0)
    for axis, draws, name in ((axes[0, 0], left, "HMC"), (axes[0, 1], right, "involutive")):
        _contours(axis, target, extent)
        chain = draws.positions[0, :SHOWN]
        axis.plot(*chain.T, "-", color="#2166ac", lw=0.3, alpha=0.35)
        axis.plot(*chain.T, ".", color="#b2182b", ms=2.5)
        visited = len(np.unique(mode_labels(draws)[0, :SHOWN]))
        axis.set_title(f"{name}: one chain of {len(chain)} draws visits {visited} of 6 modes")
        axis.title.set_fontsize(10)
        axis.set(xlim=(-extent, extent), ylim=(-extent, extent), xticks=[], yticks=[])
        axis.set_aspect("equal")
    return figure


def _contours(axis: Axes, target: Target, extent: float) -> None:
    import jax
    import jax.numpy as jnp

    line = np.linspace(-extent, extent, 121)
    grid = np.stack(np.meshgrid(line, line), axis=2)
    values = jax.vmap(jax.vmap(target.log_density))(jnp.asarray(grid))
    axis.contourf(line, line, np.exp(np.asarray(values)), levels=8, cmap="Greys", alpha=0.6)

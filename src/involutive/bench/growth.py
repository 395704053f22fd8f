"""How time and memory grow with chains, dimension and draws, and how soon the first draw is there.

Memory and first draws are measured in processes of their own. The suite `growth` of `involutive
bench` asks how effective draws per second fall with dimension and with the number of modes, for
this library and its peers; `draw` shows it with slopes.
"""

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from involutive import targets
from involutive.bench.entry import Entry
from involutive.bench.speed import Rows, fastest, paper_kernel, runner_job
from involutive.core.types import Figure
from involutive.sampling.runner import width_for

DIMS = (2, 5, 10, 20, 50, 100, 200)  # two unit Gaussians ten apart, weights 1/3 and 2/3
MODES, MODES_DIM = (2, 4, 8, 16, 32, 64, 128), 10  # unit Gaussians, means N(0, 5² I)


def many_modes(count: int) -> targets.Target:
    """`count` equal unit Gaussians in ten dimensions, their means drawn from N(0, 25 I)."""
    means = 5 * np.random.default_rng(count).normal(size=(count, MODES_DIM))
    return targets.mixture(means, name=f"modes({count})")


GROWTH: dict[str, Entry] = {
    **{f"dim_{d}": Entry(lambda data, d=d: targets.two_modes(d), multimodal=True) for d in DIMS},
    **{f"modes_{m}": Entry(lambda data, m=m: many_modes(m), multimodal=True) for m in MODES},
}

STREAMED = """
import sys, tempfile
from involutive.bench.speed import paper_kernel
from involutive.sampling.sample import sample
with tempfile.TemporaryDirectory() as folder:
    sample(paper_kernel(), key=0, num_chains=int(sys.argv[2]), num_samples=int(sys.argv[1]),
           store=folder, progress=False)
    # anonymous memory: what is mapped from the files of draws can be given back at any time
    lines = open("/proc/self/status").read().splitlines()
    print([int(line.split()[1]) for line in lines if line.startswith("RssAnon")][0])
"""

FIRST = """
import sys, time
began = time.perf_counter()
import jax
jax.config.update("jax_compilation_cache_dir", sys.argv[2])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
import involutive as inv
imported = time.perf_counter()
kernel = inv.load(sys.argv[1], inv.targets.mog6())
inv.sample(kernel, key=0, num_chains=64, num_samples=1, progress=False)
print(imported - began, time.perf_counter() - imported)
"""


def with_chains(counts: Sequence[int] = (1, 10, 100, 1000, 10_000, 100_000)) -> Rows:
    """Milliseconds per step of all chains together."""
    kernel, rows = paper_kernel(), []
    for count in counts:
        steps = max(min(250, 500_000 // count), 64)  # random numbers are made 8 steps at a time
        timing = fastest([runner_job(kernel, count, steps, min(width_for(count), count))], 2)[0]
        rows.append(
            {"chains": count, "ms a step": 1e3 * timing.wall / steps}
            | {"CPU ms a step": 1e3 * timing.cpu / steps, "MB": _resident()}
        )
    return rows


def with_dimension(dims: Sequence[int] = (2, 8, 32, 128, 256), chains: int = 64) -> Rows:
    """Microseconds per chain-step of the paper's network, state and auxiliary of one dimension."""
    rows = []
    for dim in dims:
        kernel = paper_kernel(targets.gaussian(dim), dim)
        timing = fastest([runner_job(kernel, chains, 32, width_for(chains))], 3)[0]
        each = 1e6 / (32 * chains)
        rows.append(
            {"dim": dim, "µs a chain-step": each * timing.wall, "CPU µs": each * timing.cpu}
        )
    return rows


def with_draws(counts: Sequence[int] = (1_000, 10_000, 100_000), chains: int = 8) -> Rows:
    """Memory of a process that streams its draws to files, in MB, and its seconds."""
    rows = []
    for count in counts:
        began = time.perf_counter()
        memory = float(_python(STREAMED, str(count), str(chains)))
        seconds = time.perf_counter() - began
        rows.append({"draws a chain": count, "MB": memory / 1024, "seconds in all": seconds})
    return rows


def first_draw(budget: float | None = None) -> Rows:
    """Seconds from a saved proposal to its first draw, with an empty and a filled cache."""
    from involutive.learning.learn import learn
    from involutive.storage.save_load import save

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "proposal.inv"
        save(path, learn(targets.mog6(), key=0, budget=budget, progress=False))
        rows = []
        for cache in ("empty", "filled"):
            imports, seconds = _python(FIRST, str(path), str(Path(name) / "cache")).split()
            row = {
                "cache": cache,
                "import s": float(imports),
                "to the first draw s": float(seconds),
            }
            rows.append(row)
    return rows


def slope(rows: Rows, by: str, figure: str) -> float:
    """The growth exponent between the last two rows: 1 is linear."""
    (a, b) = rows[-2:]
    return math.log(b[figure] / a[figure]) / math.log(b[by] / a[by])


def _resident() -> float:
    """Anonymous memory of this process, in MB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def _python(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip().splitlines()[-1]


def measure(quick: bool = False) -> dict[str, Any]:
    """Every table of growth; the quick ones only show that they run."""
    if quick:
        return {
            "chains": with_chains((1, 64)),
            "dimension": with_dimension((2, 4)),
        }
    return {
        "chains": with_chains(),
        "dimension": with_dimension(),
        "draws": with_draws(),
        "first_draw": first_draw(budget=5.0),
    }


def slopes(tables: dict[str, Any]) -> Rows:
    """Growth exponents of CPU time, and of memory with draws."""
    asked = (
        ("chains", "chains", "CPU ms a step"),
        ("dimension", "dim", "CPU µs"),
        ("draws", "draws a chain", "MB"),
        ("draws", "draws a chain", "seconds in all"),
    )
    return [
        {"of": figure, "with": by, "exponent": slope(tables[name], by, figure)}
        for name, by, figure in asked
        if name in tables
    ]


def rate_slope(points: list[tuple[float, float]]) -> float | None:
    """The exponent of a power law through (size, rate), by least squares; None for one point."""
    if len(points) < 2:
        return None
    x, y = np.log(np.asarray(points, float)).T
    return float(np.polyfit(x, y, 1)[0])


def draw(header: dict[str, Any], rows: Rows) -> Figure:
    """Effective draws per second in all, against dimension and number of modes, with slopes."""
    from involutive.plotting.panels import panels, style

    figure, axes = panels(1, 2, (9.0, 3.8))
    words = {"dim": "dimension, two modes", "modes": f"modes, in {MODES_DIM} dimensions"}
    for place, (prefix, label) in zip(axes.flat, words.items(), strict=True):
        for number, peer in enumerate(header["peers"]):
            points = [
                (float(row["target"].split("_")[1]), row["ess_per_second_in_all"])
                for row in rows
                if row["peer"] == peer and row["target"].startswith(prefix) and row.get("correct")
            ]
            exponent = rate_slope(points)
            name = peer if exponent is None else f"{peer} (slope {exponent:.1f})"
            if points:
                place.plot(*np.asarray(points).T, label=name, **style(number))
        place.set(xscale="log", yscale="log", xlabel=label, ylabel="effective draws/s in all")
        if place.lines:
            place.legend(fontsize=7)
    return figure


def main() -> None:
    """Print the tables in Markdown, and write them as JSON where a path is given."""
    from involutive.core.text import markdown_table

    tables = measure(quick="--quick" in sys.argv)
    tables["slopes"] = slopes(tables)
    for name, rows in tables.items():
        sys.stdout.write(f"## {name}\n\n{markdown_table(rows)}\n")
    paths = [argument for argument in sys.argv[1:] if argument.endswith(".json")]
    for path in paths:
        Path(path).write_text(json.dumps(tables, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""How time and memory grow with chains, dimension and draws, and how soon the first draw is there.

Memory and first draws are measured in processes of their own.
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

from involutive import targets
from involutive.bench.speed import Rows, fastest, paper_kernel, runner_seconds
from involutive.sampling.chains import BLOCK

STREAMED = """
import resource, sys, tempfile
from involutive.bench.speed import paper_kernel
from involutive.sampling.run import sample
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
    """Seconds a step of all chains."""
    kernel, rows = paper_kernel(), []
    for count in counts:
        steps = max(min(200, 200_000 // count), 4)
        seconds = fastest([runner_seconds(kernel, count, steps, min(BLOCK, count))], 3)[0]
        rows.append({"chains": count, "µs a chain-step": 1e6 * seconds / (steps * count)})
    return rows


def with_dimension(dims: Sequence[int] = (2, 8, 32, 128, 256), chains: int = 64) -> Rows:
    """Microseconds a chain-step of the paper's network on a Gaussian, auxiliary dimension equal."""
    rows = []
    for dim in dims:
        kernel = paper_kernel(targets.gaussian(dim), dim)
        seconds = fastest([runner_seconds(kernel, chains, 20, BLOCK)], 3)[0]
        rows.append({"dim": dim, "µs a chain-step": 1e6 * seconds / (20 * chains)})
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
    from involutive.storage import save
    from involutive.training.learn import learn

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


def _python(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip().splitlines()[-1]


def measure(quick: bool = False) -> dict[str, Any]:
    """Every table of speed and growth; the quick ones only show that they run."""
    from involutive.bench.speed import overhead, widths

    if quick:
        return {
            "overhead": overhead((1, 64), times=2),
            "widths": widths((16, 32), chains=64, times=2),
            "chains": with_chains((1, 64)),
            "dimension": with_dimension((2, 4)),
        }
    return {
        "overhead": overhead(),
        "widths": widths(),
        "chains": with_chains(),
        "dimension": with_dimension(),
        "draws": with_draws(),
        "first_draw": first_draw(),
    }


def main() -> None:
    """Print the tables in Markdown, and write them as JSON where a path is given."""
    from involutive.experiments.framework import markdown_table

    tables = measure(quick="--quick" in sys.argv)
    for name, rows in tables.items():
        sys.stdout.write(f"## {name}\n\n{markdown_table(rows)}\n")
    paths = [argument for argument in sys.argv[1:] if argument.endswith(".json")]
    for path in paths:
        Path(path).write_text(json.dumps(tables, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

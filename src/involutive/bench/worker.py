"""One run of one peer in a process of its own: `python -m involutive.bench.worker TASK.json`.

A peer that hangs or crashes then costs its own row and nothing else. Compilations are cached in a
folder that lives as long as the run, so every run pays for its compilations once.
"""

import json
import sys
import time
import warnings
from dataclasses import asdict
from pathlib import Path

import jax
import numpy as np

from involutive.bench.peers import load
from involutive.bench.peers.base import Task
from involutive.bench.suites import entry
from involutive.core.text import as_json


def main(path: str) -> None:
    """Read what to run, run it, and write `draws.npy` and `outcome.json` beside the task."""
    folder = Path(path).parent
    wanted = json.loads(Path(path).read_text(encoding="utf-8"))
    jax.config.update("jax_compilation_cache_dir", str(folder / "cache"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    warnings.simplefilter("ignore")  # of the peers; what counts here is their draws
    data = None if wanted["data"] is None else Path(wanted["data"])
    peer, known = load(wanted["peer"]), entry(wanted["target"], data)
    task = Task(
        wanted["peer"], known.make(data), wanted["seed"], wanted["seconds"], wanted["quick"],
        known.spread, wanted["evidence"],
    )  # fmt: skip
    outcome = peer.run(task)
    np.save(folder / "draws.npy", np.asarray(outcome.draws, np.float32), allow_pickle=False)
    figures = {
        "setup_seconds": outcome.setup_seconds,
        "sampling_seconds": outcome.sampling_seconds,
        "setup_evaluations": outcome.setup_evaluations,
        "sampling_evaluations": outcome.sampling_evaluations,
        "exchangeable": outcome.exchangeable,
        "learned_seconds": outcome.learned_seconds,
        "integral": None if outcome.integral is None else asdict(outcome.integral),
        "cpu_seconds": time.process_time(),  # of all threads: against wall time, the share it got
    }
    (folder / "outcome.json").write_text(json.dumps(as_json(figures)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])

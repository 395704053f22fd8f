"""`involutive learn`: read the target, learn, save; in one process, for which the others wait."""

import warnings
from pathlib import Path
from typing import Any

from involutive.cli import machine
from involutive.cli.interrupts import patience
from involutive.cli.source import read_target
from involutive.cli.speech import Speech
from involutive.cli.workers import on_workers
from involutive.learning import learn as recipe
from involutive.learning.budget import Budget
from involutive.learning.outcome import Learned
from involutive.storage.save_load import load, save
from involutive.targets.target import Target


def learn_and_save(
    source: str,
    out: Path,
    speech: Speech,
    plan: dict[str, Any],
    start: Path | None = None,
    workers: int | None = None,
    dask: str | None = None,
) -> bool:
    """Learn a proposal and write it.

    Args:
        source: `FILE.py:NAME`.
        out: the proposal to write.
        speech: how to speak.
        plan: what to pass on to `learn`; `limits` are those of its budget.
        start: a proposal learned for a similar density, to begin with.
        workers: processes that call a NumPy density.
        dask: the address of a Dask scheduler whose workers do.

    Returns:
        Whether it was interrupted; the best proposal so far is written then.
    """
    target, interrupted = read_target(source), False
    plan = {**plan, "budget": Budget(**plan["limits"])}
    del plan["limits"]
    if start is not None:
        plan = plan | {"start": _learned_before(start, target)}
    if machine.first_process():
        with patience.raising(), on_workers(target, source, workers, dask):
            kernel = recipe.learn(target, progress=speech.progress, **plan)
        save(out, kernel)
        outcome = kernel.outcome
        interrupted = getattr(outcome, "ended", None) == "interrupted"
        if interrupted:
            patience.kept = f"the best proposal so far is in {out}"
        speech.say(f"{target.name}: {outcome}")
        speech.say(f"wrote {out}; now: involutive sample {source} {out} -o draws.nc")
        found = {"target": target.name, "dim": target.dim, "proposal": str(out)}
        kept = {name: value for name, value in vars(outcome).items() if name != "history"}
        speech.result(found | kept)
    machine.wait_for_all("learned")
    return interrupted


def _learned_before(path: Path, target: Target) -> Learned:
    """A saved proposal for another density; that it is another one needs no warning here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* was saved for another density", UserWarning)
        return load(path, target)

"""`involutive learn`: read the target, learn, save; in one process, for which the others wait."""

from pathlib import Path
from typing import Any

from involutive.cli import machine
from involutive.cli.interrupts import patience
from involutive.cli.source import read_target
from involutive.cli.speech import Speech
from involutive.cli.workers import on_workers
from involutive.learning import learn as recipe
from involutive.storage.save_load import save


def learn_and_save(
    source: str,
    out: Path,
    speech: Speech,
    plan: dict[str, Any],
    workers: int | None = None,
    dask: str | None = None,
) -> bool:
    """Learn a proposal and write it.

    Args:
        source: `FILE.py:NAME`.
        out: the proposal to write.
        speech: how to speak.
        plan: what to pass on to `learn`.
        workers: processes that call a NumPy density.
        dask: the address of a Dask scheduler whose workers do.

    Returns:
        Whether it was interrupted; the best proposal so far is written then.
    """
    target, interrupted = read_target(source), False
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

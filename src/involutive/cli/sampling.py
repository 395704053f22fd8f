"""`involutive sample`: load, draw, write; in one process or in several."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from involutive.cli import machine
from involutive.cli.interrupts import patience
from involutive.cli.source import read_target
from involutive.cli.speech import Speech, summary_record
from involutive.cli.workers import on_workers
from involutive.core.errors import check
from involutive.core.files import replacing
from involutive.interop.arviz import to_netcdf
from involutive.kernel.kernel import AbstractKernel
from involutive.report.moves import with_kernel
from involutive.sampling.chunks import merge
from involutive.sampling.draws import Draws
from involutive.sampling.sample import sample
from involutive.sampling.stopping import Until
from involutive.storage.save_load import load


@dataclass(frozen=True)
class SamplingPlan:
    """What to draw."""

    seed: int
    chains: int
    samples: int
    warmup: int | None
    thin: int
    ess: float | None
    checkpoint: Path | None
    resume: bool
    workers: int | None = None
    dask: str | None = None

    def command(self, source: str, proposal: Path, out: Path) -> str:
        """The command that draws the same again."""
        parts = [f"involutive sample {source} {proposal} -o {out} --seed {self.seed}"]
        parts.append(f"--chains {self.chains} --samples {self.samples}")
        if self.thin > 1:
            parts.append(f"--thin {self.thin}")
        if self.warmup is not None:
            parts.append(f"--warmup {self.warmup}")
        if self.ess is not None:
            parts.append(f"--ess {self.ess:g}")
        return " ".join(parts)


def draw(
    source: str, proposal: Path, out: Path, plan: SamplingPlan, speech: Speech
) -> dict[str, Any]:
    """Draw, write, print the summary; empty in all processes but the first."""
    kernel = load(proposal, read_target(source))
    processes = jax.process_count()
    until = None if plan.ess is None else Until(ess=plan.ess, max_samples=plan.samples)
    pool = on_workers(kernel.target, source, plan.workers, plan.dask)
    with pool, patience.busy():  # Ctrl-C ends the run, and what was drawn is written and judged
        draws = sample(
            kernel,
            key=plan.seed,
            num_chains=plan.chains,
            num_samples=plan.samples,
            num_warmup=plan.warmup,
            thin=plan.thin,
            until=until,
            checkpoint=plan.checkpoint,
            resume=plan.resume,
            progress=speech.progress,
            mesh=machine.all_devices(),
        )
        machine.wait_for_all("drawn")
        if not machine.first_process():
            return {}
        every = draws if processes == 1 else merged(plan, kernel, draws)
        if every.provenance.get("interrupted"):
            speech.say(f"interrupted, summarising {every.num_chains} × {every.num_samples} draws")
        command = plan.command(source, proposal, out)
        return write(every.noting(command=command), kernel, out, speech)


def write_draws(draws: Draws, out: Path) -> None:
    """Write draws as the ending says: NetCDF, or a table with one row per draw."""
    if out.suffix.lower() == ".nc":
        to_netcdf(draws, out)
        return
    table = draws.to_dataframe()
    with replacing(out) as temporary:
        if out.suffix.lower() == ".csv":
            table.to_csv(temporary, index=False)
        else:
            table.to_parquet(temporary, index=False)


def merged(plan: SamplingPlan, kernel: AbstractKernel, own: Draws) -> Draws:
    """The draws of all processes, with this one's provenance."""
    check(plan.checkpoint is not None, "several processes need a common --checkpoint, got none")
    every = merge(plan.checkpoint, kernel.target)  # type: ignore[arg-type]
    return Draws(**{**vars(every), "provenance": own.provenance | every.provenance})


def write(draws: Draws, kernel: AbstractKernel, out: Path, speech: Speech) -> dict[str, Any]:
    """Write the draws, with what the report needs to know of the kernel, and say what they are."""
    summary = draws.summary()
    summary.modes  # noqa: B018  found while the density is at hand, and kept in the file
    write_draws(with_kernel(draws, kernel), out)
    speech.say(summary)
    then = f"; now: involutive report {out}" if out.suffix.lower() == ".nc" else ""
    speech.say(f"\nwrote {out}{then}")
    if draws.provenance.get("interrupted"):
        patience.kept = f"what was drawn is in {out}"
    found = {
        "draws": str(out),
        "chains": draws.num_chains,
        "samples": draws.num_samples,
        "seconds": draws.provenance.get("sampling_seconds"),
        "interrupted": bool(draws.provenance.get("interrupted", False)),
    }
    speech.result(found | summary_record(summary))
    return found

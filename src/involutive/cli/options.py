"""Options that several commands share, each said once."""

from pathlib import Path
from typing import Annotated

import typer

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same draws.", min=0)]
Source = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py:NAME",
        help="A Python file, which is executed, and a name in it: a Target, a log density with "
        "DIM beside it, a NumPyro model or a PyMC model.",
    ),
]
Folder = Annotated[Path, typer.Option("--out", "-o", help="The folder to write into.")]
Small = Annotated[bool, typer.Option("--quick", help="A small version, to see that it works.")]
Names = Annotated[str | None, typer.Option(help="Names with commas between; by default all.")]
Chains = Annotated[int, typer.Option(help="How many chains.")]
Samples = Annotated[int, typer.Option(help="Draws kept of each chain.")]
Warmup = Annotated[
    int | None, typer.Option(help="Steps thrown away first; by default what was learned.")
]
Wide = Annotated[
    bool, typer.Option("--x64", help="Compute in 64 bits; by default as JAX is set, which is 32.")
]
LogZ = Annotated[
    Path | None,
    typer.Option("--evidence", help="What `involutive evidence -o` wrote, to show it too."),
]
Thin = Annotated[int, typer.Option(help="Steps a kept draw.")]
Effective = Annotated[
    float | None, typer.Option(help="Stop once every quantity has this many effective draws.")
]
Checkpoint = Annotated[Path | None, typer.Option(help="Save the run in this folder as it goes.")]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue the run in --checkpoint (by default OUT.checkpoint)."),
]
Workers = Annotated[
    int | None, typer.Option(help="Processes that call a NumPy density; by default this one does.")
]
Dask = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="A Dask scheduler whose workers call a NumPy density."),
]
Distributed = Annotated[
    bool, typer.Option("--distributed", help="One of several processes; SLURM and MPI are known.")
]
Coordinator = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", envvar="JAX_COORDINATOR_ADDRESS", help="Of process 0."),
]
Processes = Annotated[
    int | None, typer.Option("--num-processes", envvar="JAX_NUM_PROCESSES", help="In all.")
]
Process = Annotated[
    int | None, typer.Option("--process-id", envvar="JAX_PROCESS_ID", help="Of this one, from 0.")
]


def names(text: str | None) -> list[str] | None:
    """Names with commas between them, or None."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]

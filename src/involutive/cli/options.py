"""The options of commands, each defined once; those of one command alone stand at the end."""

from pathlib import Path
from typing import Annotated

import typer

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
Seed = Annotated[
    int, typer.Option(help="Seed of the random numbers; the same seed gives the same draws.", min=0)
]
Source = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py:NAME",
        help="A Python file, which is executed, and a name in it: a Target, a log density (the "
        "file must also set DIM), a NumPyro model or a PyMC model.",
    ),
]
Folder = Annotated[Path, typer.Option("--out", "-o", help="Folder to write into.")]
Small = Annotated[
    bool, typer.Option("--quick", help="Run a small version, to check that it works.")
]
Names = Annotated[
    str | None, typer.Option(help="Names separated by commas; by default all of them.")
]
Chains = Annotated[int, typer.Option(help="Number of chains.")]
Samples = Annotated[int, typer.Option(help="Number of draws to keep per chain.")]
Warmup = Annotated[
    int | None,
    typer.Option(help="Warm-up steps to discard; by default the number that learning chose."),
]
Wide = Annotated[
    bool, typer.Option("--x64", help="Compute in 64 bits instead of JAX's default of 32.")
]
LogZ = Annotated[
    Path | None,
    typer.Option(
        "--evidence", help="File that `involutive evidence -o` wrote, to show in the report."
    ),
]
Thin = Annotated[int, typer.Option(metavar="N", help="Keep every N-th step.")]
Effective = Annotated[
    float | None, typer.Option(help="Stop as soon as every quantity has this many effective draws.")
]
Checkpoint = Annotated[
    Path | None, typer.Option(help="Folder in which to save the run as it goes.")
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue the run in --checkpoint (by default OUT.checkpoint)."),
]
Start = Annotated[
    Path | None,
    typer.Option(
        metavar="PROPOSAL",
        help="A proposal learned for a similar density (new data, another prior); it is adapted "
        "with importance weights, and no search is made.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        help="Number of processes that evaluate a NumPy density; by default only this one."
    ),
]
Dask = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Address of a Dask scheduler whose workers evaluate a NumPy density.",
    ),
]
Distributed = Annotated[
    bool,
    typer.Option(
        "--distributed", help="Run as one of several processes; SLURM and MPI are detected."
    ),
]
Coordinator = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", envvar="JAX_COORDINATOR_ADDRESS", help="Address of process 0."
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--num-processes", envvar="JAX_NUM_PROCESSES", help="Number of processes in the run."
    ),
]
Process = Annotated[
    int | None,
    typer.Option(
        "--process-id", envvar="JAX_PROCESS_ID", help="Number of this process, counted from 0."
    ),
]

# of `learn`
ProposalOut = Annotated[Path, typer.Option("--out", "-o", help="File to write the proposal to.")]
LearningSeconds = Annotated[
    float | None,
    typer.Option(help="Time limit for learning, in seconds; by default about five minutes."),
]
Evaluations = Annotated[
    int | None,
    typer.Option(help="Maximum evaluations of the density; a gradient counts as three."),
]
LearningCheckpoint = Annotated[
    Path | None,
    typer.Option(help="File in which to save the state of learning after every stage."),
]

# of `bench`
Suite = Annotated[
    str, typer.Option(help="Suite of targets: default, field, evidence, posteriors or growth.")
]
RunSeconds = Annotated[float | None, typer.Option(help="Time limit per run, in seconds.")]
Seeds = Annotated[int, typer.Option(help="Number of seeds, counted up from --seed.")]
Data = Annotated[Path | None, typer.Option(help="Folder with the data files of --suite field.")]
Clone = Annotated[
    Path | None, typer.Option(help="Folder of a clone of posteriordb, for --suite posteriors.")
]
Merged = Annotated[
    str | None,
    typer.Option(help="bench.json files to join, separated by commas; nothing is run."),
]


def names(text: str | None) -> list[str] | None:
    """Names with commas between them, or None."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]

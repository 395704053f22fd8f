"""`involutive evidence`: its options; the work is in `integrating`, imported when it is needed."""

from pathlib import Path
from typing import Annotated

import typer

from involutive.cli import machine
from involutive.cli.arguments import check_file_out, check_proposal, check_source
from involutive.cli.options import Dask, Json, Quiet, Seed, Source, Workers
from involutive.cli.speech import Speech


def evidence(
    source: Source,
    proposal: Annotated[Path, typer.Argument(help="The proposal that `involutive learn` wrote.")],
    samples: Annotated[int, typer.Option(help="Number of draws of the proposal.")] = 20_000,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="File to write the result to, as JSON for `involutive report`."
        ),
    ] = None,
    workers: Workers = None,
    dask: Dask = None,
    seed: Seed = 2,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Estimate log Z, the log of the integral of your density, with its error.

    The estimate is withheld if the proposal and the chains disagree, or if mass lies outside the
    proposal. Examples:

    - `involutive evidence posterior.py:target proposal.inv`

    - `involutive evidence posterior.py:target proposal.inv -o evidence.json`

    - `involutive evidence likelihood.py:target proposal.inv --workers 4`
    """
    check_source(source)
    check_proposal(proposal)
    if out is not None:
        check_file_out(out)
    machine.prepare()
    from involutive.cli.integrating import integrate

    speech = Speech(quiet, json)
    found = integrate(source, proposal, samples, seed, out, speech, workers, dask)
    speech.result(found)

"""The commands of `involutive`: check, call, print; no science.

Each checks its arguments before it imports what takes seconds.
"""

import time
from pathlib import Path
from typing import Annotated

import typer

from involutive._version import __version__
from involutive.cli import machine
from involutive.cli.arguments import (
    check_draws,
    check_draws_out,
    check_file_out,
    check_folder,
    check_limits,
    check_proposal,
    check_report_out,
    check_sizes,
    check_source,
    check_start,
)
from involutive.cli.bench import bench
from involutive.cli.doctor import doctor
from involutive.cli.evidence import evidence
from involutive.cli.interrupts import INTERRUPTED, as_options, patience
from involutive.cli.options import (
    Chains,
    Checkpoint,
    Coordinator,
    Dask,
    Distributed,
    Effective,
    Evaluations,
    Folder,
    Json,
    LearningCheckpoint,
    LearningSeconds,
    LogZ,
    Process,
    Processes,
    ProposalOut,
    Quiet,
    Resume,
    Samples,
    Seed,
    Small,
    Source,
    Start,
    Thin,
    Warmup,
    Wide,
    Workers,
)
from involutive.cli.speech import Speech, summary_record
from involutive.core.errors import check

app = typer.Typer(
    name="involutive",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Sample posteriors with several modes: learn a proposal from a log density, then run "
    "Markov chains with it. The chains leave your posterior invariant whatever was learned.\n\n"
    "Try `involutive demo` first. Then, with your own density in posterior.py:\n\n"
    "- `involutive learn posterior.py:target -o proposal.inv`\n\n"
    "- `involutive sample posterior.py:target proposal.inv -o draws.nc`\n\n"
    "- `involutive report draws.nc`",
)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"involutive {__version__}")  # noqa: T201
        raise typer.Exit


@app.command()
def demo(
    out: Folder = Path(),
    seed: Seed = 0,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Learn six separated modes from their log density alone, sample them, and write report.html.

    HMC runs for comparison, and demo.png shows both. Examples:

    - `involutive demo`

    - `involutive demo --out pictures --seed 3`
    """
    check_folder(out)
    machine.prepare()
    from involutive.cli.demo import run_demo

    began = time.perf_counter()
    speech = Speech(quiet, json)
    found = run_demo(seed, out, speech)
    seconds = time.perf_counter() - began
    speech.say(f"done in {seconds:.0f} s")
    speech.result(found | {"seconds": seconds})


@app.command()
def learn(
    source: Source,
    out: ProposalOut = Path("proposal.inv"),
    seconds: LearningSeconds = None,
    evaluations: Evaluations = None,
    checkpoint: LearningCheckpoint = None,
    resume: Resume = False,
    start: Start = None,
    workers: Workers = None,
    dask: Dask = None,
    x64: Wide = False,
    seed: Seed = 0,
    quiet: Quiet = False,
    json: Json = False,
    distributed: Distributed = False,
    coordinator: Coordinator = None,
    num_processes: Processes = None,
    process_id: Process = None,
) -> None:
    """Learn a proposal for your own density and save it.

    Learning needs only the density. It searches for the modes, fits a proposal, and reports how
    well chains mix with it. Examples:

    - `involutive learn posterior.py:target -o proposal.inv`

    - `involutive learn model.py:model --seconds 30`

    - `involutive learn likelihood.py:target --workers 4`

    - `involutive learn new_data.py:target -o new.inv --start proposal.inv`

    - `involutive learn model.py:model --resume`  (continues where Ctrl-C stopped the same command)
    """
    check_source(source)
    check_file_out(out)
    check_start(start)
    if checkpoint is None and resume:
        checkpoint = out.with_name(out.name + ".checkpoint")
    limits = {"seconds": seconds, "evaluations": evaluations}
    check_limits(**limits)
    given = {**limits, "start": start, "workers": workers, "dask": dask,
             "seed": seed or None, "x64": x64}  # fmt: skip
    patience.keeps(checkpoint, f"involutive learn {source} -o {out}" + as_options(given))
    machine.set_up(distributed, coordinator, num_processes, process_id, x64)
    from involutive.cli.learning import learn_and_save

    interrupted = learn_and_save(source, out, Speech(quiet, json), {
        "key": seed, "limits": limits, "checkpoint": checkpoint, "resume": resume,
    }, start, workers, dask)  # fmt: skip
    if interrupted:
        raise typer.Exit(INTERRUPTED)


@app.command()
def sample(
    source: Source,
    proposal: Annotated[Path, typer.Argument(help="The proposal that `involutive learn` wrote.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File to write the draws to: .nc, .csv or .parquet.")
    ] = Path("draws.nc"),
    chains: Chains = 64,
    samples: Samples = 1000,
    warmup: Warmup = None,
    thin: Thin = 1,
    ess: Effective = None,
    checkpoint: Checkpoint = None,
    resume: Resume = False,
    workers: Workers = None,
    dask: Dask = None,
    x64: Wide = False,
    seed: Seed = 1,
    quiet: Quiet = False,
    json: Json = False,
    distributed: Distributed = False,
    coordinator: Coordinator = None,
    num_processes: Processes = None,
    process_id: Process = None,
) -> None:
    """Sample your density with a learned proposal.

    A long run can be stopped and continued if every command has `--resume`. Examples:

    - `involutive sample posterior.py:target proposal.inv -o draws.nc`

    - `involutive sample posterior.py:target proposal.inv --samples 100000 --resume`

    - `involutive sample posterior.py:target proposal.inv --ess 10000`
    """
    check_source(source)
    check_proposal(proposal)
    check_draws_out(out)
    check_sizes(chains=chains, samples=samples, thin=thin)
    machine.set_up(distributed, coordinator, num_processes, process_id, x64)
    from involutive.cli.sampling import SamplingPlan, draw

    if checkpoint is None and (resume or distributed):
        checkpoint = out.with_name(out.name + ".checkpoint")
    plan = SamplingPlan(seed, chains, samples, warmup, thin, ess, checkpoint, resume, workers, dask)
    speech = Speech(quiet, json)
    found = draw(source, proposal, out, plan, speech)
    if found and found["interrupted"]:
        raise typer.Exit(INTERRUPTED)


app.command()(evidence)
app.command()(doctor)


@app.command()
def report(
    draws: Annotated[Path, typer.Argument(help="The draws that `involutive sample` wrote.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write; by default DRAWS.html.")
    ] = None,
    log_z: LogZ = None,
    quiet: Quiet = False,
    json: Json = False,
    seed: Seed = 0,
) -> None:
    """Write an HTML report that says whether the draws can be trusted, and why.

    The report is one file and needs no network. Examples:

    - `involutive report draws.nc`

    - `involutive report draws.nc -o report.html`
    """
    del seed  # taken everywhere; a report draws nothing
    out = out or draws.with_suffix(".html")
    check_draws(draws)
    check_report_out(out)
    machine.prepare()
    from involutive.cli.integrating import read_evidence
    from involutive.interop.arviz import read_draws

    speech = Speech(quiet, json)
    found = read_draws(draws)
    path = found.report(out, evidence=None if log_z is None else read_evidence(log_z))
    summary = found.summary()
    speech.say(summary.verdict)
    speech.say(f"wrote {path}")
    speech.result({"report": str(path)} | summary_record(summary))


@app.command()
def experiment(
    name: Annotated[
        str | None, typer.Argument(help="Name of an experiment (see --list), or all.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    quick: Small = False,
    out: Folder = Path("results"),
    seed: Annotated[
        int | None, typer.Option(help="Seed to use instead of the experiment's own.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds, for experiments that average over several.")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Reproduce a figure of the paper or a study beyond it; `all` runs all but the longest.

    Examples:

    - `involutive experiment --list`

    - `involutive experiment proposals --quick`

    - `involutive experiment recipe --seeds 2`

    - `involutive experiment all --out results`
    """
    from involutive.experiments.catalogue import everything, list_experiments

    speech, known = Speech(quiet, json), list_experiments()
    if show:
        width = max(map(len, known))
        speech.say("\n".join(f"{key:{width}}  {title}" for key, title in known.items()))
        speech.result({"experiments": known})
        return
    check(
        name == "all" or name in known,
        f"experiment must be one of {', '.join(known)} or all, got {name or 'none'}; --list "
        "describes them",
    )
    machine.prepare(x64=True)  # as the recorded results were measured
    from involutive.cli.reproducing import run_experiments

    wanted = everything(quick) if name == "all" else [str(name)]
    options = {"quick": quick, "out": out, "seed": seed, "seeds": seeds}
    run_experiments({each: known[each] for each in wanted}, options, speech)


app.command()(bench)

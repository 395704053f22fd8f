"""`involutive bench`: its options; the package `bench` does the work, imported when needed."""

from pathlib import Path

from involutive.cli import machine
from involutive.cli.arguments import check_clone
from involutive.cli.options import (
    Clone,
    Data,
    Folder,
    Json,
    Merged,
    Names,
    Quiet,
    RunSeconds,
    Seed,
    Seeds,
    Small,
    Suite,
    names,
)
from involutive.cli.speech import Speech


def bench(
    quick: Small = False,
    out: Folder = Path("results/bench"),
    suite: Suite = "default",
    targets: Names = None,
    peers: Names = None,
    seconds: RunSeconds = None,
    seed: Seed = 0,
    seeds: Seeds = 1,
    data: Data = None,
    posteriordb: Clone = None,
    merge: Merged = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Compare this library with other samplers in one run.

    An interrupted run continues where it stopped: rows of the same code in --out are kept.

    Examples:

    - `involutive bench --quick`

    - `involutive bench --targets mog6 --peers involutive,nuts_64`

    - `involutive bench --suite field --data DIR`

    - `involutive bench --suite evidence --seeds 5`

    - `involutive bench --merge a/bench.json,b/bench.json -o joined`
    """
    machine.prepare(x64=True)  # as the recorded results were measured
    from involutive.bench import joined, run
    from involutive.sampling.progress import hidden

    speech = Speech(quiet, json)
    check_clone(posteriordb, suite)
    with hidden(quiet):
        if merge is not None:
            found = joined(names(merge) or [], out)
        else:
            found = run(
                quick, out, names(targets), names(peers), seed, speech.say, seconds, suite, seeds,
                posteriordb or data,
            )  # fmt: skip
    speech.say(found.markdown)
    speech.say(f"wrote {found.folder}")
    speech.result({"header": found.header, "rows": found.rows, "folder": str(found.folder)})

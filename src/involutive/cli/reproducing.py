"""`involutive experiment`: run experiments one after the other, and print what each claims."""

from collections.abc import Mapping
from typing import Any

from involutive.cli.speech import Speech
from involutive.experiments import run_experiment
from involutive.sampling.progress import Progress


def run_experiments(titles: Mapping[str, str], options: Mapping[str, Any], speech: Speech) -> None:
    """Run experiments and print their tables and claims.

    Args:
        titles: the title of each experiment, by its name.
        options: what to pass on to `run_experiment`.
        speech: how to speak.
    """
    records = {}
    with Progress("experiments", None, speech.progress, steady=True) as bar:
        for number, (name, title) in enumerate(titles.items(), 1):
            bar.stage(name, number, len(titles))
            found = run_experiment(name, progress=speech.progress, **options)
            held = [f"  {'holds' if ok else 'FAILS'}: {it}" for it, ok in found.claims.items()]
            speech.say("\n".join([f"# {title}", "", found.markdown, *held]))
            speech.say(f"wrote {found.folder} in {found.seconds:.0f} s\n")
            records[name] = {
                "rows": found.rows, "claims": found.claims, "folder": str(found.folder),
            }  # fmt: skip
    speech.result({"experiments": records})

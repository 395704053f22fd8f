"""`involutive evidence`: load, estimate, print; and its result read back for a report."""

import json
from pathlib import Path
from typing import Any

from involutive.cli.source import read_target
from involutive.cli.speech import Speech
from involutive.cli.workers import on_workers
from involutive.core.errors import InputError, check
from involutive.core.text import as_json
from involutive.diagnostics.evidence import evidence
from involutive.diagnostics.measured import Evidence
from involutive.report.sections import evidence_from
from involutive.storage.save_load import load


def integrate(
    source: str, proposal: Path, samples: int, seed: int, out: Path | None, speech: Speech,
    workers: int | None = None, dask: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Estimate the evidence, say it, write it if asked to; return it as plain numbers."""
    target = read_target(source)
    kernel = load(proposal, target)
    with on_workers(target, source, workers, dask):
        found = evidence(kernel, key=seed, num_samples=samples, progress=speech.progress)
    speech.say(found)
    record = as_json(found.record())
    if out is not None:
        out.write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")
        speech.say(f"wrote {out}; now: involutive report draws.nc --evidence {out}")
    return record


def read_evidence(path: Path) -> Evidence:
    """Read what `integrate` wrote."""
    check(path.is_file(), f"--evidence must be a file, but there is no file {path}")
    try:
        return evidence_from(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"--evidence must be what involutive evidence -o wrote, {path} is not"
        ) from error

"""Results of many data sets in one folder: one file per group, each written once, whole or not.

    run.inv                  what run this is: key, sizes, network, data sets
    sets-<begin>-<end>.inv   draws and verdicts of data sets begin … end - 1

The chains of data set i use the key `fold_in(root, i)`, so that a run may be cut into other groups
and spread over other processes, and still makes the same draws.
"""

import hashlib
import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from involutive.amortised.result import SetDraws
from involutive.amortised.verdict import SetVerdict
from involutive.core.errors import check
from involutive.core.files import make_folder
from involutive.sampling.chunks import skipping_damaged
from involutive.storage.format import PathLike, as_path, read_tensors, write_tensors
from involutive.storage.save_load import check_kind

NAME = re.compile(r"sets-(\d{8})-(\d{8})\.inv")
FIELDS = ("positions", "log_density", "accepted", "acceptance_rate", "nonfinite", "labels")
Found = dict[int, tuple[SetVerdict, SetDraws]]


class Folder:
    """The folder of one run of `sample_many`; without a path it keeps nothing."""

    def __init__(self, path: PathLike | None, run: dict[str, Any], resume: bool):
        self.path = None if path is None else as_path(path)
        self.run = run
        if self.path is None:
            return
        check(
            not self.path.exists() or self.path.is_dir(),
            f"folder must name a folder, got the file {self.path}",
        )
        make_folder(self.path, self.path)
        marker = self.path / "run.inv"
        if not marker.exists():
            write_tensors(marker, {}, {"kind": "many", "run": run})
            return
        check(
            resume or not any(map(NAME.fullmatch, (p.name for p in self.path.iterdir()))),
            f"{self.path} already holds a run; pass resume=True to continue it, or another folder",
        )
        _, header = read_tensors(marker, fall_back=True)
        check_kind(marker, header, "many")
        for name, value in run.items():
            then = header["run"].get(name)
            check(
                then == value,
                f"{self.path} holds a run with another {name}; resume with the same arguments, or "
                "choose another folder",
            )

    def read(self) -> Found:
        """Every data set that is saved."""
        found: Found = {}
        named = [] if self.path is None else map(NAME.fullmatch, map(str, os.listdir(self.path)))
        spans = [(int(n[1]) - int(n[2]), n.string) for n in named if n]
        for _, name in sorted(spans):  # the longest first: one alone was learned again
            path = as_path(self.path) / name
            with skipping_damaged("its data sets are sampled again"):
                found |= _read(path)
        return found

    def write(self, begin: int, results: list[tuple[SetVerdict, SetDraws]]) -> None:
        """Save the results of neighbouring data sets."""
        if self.path is None or not results:
            return
        end = begin + len(results)
        arrays = {name: np.stack([getattr(draws, name) for _, draws in results]) for name in FIELDS}
        verdicts = [asdict(verdict) for verdict, _ in results]
        header = {"kind": "sets", "begin": begin, "end": end, "verdicts": verdicts}
        path = self.path / f"sets-{begin:08d}-{end:08d}.inv"
        write_tensors(path, arrays, header, keep=False)


def _read(path: Path) -> Found:
    arrays, header = read_tensors(path)
    check_kind(path, header, "sets")
    found: Found = {}
    for row, said in enumerate(header["verdicts"]):
        lists = ("reasons", "mode_weights", "mode_errors")
        verdict = SetVerdict(**(said | {name: tuple(said[name]) for name in lists}))
        draws = SetDraws(*(arrays[name][row] for name in FIELDS))
        found[header["begin"] + row] = (verdict, draws)
    return found


def digest(stacked: object) -> str:
    """SHA-256 over arrays, to recognise data sets and networks again."""
    import jax

    made = hashlib.sha256()
    for leaf in jax.tree.leaves(stacked):
        array = np.ascontiguousarray(leaf)
        made.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    return made.hexdigest()

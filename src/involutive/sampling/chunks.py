"""Files of draws: their names, their contents, and draws merged from many of them."""

import contextlib
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from involutive.core.errors import InputError, check
from involutive.sampling.draws import Draws
from involutive.sampling.recorder import FIELDS, Recorder
from involutive.sampling.same_run import check_same, run_name
from involutive.storage.format import MAX_HEADER, PathLike, as_path, damaged, read_tensors
from involutive.storage.save_load import check_kind
from involutive.targets.target import Target

MOST_CARRIED = 2**30  # maximum bytes of the replicas of all chains in a file
NAME = re.compile(r"(?:draws|state)-(\d+)-(\d+)(?:-(\d+)-(\d+))?\.inv")


class Chunk(NamedTuple):
    """A file of draws number `start` to `end` of chains `low` to `high`, by its name."""

    start: int
    end: int
    low: int
    high: int
    path: Path


def fill(folder: Path, name: str, ids: range, recorder: Recorder) -> int:
    """Fill a recorder of chains `ids` from a folder; return how many draws all of them have.

    A damaged file is skipped, and the files that follow it: those draws are made again, with the
    same bits.
    """
    room = recorder.log_density.shape[1]
    done = np.zeros(len(ids), int)
    for chunk in sorted(chunks_in(folder)):
        here = range(max(chunk.low, ids.start), min(chunk.high, ids.stop))
        rows = slice(here.start - ids.start, here.stop - ids.start)
        end = min(chunk.end, room)
        if len(here) == 0 or done[rows].min() >= end or done[rows].min() < chunk.start:
            continue  # other chains, nothing new, or after a gap
        with skipping_damaged(f"draws from {chunk.start} on are made again"):
            arrays = read_chunk(chunk, name, recorder)
            columns = slice(0, end - chunk.start)
            part = slice(here.start - chunk.low, here.stop - chunk.low)
            fresh = {field: arrays[field][part, columns] for field in FIELDS}
            recorder.place(rows, chunk.start, end, fresh)
            done[rows] = np.maximum(done[rows], end)
    return int(done.min())


def merge(checkpoint: PathLike, target: Target) -> Draws:
    """Return the draws in a checkpoint, of all chains and from all processes, as one result.

    Args:
        checkpoint: the folder given to `sample`.
        target: the density sampled.

    Returns:
        The draws that every chain has reached.

    Raises:
        InputError: if the folder holds no run of this target, or chains are missing.

    Example:
        >>> import involutive as inv
        >>> kernel = inv.random_walk(inv.targets.gaussian(2), 0.5)
        >>> _ = inv.sample(kernel, key=0, num_chains=4, num_samples=20, checkpoint="run")
        >>> inv.merge("run", kernel.target).positions.shape
        (4, 20, 2)
    """
    folder = as_path(checkpoint)
    run = check_same(folder, None, target)
    most = max((chunk.end for chunk in chunks_in(folder)), default=0)
    recorder = Recorder(run["num_chains"], most, target.dim)
    if most:
        recorder.count = fill(folder, run_name(run), range(run["num_chains"]), recorder)
    check(
        recorder.count > 0,
        f"{folder} must hold draws of all {run['num_chains']} chains to be merged, got none for "
        "some of them; resume the run first",
    )
    return recorder.draws(target, run | {"target": target.name, "num_samples": recorder.count})


def chunks_in(folder: Path) -> Iterator[Chunk]:
    """The files of draws in a folder, in any order."""
    for path in folder.iterdir():
        found = NAME.fullmatch(path.name)
        if found and found[4]:
            low, high, start, end = map(int, found.groups())
            yield Chunk(start, end, low, high, path)


def read_chunk(chunk: Chunk, name: str, recorder: Recorder) -> dict[str, np.ndarray]:
    """The arrays of a file of draws; raises if they do not match the file's name."""
    count = (chunk.high - chunk.low) * (chunk.end - chunk.start)
    dim = recorder.positions.shape[2]
    most = count * 8 * (dim + 5) + 2 * MAX_HEADER
    arrays, header = read_tensors(chunk.path, limit=most + MOST_CARRIED)
    check_kind(chunk.path, header, "draws")
    check(header["run"] == name, f"{chunk.path} belongs to another run")
    place = header["chains"], header["draws"]
    fits = place == ([chunk.low, chunk.high], [chunk.start, chunk.end])
    shape = (chunk.high - chunk.low, chunk.end - chunk.start)
    for field in FIELDS:
        like = getattr(recorder, field)
        found = arrays.get(field, np.zeros(0))
        fits &= found.shape == shape + like.shape[2:] and found.dtype == like.dtype
    if not fits:
        raise damaged(chunk.path, "it does not hold the draws that its name says")
    return arrays


@contextlib.contextmanager
def skipping_damaged(remedy: str) -> Iterator[None]:
    """Turn the error of a damaged file into a warning that names the remedy."""
    try:
        yield
    except (InputError, KeyError, TypeError, ValueError) as error:
        warnings.warn(f"{error}; {remedy}", stacklevel=2)

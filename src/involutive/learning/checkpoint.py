"""Checkpoints of `learn`: the file holds the result of the last stage, as data."""

import warnings
from functools import cached_property
from typing import Protocol, TypeVar, runtime_checkable

import jax.random as jr
import numpy as np

import involutive.storage.known  # noqa: F401  registers what files may name
from involutive.core.errors import check
from involutive.learning.frugal.state import Weighed
from involutive.learning.problem import Problem
from involutive.learning.stages import Fitted, Found
from involutive.storage.codec import Decoder, Encoder
from involutive.storage.format import PathLike, as_path, read_tensors, write_tensors
from involutive.storage.save_load import check_resumes
from involutive.targets.fingerprint import difference, fingerprint

KIND = "learning"
Stage = TypeVar("Stage", Found, Fitted, Weighed)


@runtime_checkable
class Live(Protocol):
    """A view that shows the results of stages as they come."""

    def show(self, result: Found | Fitted, /) -> None:
        """Show a stage's result in place of the previous one."""


class SavedStages:
    """The checkpoint file of one run of `learn`; without a path nothing is saved.

    Args:
        path: the file, or None.
        problem: the problem of the run.
        live: a view that shows every result, or None.
    """

    def __init__(self, path: PathLike | None, problem: Problem, live: Live | None = None):
        self.path, self.problem = None if path is None else as_path(path), problem
        self.live = live
        self._same = {
            "key": np.asarray(jr.key_data(problem.keys.find)).tolist(),
            "settings": repr(problem.settings),
            "dim": problem.target.dim,
        }

    def write(self, result: Stage) -> Stage:
        """Save and show a stage's result, and return it."""
        if self.live is not None and not isinstance(result, Weighed):
            self.live.show(result)
        if self.path is not None:
            encode = Encoder()
            header = self._same | {
                "kind": KIND,
                "tree": encode(result),
                "fingerprint": self._fingerprint,
            }
            write_tensors(self.path, encode.arrays, header)
        return result

    def read(self) -> Found | Fitted | Weighed | None:
        """The last stage's result, or None if there is no file."""
        if self.path is None or not self.path.exists():
            return None
        arrays, header = read_tensors(self.path, fall_back=True)
        check_resumes(self.path, header, KIND, self._same)
        result = Decoder(arrays, self.problem.target)(header["tree"])
        other = difference(header.get("fingerprint"), self._fingerprint)
        check(
            other is None or not isinstance(result, Weighed),
            f"{self.path} holds evaluations of another density: {other}; begin anew, or choose "
            "another file",
        )
        if other is not None:
            warnings.warn(f"{self.path} was saved for another density: {other}", stacklevel=4)
        return result

    @cached_property
    def _fingerprint(self) -> list[float]:
        """The density at fixed points; computed once, as calls may be expensive."""
        return fingerprint(self.problem.target)

"""Checkpoints of a run: a folder of files, each of which is written once and atomically.

    run.inv                        the identity of the run: key, sizes, kernel, density
    state-<chains>.inv             positions of chains during warm-up
    draws-<chains>-<draws>.inv     draws of some chains; the last one is their position

Chain k at step t uses the key `fold_in(fold_in(root, k), t)`, so a position and a step number are
all that a run has to remember; what a kernel carries beside the position (replicas) is saved with
the last draw of each file. A kill loses what was drawn since the last file; what is drawn
again after it has the same bits. Files name global chain ids, so that a run may be resumed by
another number of processes, and merged from the files of all of them.
"""

import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from involutive.core.errors import InputError, check
from involutive.kernel.kernel import State
from involutive.sampling.chunks import NAME, chunks_in, fill, read_chunk, skipping_damaged
from involutive.sampling.recorder import Recorder
from involutive.sampling.runner import Chains
from involutive.sampling.same_run import check_same, run_name
from involutive.storage.format import PathLike, as_path, read_tensors, write_tensors
from involutive.storage.save_load import check_kind
from involutive.targets.fingerprint import fingerprint
from involutive.targets.target import Target

INTERVAL = 1.0  # seconds between two files: a kill loses no more work than this and one chunk
MOST_BYTES = 64 * 2**20  # maximum bytes of draws not yet written


class Checkpoint:
    """The checkpoint of the chains `ids` of one run.

    Args:
        path: the folder, made if it is missing.
        run: what `same_run` returned.
        target: the density, for its fingerprint.
        ids: the global ids of the chains run here.
        resume: continue the run found at `path`; without it, a run found there is refused.
    """

    def __init__(
        self, path: PathLike, run: dict[str, Any], target: Target, ids: range, resume: bool
    ):
        self.folder, self.run, self.ids = as_path(path), run, ids
        self.warmup = run["num_warmup"]
        self.name = run_name(run)
        self.written, self._at = 0, time.perf_counter()
        marker = self.folder / "run.inv"
        check(
            not self.folder.exists() or self.folder.is_dir(),
            f"checkpoint must name a folder, got the file {self.folder}",
        )
        if marker.exists():
            check(
                resume or not self._begun(),
                f"{self.folder} already holds a run; pass resume=True to continue it, or another "
                "checkpoint to begin one",
            )
            check_same(self.folder, run, target)
        else:
            _make_folder(self.folder)
            same = {"run": run, "target": target.name, "fingerprint": fingerprint(target)}
            for _ in range(2):  # the second write keeps the first as the copy to fall back to
                write_tensors(marker, {}, {"kind": "run"} | same)
        for left in self.folder.glob(f".*-{ids.start:08d}-{ids.stop:08d}*.tmp"):
            left.unlink(missing_ok=True)  # from a write of these chains that was killed

    def _begun(self) -> bool:
        """Whether files hold any of our chains: another process may have made the folder."""
        files = [NAME.fullmatch(path.name) for path in self.folder.iterdir()]
        spans = [(int(found[1]), int(found[2])) for found in files if found]
        return any(low < self.ids.stop and self.ids.start < high for low, high in spans)

    def restore(self, chains: Chains, recorder: Recorder, num_warmup: int) -> bool:
        """Continue from what is saved: fill the recorder, place the chains. False if nothing is."""
        blank = chains.blank(len(self.ids))
        recorder.count = fill(self.folder, self.name, self.ids, recorder)
        if jax.tree.leaves(blank.carried):
            blank = self._with_carried(recorder, blank)
        self.written = recorder.count
        if recorder.count > 0:
            last = recorder.count - 1
            place = {"position": recorder.positions, "log_density": recorder.log_density}
            state = blank._replace(**{name: rows[:, last] for name, rows in place.items()})
            chains.restore(state, num_warmup + recorder.count * chains.thin)
            return True
        found = self._warm_state(blank)
        if found is None:
            return False
        chains.restore(*found)
        return True

    def save_state(self, chains: Chains, force: bool = False) -> None:
        """Write the positions of the chains, during warm-up."""
        if not force and time.perf_counter() - self._at < INTERVAL:
            return
        state, header = chains.state(), {"kind": "state", "run": self.name, "step": chains.step}
        arrays = {"position": state.position, "log_density": state.log_density}
        arrays |= _named(state.carried)
        path = self.folder / f"state-{self.ids.start:08d}-{self.ids.stop:08d}.inv"
        write_tensors(path, arrays, header | {"chains": [self.ids.start, self.ids.stop]})
        self._at = time.perf_counter()

    def save_draws(self, recorder: Recorder, chains: Chains, force: bool = False) -> None:
        """Write the draws made since the last file, if it is time to."""
        start, end = self.written, recorder.count
        if start >= end:
            return
        carried = _named(chains.state().carried)
        if carried and chains.step != self.warmup + end * chains.thin:
            return  # interrupted in a chunk: its draws are made again
        arrays = recorder.chunk(start, end) | carried
        heavy = sum(array.nbytes for array in arrays.values()) >= MOST_BYTES
        if not force and not heavy and time.perf_counter() - self._at < INTERVAL:
            return
        low, high = self.ids.start, self.ids.stop
        path = self.folder / f"draws-{low:08d}-{high:08d}-{start:010d}-{end:010d}.inv"
        header = {"kind": "draws", "run": self.name, "chains": [low, high], "draws": [start, end]}
        write_tensors(path, arrays, header, keep=False)
        self.written, self._at = end, time.perf_counter()

    def how_to_resume(self) -> str:
        """The end of a sentence that says how many draws are saved, and where."""
        return (
            f"{self.written} draws of each chain are saved in {self.folder}; call sample again "
            f"with checkpoint='{self.folder}', resume=True to continue"
        )

    def _warm_state(self, blank: State) -> tuple[State, int] | None:
        """The state of all chains run here at one step of the warm-up, if files hold one."""
        steps = np.full(len(self.ids), -1)
        leaves = {"position": blank.position, "log_density": blank.log_density}
        leaves |= _named(blank.carried)
        for path in sorted(self.folder.glob("state-*.inv")):
            with skipping_damaged("the warm-up is made again"):
                arrays, header = read_tensors(path, fall_back=True)
                check_kind(path, header, "state")
                check(header["run"] == self.name, f"{path} belongs to another run")
                low, high = header["chains"]
                here = range(max(low, self.ids.start), min(high, self.ids.stop))
                rows = slice(here.start - self.ids.start, here.stop - self.ids.start)
                if len(here) == 0 or (steps[rows] > header["step"]).any():
                    continue
                for name, leaf in leaves.items():
                    leaf[rows] = arrays[name][here.start - low : here.stop - low]
                steps[rows] = header["step"]
        if steps.min() != steps.max() or steps.min() < 0:
            return None
        return blank, int(steps[0])

    def _with_carried(self, recorder: Recorder, blank: State) -> State:
        """The carried state of every chain after the last draw for which all files hold it.

        Only the last draw of a file has a carried state, so draws after the last common end are
        made again.
        """
        ends: dict[int, np.ndarray] = {}
        for chunk in chunks_in(self.folder):
            here = np.arange(max(chunk.low, self.ids.start), min(chunk.high, self.ids.stop))
            seen = ends.setdefault(chunk.end, np.zeros(len(self.ids), bool))
            seen[here - self.ids.start] = True
        if recorder.count == recorder.log_density.shape[1]:
            return blank  # no draw is missing, so no chain continues from this state
        whole = [end for end, seen in ends.items() if seen.all() and end <= recorder.count]
        recorder.count = max(whole, default=0)
        for chunk in chunks_in(self.folder):
            if chunk.end == recorder.count:
                arrays = read_chunk(chunk, self.name, recorder)
                here = range(max(chunk.low, self.ids.start), min(chunk.high, self.ids.stop))
                rows = slice(here.start - self.ids.start, here.stop - self.ids.start)
                for name, leaf in _named(blank.carried).items():
                    leaf[rows] = arrays[name][here.start - chunk.low : here.stop - chunk.low]
        return blank


def _named(carried: PyTree) -> dict[str, np.ndarray]:
    """The arrays of a carried state, by their names in files."""
    return {f"carried.{i}": leaf for i, leaf in enumerate(jax.tree.leaves(carried))}


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"could not make the folder {folder}: {error.strerror}") from error

"""One run of chains: warm-up, then draws in chunks that are recorded and saved as they come."""

import signal
import time
import warnings
from dataclasses import dataclass, field

import numpy as np
from flowjax.distributions import AbstractDistribution

from involutive.core.errors import check
from involutive.core.types import ArrayLike
from involutive.sampling.checkpoint import Checkpoint
from involutive.sampling.interrupt import TERMINATED, Interrupt
from involutive.sampling.mixing import Mixing
from involutive.sampling.progress import Progress
from involutive.sampling.recorder import Recorder
from involutive.sampling.runner import Chains
from involutive.sampling.stopping import Watch

FIRST_CHUNK = 16  # draws of the first chunk
SHORT, LONG = 0.25, 1.0  # seconds: a quicker chunk is followed by a longer one, and the reverse


@dataclass
class ChainRun:
    """One run of chains.

    Attributes:
        chains: the chains.
        recorder: holds the draws.
        num_warmup: steps of the warm-up.
        num_samples: draws per chain.
        watch: checks a goal to stop at, or None.
        saved: the checkpoint, or None.
        began: when the run began, on the clock of `time.perf_counter()`.
        mixing: estimates the effective draws so far, for the progress line.
    """

    chains: Chains
    recorder: Recorder
    num_warmup: int
    num_samples: int
    watch: Watch | None
    saved: Checkpoint | None
    began: float = field(default_factory=time.perf_counter)
    mixing: Mixing = field(default_factory=Mixing)

    def begin(self, initial: AbstractDistribution | ArrayLike | None) -> None:
        """Place the chains where a checkpoint left them, or at their start."""
        if self.saved and self.saved.restore(self.chains, self.recorder, self.num_warmup):
            if self.watch:
                self.watch.skip_to(self.recorder.count)
            return
        self.chains.start(initial[self.chains.ids] if isinstance(initial, np.ndarray) else initial)

    def finish(self, progress: bool | None) -> bool:
        """Make the draws that are missing; return whether a signal ended the run early."""
        total = self.num_warmup + self.num_samples
        terminate = self.saved is not None
        with Progress("sampling", total, progress) as bar, Interrupt(terminate) as stop:
            try:
                self._warm_up(bar, stop)
                self._draw(bar, stop)
            except KeyboardInterrupt:
                stop.asked = stop.asked or signal.SIGINT
            if self.saved:
                self.saved.save_draws(self.recorder, self.chains, force=True)
        if stop.asked is None or self.recorder.count >= self.num_samples:
            return False
        self._say_interrupted(stop.asked)
        return True

    def _warm_up(self, bar: Progress, stop: Interrupt) -> None:
        chains, pace = self.chains, Pace(self.chains.capacity)
        thin, chains.thin = chains.thin, 1
        while chains.step < self.num_warmup and stop.asked is None:
            pace.advance(chains, self.num_warmup - chains.step)
            bar.update(chains.step, during="warm-up")
            if self.saved:
                last = stop.asked is not None or chains.step == self.num_warmup
                self.saved.save_state(chains, force=last)
        chains.thin = thin

    def _draw(self, bar: Progress, stop: Interrupt) -> None:
        bar.update(during=None)
        recorder, watch, pace = self.recorder, self.watch, Pace(self.chains.capacity)
        done = watch is not None and recorder.count > 0 and watch.ends(recorder.so_far(), 0.0)
        while recorder.count < self.num_samples and stop.asked is None and not done:
            room = watch.room(recorder.count) if watch else self.num_samples - recorder.count
            made = pace.advance(self.chains, room, recorder)
            recorder.count += made  # counted last, so that an interrupt leaves whole chunks
            if self.saved:
                self.saved.save_draws(recorder, self.chains)
            seconds = time.perf_counter() - self.began
            done = watch is not None and watch.ends(recorder.so_far(), seconds)
            bar.update(
                self.num_warmup + recorder.count,
                **self.mixing.metrics(recorder),
                **(watch.metrics() if watch else {}),
                **{"draws per second": recorder.count * len(self.chains.ids) / seconds},
            )

    def _say_interrupted(self, number: int) -> None:
        if self.saved:
            name = signal.Signals(number).name
            warnings.warn(f"{name}: {self.saved.how_to_resume()}", stacklevel=4)
        if number == signal.SIGTERM:
            raise SystemExit(TERMINATED)
        check(
            self.recorder.count > 0,
            "interrupted before the first chunk of draws was finished; nothing to return",
        )


class Pace:
    """The length of chunks: long enough to cost little, short enough to stop and save in between.

    Args:
        most: maximum draws per chunk.
    """

    def __init__(self, most: int):
        self.most, self.count = most, min(FIRST_CHUNK, most)

    def advance(self, chains: Chains, room: int, recorder: Recorder | None = None) -> int:
        """Make and record at most `room` draws; return how many.

        The next chunk is longer if this one was quick, and shorter if it was slow.
        """
        began, count = time.perf_counter(), min(self.count, room)
        chains.advance(count, recorder.ahead(count) if recorder else None)
        seconds = time.perf_counter() - began
        if seconds < SHORT:
            self.count = min(2 * self.count, self.most)
        elif seconds > LONG:
            self.count = max(self.count // 2, 1)
        return count

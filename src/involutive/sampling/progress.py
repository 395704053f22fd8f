"""One line of progress for long work: how far it is, how much time is left, and its metrics.

A piece of work is one bar of `total` units, or a number of stages in plain words. Work inside other
work moves the line of the outer work and shows none of its own. On a terminal the line is redrawn
in place. In a notebook it is a text that is updated, so that a saved notebook keeps its last state.
Into a pipe or a file a line is written every ten seconds, so that short work writes none.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType

from involutive.sampling.screens import Screen, screen

TICK = 0.25  # seconds between redrawings
BAR = 16  # characters
EARLY = 0.02  # share of the work from which the time left is estimated; a guess
UNFINISHED = 0.99  # maximum share that a bar shows before the work has ended
LONGEST_DRAW = 0.2  # seconds that silence waits for a line to be finished; a guess

_SILENCED = threading.Event()
_DRAWING = threading.RLock()  # a signal may interrupt the thread that draws
_HIDDEN: ContextVar[bool] = ContextVar("hidden", default=False)
_OUTER: ContextVar["Progress | None"] = ContextVar("outer", default=None)


def silence() -> None:
    """Draw no more progress in this process; a line that another thread draws now is finished."""
    _SILENCED.set()
    if _DRAWING.acquire(timeout=LONGEST_DRAW):
        _DRAWING.release()


def current() -> "Progress | None":
    """The work whose line is shown now, if any."""
    return _OUTER.get()


@contextmanager
def hidden(hide: bool = True) -> Iterator[None]:
    """Within this context a line appears only where it is asked for with `progress=True`."""
    token = _HIDDEN.set(hide or _HIDDEN.get())
    try:
        yield
    finally:
        _HIDDEN.reset(token)


def wanted(progress: bool | None) -> bool:
    """Whether to show progress: as asked, or unless it is hidden here."""
    return not _HIDDEN.get() if progress is None else progress


class Progress:
    """The progress of one piece of work.

    Args:
        label: what is done, such as "sampling".
        total: how many units there are; None for work that has stages, or no known length.
        progress: True or False to show it or not; by default it is shown unless `hidden`.
        steady: whether work inside this one leaves its share alone and is only named.
        most: seconds after which the work ends in any case, if that is known.

    Example:
        with Progress("learning") as bar:
            bar.stage("finding modes", 1, 2)
            bar.update(fraction=0.5, modes=3)
            bar.stage("fitting the proposal", 2, 2)
            bar.update(fraction=0.1, ess_per_draw=0.4, evaluations=2_000, of=10_000)
    """

    def __init__(
        self,
        label: str,
        total: int | float | None = None,
        progress: bool | None = None,
        *,
        steady: bool = False,
        most: int | float | None = None,
    ):
        self.label, self.total, self.shown = label, total, wanted(progress)
        self.steady, self.most, self.inside = steady, most, ""
        self._watched: Callable[[], dict[str, object]] = dict
        self.fraction: float | None = None if total is None else 0.0
        self.metrics: dict[str, object] = {}
        self.began = time.perf_counter()
        self._stage: tuple[str, int, int] | None = None
        self._left: float | None = None
        self._outer = _OUTER.get()
        self._screen: Screen | None = None
        self._token: Token | None = None
        self._ended = threading.Event()
        self._ticker: threading.Thread | None = None

    def __enter__(self) -> "Progress":
        self.began = time.perf_counter()
        if self._outer is not None and self._outer.steady:
            self._outer.inside = self.label
        if self._outer is None:
            self._token = _OUTER.set(self)
            try:
                self._show()
            except BaseException:  # Ctrl-C: there is no `with` yet that would end the line
                self.__exit__(*sys.exc_info())
                raise
        return self

    def _show(self) -> None:
        if not self.shown:
            return
        self._screen = screen()
        self._redraw()
        if self._screen.ticks:
            self._ticker = threading.Thread(target=self._tick, daemon=True)
            self._ticker.start()

    def stage(self, name: str, index: int, total: int) -> None:
        """Begin stage `index` of `total`, counted from 1, called `name` in plain words.

        A stage that is skipped is never begun: the next one has a higher index, or `total` is less.
        """
        if self._outer is not None:
            return
        self._stage, self.fraction, self._left = (name, index, total), 0.0, None
        self._redraw()

    def update(
        self,
        completed: int | float | None = None,
        *,
        fraction: int | float | None = None,
        left: int | float | None = None,
        **metrics: object,
    ) -> None:
        """Move the line.

        Args:
            completed: units done, of `total`.
            fraction: the share of the stage (or of all the work, without stages) that is done.
            left: seconds left for all the work, where the caller knows better than a share tells.
            metrics: what was reached, shown from now on until it changes; None removes one. Floats
                get three digits. `of` follows `evaluations` as how many there may be.
        """
        if completed is not None and self.total:
            fraction = completed / self.total
        if fraction is not None:
            self.fraction = min(max(float(fraction), 0.0), 1.0)
        if self._outer is not None:
            if not self._outer.steady:
                self._outer.update(fraction=self.fraction)
            return
        self._left = None if left is None else float(left)
        self.metrics.update(metrics)
        self._redraw()

    def watch(self, metrics: Callable[[], dict[str, object]]) -> None:
        """Ask for these metrics whenever the line is drawn, in place of those watched before."""
        (self._outer or self)._watched = metrics

    def line(self, width: int | None = None) -> str:
        """The line as it stands now, of at most `width` characters."""
        parts = [self._what(), self._times(), *self._reached()]
        text = " · ".join(part for part in parts if part)
        return text if width is None or len(text) <= width else text[: width - 1] + "…"

    def overall(self) -> float | None:
        """The share of all the work that is done, if it can be told."""
        if self._stage is None or self.fraction is None:
            return self.fraction
        _, index, total = self._stage
        return (index - 1 + self.fraction) / total

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._outer is not None:
            self._outer.inside = ""
        if self._token is not None:
            _OUTER.reset(self._token)
        if self._ticker is not None:
            self._ticker.join()
        if self._screen is not None:
            how = "done" if kind is None else "stopped"
            parts = [f"{self.label}: {how} after {_clock(self._seconds())}", *self._reached()]
            with _DRAWING:
                if not _SILENCED.is_set():
                    self._screen.close(" · ".join(parts))

    def _what(self) -> str:
        share = self.overall()
        name = self.label
        if self._stage is not None:
            stage, index, total = self._stage
            name = f"{self.label}: stage {index} of {total}, {stage}"
        if share is None:
            return name
        share = min(share, UNFINISHED)
        full = int(share * BAR)
        return f"{name} {'━' * full}{'╌' * (BAR - full)} {share:.0%}"

    def _times(self) -> str:
        spent, share = self._seconds(), self.overall()
        left = self._left
        if left is None and share is not None and share >= EARLY:
            left = spent * (1 - share) / share
        ends = "" if left is None else f", about {_clock(max(left, 1.0))} left"
        most = "" if self.most is None else f", {_clock(self.most)} at most"
        return f"{_clock(spent)} so far{ends}{most}"

    def _reached(self) -> list[str]:
        live = self.metrics | self._watched()
        shown = {name: value for name, value in live.items() if value is not None}
        limit = shown.pop("of", None)
        if limit is not None and "evaluations" in shown:
            shown["evaluations"] = f"{_short(shown['evaluations'])} of {_short(limit)}"
        inside = [f"now {self.inside}"] if self.inside and not self._ended.is_set() else []
        said = [
            f"{_short(value)} {_noun(name, value)}"
            if _counted(value)
            else f"{_words(name)} {value}"
            for name, value in shown.items()
        ]
        return said + inside

    def _seconds(self) -> float:
        return time.perf_counter() - self.began

    def _redraw(self) -> None:
        if self._screen is None:
            return
        with _DRAWING:
            if not _SILENCED.is_set():
                self._screen.show(self.line())

    def _tick(self) -> None:
        while not self._ended.wait(TICK):
            self._redraw()


def _counted(value: object) -> bool:
    """Whether a value reads as a number of something, as in `3 modes`; words follow their name."""
    return isinstance(value, int | float) or (isinstance(value, str) and value[:1].isdigit())


def _noun(name: str, value: object) -> str:
    """The words of a counted metric: `1 mode`, `6 modes`."""
    return _words(name).removesuffix("s") if value == 1 and name == "modes" else _words(name)


def _words(name: str) -> str:
    return name.replace("_", " ").replace("ess", "ESS")


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _clock(seconds: float) -> str:
    """Seconds as `0:07`, `12:30` or `1:02:03`."""
    whole = int(seconds)
    minutes, hours = whole // 60 % 60, whole // 3600
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"

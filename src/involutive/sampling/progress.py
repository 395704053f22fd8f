"""One line of progress with figures, for everything that takes long.

Shown on a terminal or in a notebook; silent when output is redirected or progress is switched off.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any

_HIDDEN: ContextVar[bool] = ContextVar("hidden", default=False)


@contextmanager
def hidden(hide: bool = True) -> Iterator[None]:
    """Within this context a bar appears only where it is asked for with `progress=True`."""
    token = _HIDDEN.set(hide or _HIDDEN.get())
    try:
        yield
    finally:
        _HIDDEN.reset(token)


def wanted(progress: bool | None) -> bool:
    """Whether to show progress: as asked, or if standard error is a terminal or a notebook."""
    if progress is not None:
        return progress
    if _HIDDEN.get():
        return False
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class Progress:
    """A progress bar of `total` units with a caption of current figures."""

    def __init__(self, label: str, total: int | float, progress: bool | None = None):
        self.label, self.total, self.shown = label, total, wanted(progress)
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Progress":
        if self.shown:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.percentage:>3.0f}%"),
                TextColumn("{task.fields[figures]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._bar.start()
            self._task = self._bar.add_task(self.label, total=self.total, figures="")
        return self

    def update(self, completed: int | float, **figures: object) -> None:
        """Move the bar and show the figures, floats with three digits."""
        if self._bar is None:
            return
        parts = [f"{name} {_short(value)}" for name, value in figures.items()]
        self._bar.update(self._task, completed=completed, figures=" · ".join(parts))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)

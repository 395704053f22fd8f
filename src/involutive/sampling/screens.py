"""Where a line of progress is shown: a terminal, a notebook, a pipe or a file."""

import abc
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.display import DisplayHandle
    from rich.text import Text
else:
    Text = Any

PIPED = 10.0  # seconds between lines into a pipe
NOTEBOOK = 0.5  # seconds between updates of a notebook


class Screen(abc.ABC):
    """A place for one line; `ticks` says whether it is redrawn between reports."""

    ticks: bool

    @abc.abstractmethod
    def show(self, line: str) -> None:
        """Show the line in place of the one before."""

    @abc.abstractmethod
    def close(self, line: str) -> None:
        """Leave this line behind."""


class Terminal(Screen):
    """A line that is redrawn in place; what is printed meanwhile appears above it."""

    ticks = True

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(stderr=True), auto_refresh=False)
        self._live.start()

    def show(self, line: str) -> None:
        self._live.update(_text(line), refresh=True)

    def close(self, line: str) -> None:
        self._live.update(_text(line), refresh=True)
        self._live.stop()


class Notebook(Screen):
    """A text that is updated; it needs no widgets, and a saved notebook keeps the last one.

    Only the work itself updates it: what another thread displays may end up under another cell.
    """

    ticks = False

    def __init__(self) -> None:
        self._handle: DisplayHandle | None = None
        self._shown = float("-inf")

    def show(self, line: str) -> None:
        if time.perf_counter() - self._shown >= NOTEBOOK:
            self._put(line)

    def close(self, line: str) -> None:
        self._put(line)

    def _put(self, line: str) -> None:
        from IPython.display import display

        self._shown, text = time.perf_counter(), {"text/plain": line}
        if self._handle is None:
            self._handle = display(text, raw=True, display_id=True)
        else:
            self._handle.update(text, raw=True)


class Lines(Screen):
    """A line every ten seconds; none for work that ends sooner."""

    ticks = True

    def __init__(self) -> None:
        self._shown, self._any = time.perf_counter(), False

    def show(self, line: str) -> None:
        if time.perf_counter() - self._shown >= PIPED:
            self._write(line)

    def close(self, line: str) -> None:
        if self._any:
            self._write(line)

    def _write(self, line: str) -> None:
        self._shown, self._any = time.perf_counter(), True
        print(line, file=sys.stderr, flush=True)  # noqa: T201


def screen() -> Screen:
    """The screen that standard error goes to."""
    if _in_notebook():
        return Notebook()
    return Terminal() if sys.stderr.isatty() else Lines()


def _in_notebook() -> bool:
    if "ipykernel" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def _text(line: str) -> Text:
    from rich.text import Text

    return Text(line, no_wrap=True, overflow="ellipsis")

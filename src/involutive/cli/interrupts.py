"""Ctrl-C: the command ends with exit code 130 within two seconds, whatever it is doing.

Python hears a signal between two of its own instructions, and not while XLA compiles. So a thread
hears it too, through a pipe that the signal writes to. It gives the work a moment to end by itself,
then says what was kept and leaves at once. Every file is written whole or not at all, and threads
of the compiler are left to the system: to wait for them, or to end them, took long or failed.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from involutive.cli.speech import complain

INTERRUPTED = 130
GRACE = 1.0  # seconds for the work to end by itself
AGAIN = 0.02  # seconds after which a Ctrl-C that was dropped is raised again


class Patience:
    """What Ctrl-C does at this moment, and what it will say."""

    def __init__(self) -> None:
        self.kept = ""
        self._checkpoint: Path | None = None
        self._command = ""
        self._busy = threading.Event()
        self._lock = threading.Lock()
        self._said = False

    def begin(self) -> None:
        """Hear Ctrl-C from now on; on the main thread of a command."""
        hears, tells = os.pipe()
        os.set_blocking(tells, False)
        signal.set_wakeup_fd(tells, warn_on_full_buffer=False)
        # no exception while libraries are imported: some of them abort the process at one
        signal.signal(signal.SIGINT, lambda *_: self.leave())
        threading.Thread(target=self._listen, args=(hears,), daemon=True).start()

    def end(self, leaving: bool) -> None:
        """Hear Ctrl-C no more: the command has ended, and what it made is written.

        One that comes while the interpreter is shut down (`leaving`) must not undo the exit code.
        """
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN if leaving else signal.default_int_handler)

    def keeps(self, checkpoint: Path | None, command: str) -> None:
        """Say that what is learned is kept in `checkpoint`, from which `command` can continue."""
        self._checkpoint, self._command, self.kept = checkpoint, command, ""

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Within this context Ctrl-C raises, so that the work can keep what it has."""
        before, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.unraisablehook = partial(_raise_again, hook)
        try:
            yield
        finally:
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, before)
                sys.unraisablehook = hook

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Within this context Ctrl-C is the work's own affair; a second one leaves at once."""
        self._busy.set()
        try:
            with self.raising():
                yield
        finally:
            self._busy.clear()

    def sentence(self) -> str:
        """What is said at the end."""
        parts = ["interrupted", self.kept, self._how_to_go_on()]
        return "; ".join(part for part in parts if part)

    def say(self) -> None:
        """Print the sentence, once."""
        with self._lock:
            if not self._said:
                self._said = True
                # a live line of progress would be drawn again below what is printed through it
                out = getattr(sys.stderr, "rich_proxied_file", sys.stderr)
                if out.isatty():  # in place of that line, which hides the cursor
                    out.write("\r\x1b[2K\x1b[?25h")
                complain(self.sentence(), out)

    def leave(self) -> None:
        """Say what was kept and end the process, with no word from any thread."""
        progress = sys.modules.get("involutive.sampling.progress")
        if progress is not None:  # not imported here: it takes seconds
            progress.silence()
        self.say()
        sys.stdout.flush()
        getattr(sys.stderr, "rich_proxied_file", sys.stderr).flush()
        os._exit(INTERRUPTED)

    def _how_to_go_on(self) -> str:
        if not self._command:
            return ""
        if self._checkpoint is None:
            return "" if self.kept else "nothing was kept; pass --resume to keep the state"
        again = f"{self._command} --checkpoint {self._checkpoint} --resume"
        if self._checkpoint.exists():
            return f"kept {self._checkpoint}; to continue: {again}"
        return f"nothing to keep yet; to start again: {again}"

    def _listen(self, hears: int) -> None:
        count = 0
        while True:
            heard = os.read(hears, 1)
            if heard != bytes([signal.SIGINT]):
                continue
            count += 1
            if self._busy.is_set() and count == 1:
                complain("interrupted: finishing the current draws; Ctrl-C again leaves now")
                continue
            threading.Event().wait(GRACE)
            self.leave()


patience = Patience()


def _raise_again(
    hook: Callable[["sys.UnraisableHookArgs"], object], lost: "sys.UnraisableHookArgs"
) -> None:
    """Raise a Ctrl-C once more that came where Python can only print and drop it.

    Within a destructor or JAX's callback of the garbage collector, for example.
    """
    if not isinstance(lost.exc_value, KeyboardInterrupt):
        hook(lost)
        return
    main = ctypes.c_ulong(threading.main_thread().ident or 0)
    again = partial(ctypes.pythonapi.PyThreadState_SetAsyncExc, main)
    # from another thread, in a moment: here it would be lost in the same way
    later = threading.Timer(AGAIN, again, [ctypes.py_object(KeyboardInterrupt)])
    later.daemon = True
    later.start()


def as_options(given: dict[str, str | float | Path | None]) -> str:
    """Options as they are typed, those that were not given left out: ` --seed 3 --x64`."""
    typed = {
        name: value for name, value in given.items() if value is not None and value is not False
    }
    return "".join(
        f" --{name}" if value is True else f" --{name} {value}" for name, value in typed.items()
    )

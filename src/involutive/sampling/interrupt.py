"""Ctrl-C and SIGTERM as a request to stop after the chunk in flight."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

TERMINATED = 128 + signal.SIGTERM  # the exit code shells give a process that SIGTERM ended


class Interrupt:
    """Records the first signal for the loop to check; a second one interrupts at once.

    Handlers can only be set on the main thread; elsewhere nothing is changed.
    """

    def __init__(self, terminate: bool):
        self.signals = [signal.SIGINT, signal.SIGTERM] if terminate else [signal.SIGINT]
        self.asked: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._ask) for number in self.signals}
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked is not None:
            raise KeyboardInterrupt
        self.asked = number

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

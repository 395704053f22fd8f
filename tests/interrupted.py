"""Interrupt a command in a terminal of its own, and look at how it ends."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import involutive

SOURCE = str(Path(involutive.__file__).parents[1])


class Ending(NamedTuple):
    """How a command ended after Ctrl-C: its exit code, how long it took, what it said last."""

    after: float
    code: int
    seconds: float
    last: str


def interrupted(arguments: list[str], after: float, folder: Path, cache: Path) -> Ending:
    """Start `involutive` in a pseudo-terminal, press Ctrl-C `after` seconds, wait for the end."""
    primary, secondary = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    environment |= {"JAX_COMPILATION_CACHE_DIR": str(cache), "PYTHONPATH": SOURCE, "COLUMNS": "120"}
    process = subprocess.Popen(
        [sys.executable, "-m", "involutive.cli.main", *arguments],
        stdin=secondary, stdout=secondary, stderr=secondary, cwd=folder, env=environment,
        start_new_session=True,
    )  # fmt: skip
    os.close(secondary)
    said, pressed, began = b"", None, time.monotonic()
    while process.poll() is None:
        if select.select([primary], [], [], 0.02)[0]:
            try:
                said += os.read(primary, 65536)
            except OSError:
                break
        if pressed is None and time.monotonic() - began >= after:
            pressed = time.monotonic()
            os.killpg(process.pid, signal.SIGINT)
    code = process.wait()
    seconds = time.monotonic() - (pressed or began)
    while select.select([primary], [], [], 0.1)[0]:
        try:
            said += os.read(primary, 65536)
        except OSError:
            break
    os.close(primary)
    lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
    return Ending(after, code, seconds, lines[-1] if lines else "")

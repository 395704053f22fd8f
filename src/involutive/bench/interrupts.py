"""Ctrl-C at random times in `involutive learn`: `python -m involutive.bench.interrupts --count 50`.

Every run learns on a terminal of its own with `--checkpoint` and `--resume`, and is interrupted at
a random time, imports included. Each must end with exit code 130 within two seconds, with one last
line that says what was kept, and without a traceback or a core. The next run goes on from what the
last one kept; the proposal that is learned in the end must have the bits of an uninterrupted run.
Half of the runs begin with an empty compilation cache.
"""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from involutive.core.text import markdown_table
from involutive.storage.format import read_tensors

SOURCE = str(Path(__file__).parents[2])
MODEL = "import involutive as inv\ntarget = inv.targets.funnel(3)\n"
LATEST = 2.0  # seconds after Ctrl-C in which the command must have ended
FIRST = 0.05  # seconds after exec of the earliest Ctrl-C
WORDS = re.compile(r"involutive: interrupted")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Ending(NamedTuple):
    """How a command ended after Ctrl-C.

    Attributes:
        after: seconds at which Ctrl-C came; infinite if the command ended first.
        code: its exit code; negative where a signal ended it.
        seconds: from Ctrl-C to the end.
        last: the last line it printed.
        said: all of it.
    """

    after: float
    code: int
    seconds: float
    last: str
    said: str

    @property
    def too_early(self) -> bool:
        """Whether the signal came before the interpreter had begun: it ends the process, unheard.

        A shell shows that as 130 too.
        """
        return self.code == -signal.SIGINT and not self.said.strip()

    @property
    def faults(self) -> list[str]:
        """What is wrong with this end."""
        found = {
            f"exit code {self.code}": self.code != 130,
            f"took {self.seconds:.2f} s": self.seconds > LATEST,
            f"last line {self.last!r}": not WORDS.search(self.last),
            "a traceback": "Traceback" in self.said,
        }
        return [name for name, wrong in found.items() if wrong]


def interrupted(arguments: list[str], after: float, folder: Path, cache: Path) -> Ending:
    """Start `involutive` in a pseudo-terminal, press Ctrl-C `after` seconds, wait for the end."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell's background job; inherited
        signal.signal(signal.SIGINT, signal.default_int_handler)
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
        said += _heard(primary, 0.02)
        if pressed is None and time.monotonic() - began >= after:
            pressed = time.monotonic()
            os.killpg(process.pid, signal.SIGINT)
    ended, code = time.monotonic(), process.wait()
    while part := _heard(primary, 0.1):
        said += part
    os.close(primary)
    text = CONTROL.sub("\n", said.decode(errors="replace"))
    lines = [line for line in text.splitlines() if line.strip()]
    seconds = 0.0 if pressed is None else ended - pressed
    return Ending(
        float("inf") if pressed is None else after, code, seconds, lines[-1] if lines else "", text
    )


def _heard(primary: int, seconds: float) -> bytes:
    """What the terminal shows within so many seconds."""
    if not select.select([primary], [], [], seconds)[0]:
        return b""
    try:
        return os.read(primary, 65536)
    except OSError:  # the other end is closed
        return b""


def interrupts(count: int, seed: int, folder: Path, latest: float) -> Iterator[Ending]:
    """Interrupt learning `count` times between `FIRST` and `latest` seconds; runs go on.

    A run that ends by itself is compared with one that was never interrupted, and the next begins
    anew. After the last interrupt the run is let to its end and compared too.

    Raises:
        AssertionError: if a resumed run ends with other bits than one without an interrupt.
    """
    rng = np.random.default_rng(seed)
    (folder / "model.py").write_text(MODEL)
    warm = folder / "cache"
    learn = ["learn", "model.py:target", "--seed", str(seed)]
    whole = interrupted([*learn, "-o", "whole.inv"], 1e9, folder, warm)
    assert whole.code == 0, whole
    resumed = [*learn, "-o", "resumed.inv", "--checkpoint", "kept", "--resume"]
    done = 0
    while done < count:
        after = float(np.exp(rng.uniform(np.log(FIRST), np.log(latest))))
        cold = rng.random() < 0.5
        cache = Path(tempfile.mkdtemp(dir=folder)) if cold else warm
        ending = interrupted(resumed, after, folder, cache)
        if ending.code == 0:  # it had ended, or was about to
            _compare(folder, ending)
            continue
        if not ending.too_early:
            done += 1
            yield ending
    ending = interrupted(resumed, 1e9, folder, warm)
    _compare(folder, ending)


def _compare(folder: Path, ending: Ending) -> None:
    """Demand that the resumed run has ended with the bits of the whole one; forget what it kept."""
    assert ending.code == 0, ending
    one, other = (read_tensors(folder / name)[0] for name in ("whole.inv", "resumed.inv"))
    assert one.keys() == other.keys()
    same = all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)
    assert same, f"a resumed run has other bits: {ending.said}"
    (folder / "kept").unlink(missing_ok=True)


def main(
    count: Annotated[int, typer.Option(help="How many interrupts.")] = 50,
    seed: Annotated[int, typer.Option(help="Of the times, and of learning.")] = 0,
    latest: Annotated[float, typer.Option(help="Seconds of the latest interrupt.")] = 40.0,
) -> None:
    """Interrupt `involutive learn` at random times, resume it, and count what went wrong."""
    seen: list[Ending] = []
    with tempfile.TemporaryDirectory() as folder:
        for ending in interrupts(count, seed, Path(folder), latest):
            seen.append(ending)
            fault = "; ".join(ending.faults) or "ok"
            line = (
                f"{ending.after:6.2f} s: exit {ending.code} after {ending.seconds:.2f} s, {fault}"
            )
            sys.stdout.write(f"{line} | {ending.last}\n")
            sys.stdout.flush()
    row = {
        "interrupts": len(seen),
        "exit 130": sum(ending.code == 130 for ending in seen),
        "longest seconds": max(ending.seconds for ending in seen),
        "faults": sum(bool(ending.faults) for ending in seen),
    }
    sys.stdout.write("\n" + markdown_table([row]))


if __name__ == "__main__":
    typer.run(main)

"""The command `involutive`.

Its own imports take a tenth of a second, those of JAX seconds. Ctrl-C during the first of them must
end it with one line as later does, so this runs before any other import of the command, and only
in a process that is the command: `main` installs the handler that can do more (`interrupts.py`).
"""

import os
import signal
import sys
import threading


def _leave(*_: object) -> None:
    os.write(2, b"\rinvolutive: interrupted before it began; nothing was kept\n")
    os._exit(130)


if (
    os.path.basename(sys.argv[0]) in ("involutive", "-m")
    and threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
    signal.signal(signal.SIGINT, _leave)

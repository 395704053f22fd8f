"""Densities for worker processes, which import this file: NumPy and nothing else."""

import os
import signal
import time
from pathlib import Path

import numpy as np


def quadratic(x):
    return -0.5 * float(x @ x)


def two_modes(x):
    return float(np.logaddexp(-0.5 * np.sum((x - 3) ** 2), -0.5 * np.sum((x + 3) ** 2)))


def slow(x):
    time.sleep(0.02)
    return -0.5 * float(x @ x)


def pid(x):
    """The worker's own number, as a value."""
    time.sleep(0.01)
    return float(os.getpid())


class KillsOnce:
    """Ends its process at the first call of all, which leaves a file behind."""

    def __init__(self, marker):
        self.marker = Path(marker)

    def __call__(self, x):
        if not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return -0.5 * float(x @ x)


def deadly(x):
    if x[0] > 90:
        os.kill(os.getpid(), signal.SIGKILL)
    return float(np.sum(x))


def imported():
    """What a worker has imported that it should not need."""
    import sys

    return [name for name in ("jax", "flowjax", "involutive") if name in sys.modules]

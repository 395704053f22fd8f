"""What a second process adds: `python -m involutive.bench.processes`.

Each process has one core to itself, joins a `jax.distributed` cluster on this machine and runs its
share of the chains of the paper's network. All compile first and then step for the same seconds.
The efficiency of n processes is their chain-steps a second over n times those of one on one core.
"""

import socket
import subprocess
import sys
from collections.abc import Sequence

from involutive.bench.speed import Rows

CHAINS = 1024  # of one process
SECONDS = 5.0  # that each number of processes is timed for
WORKER = """
import os, sys, time
number, count, port, chains, seconds = *map(int, sys.argv[1:5]), float(sys.argv[5])
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cores[number % len(cores)]})
import jax
jax.distributed.initialize(f"localhost:{port}", count, number)
from involutive.bench.speed import paper_kernel
from involutive.sampling.runner import Chains, width_for
share = range(number * chains, (number + 1) * chains)
key, block = jax.random.key(0), width_for(chains)
runner = Chains(paper_kernel(), key, share, capacity=125, block=block)
runner.start()
runner.advance(125)
print("ready", flush=True)
sys.stdin.readline()
began, steps = time.perf_counter(), 0
while time.perf_counter() - began < seconds:
    runner.advance(125)
    steps += 125
print(steps * chains / (time.perf_counter() - began), flush=True)
sys.stdin.readline()
"""


def with_processes(
    counts: Sequence[int] = (1, 2), chains: int = CHAINS, seconds: float = SECONDS
) -> Rows:
    """Chain-steps a second of so many processes together, and their efficiency."""
    rates = [_together(count, chains, seconds) for count in counts]
    alone = rates[0] / counts[0]
    return [
        {"processes": count, "chain-steps a second": rate, "efficiency": rate / (count * alone)}
        for count, rate in zip(counts, rates, strict=True)
    ]


def _together(count: int, chains: int, seconds: float) -> float:
    """The sum of the rates of `count` processes that begin to step at the same time."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, *map(str, (i, count, port, chains, seconds))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(count)
    ]
    try:
        for worker in workers:
            _answer(worker)
        _tell(workers)
        rate = sum(float(_answer(worker)) for worker in workers)
        _tell(workers)  # none leaves the cluster before all are done
        for worker in workers:
            worker.wait(timeout=60)
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()  # closes its pipes
    return rate


def _answer(worker: subprocess.Popen[str]) -> str:
    """The next line that a worker says; without one it has failed, and has said why."""
    line = worker.stdout.readline() if worker.stdout else ""
    if not line:
        raise RuntimeError(f"a worker ended with {worker.wait()}")
    return line


def _tell(workers: list[subprocess.Popen[str]]) -> None:
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()


def main() -> None:
    """Print the table in Markdown."""
    from involutive.core.text import markdown_table

    sys.stdout.write(markdown_table(with_processes()))


if __name__ == "__main__":
    main()

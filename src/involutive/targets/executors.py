"""Pools: rows of a NumPy density spread over the workers that a user has.

Anything with `submit` (`concurrent.futures`, `mpi4py.futures`, a Dask client), with `apply_async`
(`multiprocessing.Pool`), or with `map`. The function is sent to a worker with the first batch that
finds it missing there, and named by a token afterwards. Batches are taken as workers become free,
each as many rows as take `BATCH` seconds by what was measured. Every row is evaluated by itself, so
that results do not depend on how many workers there are.

A worker that dies loses the batches it held. They are sent again once; if a worker dies again, the
rows of lost batches are sent one at a time, and the row that kills its worker is named.
"""

import os
import pickle
import queue
import uuid
from collections import deque
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

from involutive.core.errors import InputError, check
from involutive.core.text import first_line
from involutive_worker import Batch, Density, Failure, keep, work, work_mapped

# Seconds that a batch should take, much more than it takes to send one: a batch costs the client
# and scheduler of Dask 5 ms of a core (CPU seconds of `python -m involutive.bench.pools`).
BATCH = 0.25
VECTOR = (
    64  # rows a batch of a vectorised function, always, so that rounding stays the same; a guess
)
AHEAD = 2  # batches a worker that are sent ahead, so that none waits for the next; a guess
LOOK = (
    1.0  # seconds between looks at whether processes of a multiprocessing.Pool have died; a guess
)
DIED = "its worker died"


@runtime_checkable
class HasSubmit(Protocol):
    """A pool of `concurrent.futures`, of `mpi4py.futures`, or a Dask client."""

    @property
    def submit(self) -> Callable[..., Any]: ...


@runtime_checkable
class HasApplyAsync(Protocol):
    """A pool of `multiprocessing`."""

    @property
    def apply_async(self) -> Callable[..., Any]: ...


@runtime_checkable
class HasMap(Protocol):
    """The minimal interface of a pool."""

    @property
    def map(self) -> Callable[..., Any]: ...


Executor = HasSubmit | HasApplyAsync | HasMap


@runtime_checkable
class Promise(Protocol):
    """A future of any of these pools."""

    def result(self) -> Any: ...

    def add_done_callback(self, fn: Callable[..., Any], /) -> object: ...


@dataclass(frozen=True)
class Task:
    """Rows to evaluate: how often they were lost, and whether the function goes with them."""

    places: np.ndarray
    lost: int = 0
    with_function: bool = False


class Pool:
    """Workers that evaluate a density.

    Args:
        executor: the user's pool.
        density: what to evaluate.
    """

    def __init__(self, executor: Executor, density: Density):
        self.executor, self.density = executor, density
        self.token, self._payload = uuid.uuid4().hex, None
        self.seconds: float | None = None  # a call, as measured on workers
        self.workers = 1  # as they were counted when rows came
        self._watched: list[Any] = []  # processes of a multiprocessing.Pool, at the last look
        self._way = way_of(executor)
        keep(self.token, density)  # for threads, and for processes forked from here

    def rows(self, points: np.ndarray, slopes: bool) -> Batch:
        """Evaluate every row."""
        width = 1 + (points.shape[1] if slopes else 0)
        self.workers = self.count()
        outputs, failures = np.full((len(points), width), np.nan), list[Failure]()
        run = _Run(self, points, slopes, outputs, failures)
        run.all_at_once() if self._way == "map" else run.as_completed()
        return Batch(outputs, sorted(failures), 0.0)

    def count(self) -> int:
        """How many workers there are now."""
        return count_of(self.executor)

    def size(self, left: int) -> int:
        """How many rows the next batch should have, of those left."""
        if self.density.vectorized:
            return VECTOR
        if self.seconds is None:
            return 1
        fair = -(-left // (AHEAD * self.workers))
        return max(1, min(round(BATCH / max(self.seconds, 1e-7)), fair))

    def measured(self, batch: Batch) -> None:
        """Take note of how long the calls of a batch took."""
        each = batch.seconds / max(len(batch.outputs), 1)
        self.seconds = each if self.seconds is None else 0.8 * self.seconds + 0.2 * each

    def payload(self) -> bytes:
        """The function as bytes, made once."""
        if self._payload is None:
            self._payload = pickled(self.density)
        return self._payload

    def submit(self, points: np.ndarray, slopes: bool, with_function: bool) -> Promise:
        """Send a batch; return its future."""
        arguments = (self.token, self.payload() if with_function else None, points, slopes)
        return submitted(self.executor, self._way, work, *arguments)

    def renew(self) -> None:
        """Make a new pool in the place of one of processes that a dead worker has broken."""
        broken = getattr(self.executor, "_broken", False)
        if not broken or not hasattr(self.executor, "_mp_context"):
            return
        old = cast(ProcessPoolExecutor, self.executor)
        self.executor = type(old)(
            old._max_workers,  # type: ignore[attr-defined]
            mp_context=old._mp_context, initializer=old._initializer,
            initargs=old._initargs,
        )  # fmt: skip

    def someone_died(self) -> bool:
        """Whether a process of a `multiprocessing.Pool` ended with an error since the last look."""
        if self._way != "apply_async":  # MPI's executor has a `_pool` of another kind
            return False
        now = list(getattr(self.executor, "_pool", ()))
        gone = [process for process in self._watched if process not in now]
        self._watched = now
        # a process that has made its maxtasksperchild calls ends with 0 and has lost nothing
        return any(process.exitcode != 0 for process in gone)


@dataclass
class _Run:
    """One evaluation of many rows."""

    pool: Pool
    points: np.ndarray
    slopes: bool
    outputs: np.ndarray
    failures: list[Failure]

    def all_at_once(self) -> None:
        """By `map`, which gives results in order."""
        tasks = [Task(part) for part in _cut(np.arange(len(self.points)), self.pool)]
        while tasks:
            send = [(self.pool.payload() if t.with_function else None, self.points[t.places])
                    for t in tasks]  # fmt: skip
            run = partial(work_mapped, self.pool.token, self.slopes)
            found = cast(HasMap, self.pool.executor).map(run, send)
            pairs = list(zip(tasks, found, strict=True))
            for task, batch in pairs:
                if batch is not None:
                    self._store(task, batch)
            tasks = [replace(task, with_function=True) for task, batch in pairs if batch is None]

    def as_completed(self) -> None:
        """By futures, each batch as a worker becomes free."""
        left, waiting = deque(range(len(self.points))), deque[Task]()
        held: dict[Promise, Task] = {}
        done: queue.SimpleQueue[Promise] = queue.SimpleQueue()
        most = AHEAD * self.pool.workers
        self.pool.someone_died()
        while left or waiting or held:
            alone = any(task.lost > 1 for task in held.values())
            while (left or waiting) and len(held) < most and not alone:
                task = waiting.popleft() if waiting else self._next(left)
                if task.lost > 1 and held:  # alone, to know which row it is
                    waiting.appendleft(task)
                    break
                alone = task.lost > 1
                self._send(task, held, done)
            try:
                future = done.get(timeout=LOOK)
            except queue.Empty:
                if self.pool.someone_died():
                    lost, held = list(held.values()), {}
                    waiting.extendleft(again for task in lost for again in self._lost(task))
                continue
            task = held.pop(future, None)
            if task is not None:
                waiting.extendleft(self._finish(future, task))

    def _next(self, left: deque[int]) -> Task:
        count = min(self.pool.size(len(left)), len(left))
        return Task(np.array([left.popleft() for _ in range(count)]))

    def _send(self, task: Task, held: dict[Promise, Task], done: queue.SimpleQueue) -> None:
        try:
            future = self.pool.submit(self.points[task.places], self.slopes, task.with_function)
        except BrokenExecutor:
            self.pool.renew()
            future = self.pool.submit(self.points[task.places], self.slopes, task.with_function)
        held[future] = task
        future.add_done_callback(done.put)

    def _finish(self, future: Promise, task: Task) -> list[Task]:
        """Keep what a batch gave; return what must be sent again."""
        try:
            batch = future.result()
        except Exception as error:
            if isinstance(error, BrokenExecutor) or type(error).__name__ == "KilledWorker":
                self.pool.renew()
                return self._lost(task)
            raise InputError(
                "the executor must run the density on its workers, but it raised "
                f"{type(error).__name__}: {first_line(error)}"
            ) from error
        if batch is None:
            return [replace(task, with_function=True)]
        self._store(task, batch)
        return []

    def _lost(self, task: Task) -> list[Task]:
        if task.lost > 1:
            self.failures.append(Failure(int(task.places[0]), DIED))
            return []
        parts = [task.places] if task.lost == 0 else np.split(task.places, len(task.places))
        return [Task(part, task.lost + 1, True) for part in parts]

    def _store(self, task: Task, batch: Batch) -> None:
        self.outputs[task.places] = batch.outputs
        self.failures += [Failure(int(task.places[f.row]), f.words) for f in batch.failures]
        self.pool.measured(batch)


def _cut(places: np.ndarray, pool: Pool) -> list[np.ndarray]:
    size = pool.size(len(places))
    return [places[i : i + size] for i in range(0, len(places), size)]


def way_of(executor: object) -> str:
    """How calls are sent to a pool: by `submit`, `apply_async` or `map`."""
    has = [name for name in ("submit", "apply_async", "map") if hasattr(executor, name)]
    check(
        has,
        "executor must have submit, apply_async or map, as concurrent.futures, "
        f"multiprocessing.Pool, Dask and mpi4py.futures have, got {type(executor).__name__}",
    )
    return has[0]


def count_of(executor: object) -> int:
    """How many workers a pool has now, as far as it says; Dask asks its scheduler."""
    for name in ("_max_workers", "_processes", "num_workers"):
        found = getattr(executor, name, None)
        if isinstance(found, int) and found > 0:
            return found
    ncores = getattr(executor, "ncores", None)  # of a Dask client, by worker
    if ncores is not None:
        return max(sum(ncores().values()), 1)
    return os.cpu_count() or 1


def submitted(
    executor: Executor, way: str, function: Callable[..., Any], *arguments: object
) -> Promise:
    """Send one call to a pool by `submit` or `apply_async`; return its future."""
    if way == "submit":
        dask = {"pure": False} if hasattr(executor, "scheduler_info") else {}
        return cast(HasSubmit, executor).submit(function, *arguments, **dask)
    future: Future = Future()
    cast(HasApplyAsync, executor).apply_async(
        function, arguments, callback=future.set_result, error_callback=future.set_exception
    )
    return future


def pickled(density: object, what: str = "a density") -> bytes:
    """A density as bytes: by cloudpickle where it is installed, which takes any function."""
    ways: list[Callable[[object], bytes]] = [pickle.dumps]
    try:
        import cloudpickle

        ways.insert(0, cloudpickle.dumps)
    except ImportError:
        pass
    problem = None
    for dumps in ways:
        try:
            return dumps(density)
        except Exception as error:
            problem = problem or error
    raise InputError(
        f"{what} must be picklable to be sent to worker processes, but pickling raised "
        f"{type(problem).__name__}: {first_line(problem or ValueError())}; define it at the top of "
        "a module, keep files and locks out of it, or use threads"
    ) from problem

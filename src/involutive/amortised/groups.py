"""Groups of data sets, one compiled call each: on cores, on devices, or on the workers of a pool.

Data set i uses the key `fold_in(root, i)` in a group of fixed size, so that its draws do not depend
on where the group was run.
"""

import os
import pickle
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key
from paramax import unwrap

from involutive._xla.compilation import on_device
from involutive.amortised.kernel import FamilyKernel
from involutive.amortised.layout import Observed
from involutive.amortised.program import Ran, Sizes, compiled_group, reference
from involutive.amortised.result import SetDraws
from involutive.amortised.settings import ManySettings
from involutive.amortised.verdict import SetVerdict, judged
from involutive.core.errors import InputError
from involutive.core.text import first_line
from involutive.sampling.interrupt import Interrupt
from involutive.storage.codec import Decoder, Encoder
from involutive.targets.executors import (
    Executor,
    HasMap,
    Promise,
    count_of,
    pickled,
    submitted,
    way_of,
)

Result = tuple[SetVerdict, SetDraws]
Finished = Iterator[tuple[list[int], list[Result]]]


class GroupTask(NamedTuple):
    """A group as it is sent to a worker, where the kernel is kept under its token."""

    token: str
    kernel: bytes
    data: Observed
    rows: np.ndarray
    key: np.ndarray
    impl: str
    sizes: Sizes
    count: int
    x64: bool


@dataclass(frozen=True)
class Groups:
    """Data sets to run in groups.

    Attributes:
        kernel: of the family.
        stacked: the data sets, padded, on the host.
        root: the key that those of the data sets come from.
        sizes: how much is done for each.
        devices: over which groups are spread, or None.
        executor: a pool on whose workers groups are run, or None for this process.
    """

    kernel: FamilyKernel
    stacked: Observed
    root: Key[Array, ""]
    sizes: Sizes
    devices: list[Any] | None
    executor: Executor | None = None

    def run(self, missing: list[int], stop: Interrupt) -> Finished:
        """The results of the missing data sets, group by group, in order."""
        size = self.sizes.settings.group
        parts = [missing[i : i + size] for i in range(0, len(missing), size)]
        if not parts:
            return
        if self.executor is not None:
            yield from self._away(parts, stop)
            return
        yield parts[0], self._here(0, parts[0])  # compiles alone, before the threads start
        workers = max(os.cpu_count() or 1, len(self.devices or []))
        with ThreadPoolExecutor(workers) as pool:
            send = lambda number, part: pool.submit(self._here, number, part)  # noqa: E731
            yield from _in_flight(send, parts, 1, workers, stop)

    def _here(self, number: int, part: list[int]) -> list[Result]:
        place = self.devices[number % len(self.devices)] if self.devices else None
        rows = np.resize(part, self.sizes.settings.group)
        return run_rows(
            self.kernel, self._data(rows), self.root, rows, len(part), self.sizes, place
        )

    def _data(self, rows: np.ndarray) -> Observed:
        return jax.tree.map(lambda leaf: leaf[rows], self.stacked)

    def _away(self, parts: list[list[int]], stop: Interrupt) -> Finished:
        """On the workers of a pool."""
        executor = self.executor
        assert executor is not None
        way, token = way_of(executor), uuid.uuid4().hex
        kernel = packed(self.kernel)
        tasks = (self._task(token, kernel, part) for part in parts)
        try:
            if way == "map":
                found = cast(HasMap, executor).map(work, tasks)
                yield from zip(parts, found, strict=True)
                return
            send = lambda number, part: submitted(  # noqa: E731
                executor, way, work, self._task(token, kernel, part)
            )
            yield from _in_flight(send, parts, 0, count_of(executor), stop)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                "the executor must run groups of data sets on its workers, but it raised "
                f"{type(error).__name__}: {first_line(error)}"
            ) from error

    def _task(self, token: str, kernel: bytes, part: list[int]) -> GroupTask:
        rows = np.resize(part, self.sizes.settings.group)
        key, impl = np.asarray(jr.key_data(self.root)), str(jr.key_impl(self.root))
        x64 = bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]
        data = jax.tree.map(np.asarray, self._data(rows))
        return GroupTask(token, kernel, data, rows, key, impl, self.sizes, len(part), x64)


def _in_flight(
    send: Callable[[int, list[int]], Promise],
    parts: list[list[int]],
    first: int,
    workers: int,
    stop: Interrupt,
) -> Finished:
    """Results in order, with one group per worker in flight and one waiting; none after a stop."""
    waiting: list[tuple[list[int], Promise]] = []
    for number in range(first, len(parts)):
        if stop.asked is not None:
            break
        waiting.append((parts[number], send(number, parts[number])))
        if len(waiting) > workers:
            part, future = waiting.pop(0)
            yield part, future.result()
    for part, future in waiting:
        yield part, future.result()


def run_rows(
    kernel: FamilyKernel,
    data: Observed,
    root: Key[Array, ""],
    rows: np.ndarray,
    count: int,
    sizes: Sizes,
    place: Any = None,
) -> list[Result]:
    """Run a group of data sets, numbered `rows`, and judge the first `count` of them."""
    keys = jax.vmap(jr.fold_in, (None, 0))(root, on_device(rows))
    law = reference(kernel, sizes.settings.wide)
    arguments = kernel, law, jax.tree.map(on_device, data), keys
    if place is not None:
        arrays, static = eqx.partition(arguments, eqx.is_array)
        arguments = eqx.combine(jax.device_put(arrays, place), static)
    ran = jax.tree.map(np.asarray, compiled_group(*arguments, sizes))
    factor = np.asarray(unwrap(kernel.estimator.white.factor), np.float64)
    scale = np.sqrt(np.sum(factor**2, axis=1))
    each = (jax.tree.map(lambda leaf, i=i: leaf[i], ran) for i in range(count))
    return [_result(one, scale, sizes.settings) for one in each]


def _result(ran: Ran, scale: np.ndarray, settings: ManySettings) -> Result:
    verdict, labels = judged(ran, scale, settings)
    of = np.asarray
    return verdict, SetDraws(
        of(ran.positions), of(ran.log_density), of(ran.accepted), of(ran.acceptance_rate),
        of(ran.nonfinite), labels.astype(np.int8),
    )  # fmt: skip


def packed(kernel: FamilyKernel) -> bytes:
    """A kernel as bytes: the network as data, since a pickled FlowJAX coupling cannot be used."""
    encode = Encoder()
    tree = encode({"estimator": kernel.estimator, "outcome": kernel.outcome})
    return pickled((kernel.family, tree, encode.arrays), "a family")


def unpacked(sent: bytes) -> FamilyKernel:
    """The kernel that `packed` described."""
    family, tree, arrays = pickle.loads(sent)
    parts = Decoder(arrays, None)(tree)
    return FamilyKernel(family, parts["estimator"], parts["outcome"])


_kernels: dict[str, FamilyKernel] = {}  # on a worker, by token: a kernel that is kept compiles once


def work(task: GroupTask) -> list[Result]:
    """Run a group on a worker."""
    if bool(jax.config.jax_enable_x64) != task.x64:  # type: ignore[attr-defined]
        jax.config.update("jax_enable_x64", task.x64)
    if task.token not in _kernels:
        _kernels[task.token] = unpacked(task.kernel)
    root = jr.wrap_key_data(on_device(task.key), impl=task.impl)
    kernel = _kernels[task.token]
    return run_rows(kernel, task.data, root, task.rows, task.count, task.sizes)

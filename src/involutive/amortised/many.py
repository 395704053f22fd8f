"""`sample_many`: chains for many data sets from one network, with one verdict each."""

import os
import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Key
from paramax import unwrap

from involutive._version import __version__
from involutive._xla.compilation import make_room, on_device
from involutive.amortised.folder import Folder, digest
from involutive.amortised.kernel import FamilyKernel
from involutive.amortised.layout import DataSet
from involutive.amortised.program import Ran, Sizes, compiled_group, reference
from involutive.amortised.relearn import relearned
from involutive.amortised.result import Many, SetDraws
from involutive.amortised.verdict import SetVerdict, judged
from involutive.core.errors import check, check_count
from involutive.core.keys import KeyLike, as_key
from involutive.core.types import Number
from involutive.learning.budget import Budget
from involutive.sampling.devices import share_of
from involutive.sampling.interrupt import TERMINATED, Interrupt
from involutive.sampling.progress import Progress
from involutive.storage.format import PathLike

GROUP = 16  # data sets per compiled call; a guess
LEAST_CHAINS, LEAST_DRAWS = 4, 16  # of each data set, below which nothing can be judged
Result = tuple[SetVerdict, SetDraws]


def sample_many(
    kernel: FamilyKernel,
    data_sets: Sequence[DataSet] | Array | np.ndarray,
    *,
    key: KeyLike,
    num_chains: int = 8,
    num_samples: int = 250,
    relearn: Budget | Number | None = None,
    folder: PathLike | None = None,
    resume: bool = False,
    mesh: Mesh | None = None,
    progress: bool | None = None,
) -> Many:
    """Sample the posterior of every data set with one network, and judge each.

    Args:
        kernel: what `amortise` returned.
        data_sets: a list of data sets that look like the family's others.
        key: an int seed or a JAX key; the draws of a data set depend on it and on its number.
        num_chains: chains of each data set; one in four starts from annealed particles instead of
            the proposal.
        num_samples: draws kept of each chain.
        relearn: seconds, or a `Budget`, that `learn` may take for each data set that failed, with
            the network's proposal as a start; by default those are only named.
        folder: a folder that results are written to group by group.
        resume: continue the run saved in `folder`, or begin one.
        mesh: devices to spread groups of data sets over. With several processes each runs a share
            of the data sets; call it again with `resume=True` to read all of them.
        progress: show progress; by default on a terminal.

    Returns:
        Draws, effective draws, evidence, mode weights and a verdict of every data set. Ctrl-C
        returns those that were finished.

    Raises:
        InputError: if an argument does not fit.

    Example:
        >>> import involutive as inv, jax.numpy as jnp, jax.random as jr
        >>> def log_likelihood(mu, data): return -0.5 * jnp.sum((data - mu) ** 2)
        >>> def simulate(key, mu): return mu + jr.normal(key, (5,))
        >>> parameters = inv.Parameters(mu=inv.Normal(0, 2))
        >>> family = inv.Family(log_likelihood, parameters, simulate=simulate)
        >>> small = inv.AmortiseSettings(steps=50, steps_density=0, width=16)
        >>> many = inv.amortise(family, key=0, settings=small, progress=False)
        >>> sets = [jnp.ones(5), jnp.zeros(5)]
        >>> found = inv.sample_many(many, sets, key=1, num_samples=20, progress=False)
        >>> len(found), found.positions(0).shape
        (2, (8, 20, 1))
    """
    given = type(kernel).__name__
    check(isinstance(kernel, FamilyKernel), f"kernel must come from inv.amortise, got {given}")
    root, data_sets = as_key(key), _as_list(data_sets)
    sizes = Sizes(
        check_count("num_chains", num_chains, LEAST_CHAINS),
        check_count("num_samples", num_samples, LEAST_DRAWS),
    )
    make_room()
    began = time.perf_counter()
    stacked = _stacked(kernel, data_sets)
    run = {
        "key": np.asarray(jr.key_data(root)).tolist(),
        "num_chains": num_chains,
        "num_samples": num_samples,
        "data sets": digest(stacked),
        "network": digest(eqx.filter(kernel.estimator, eqx.is_array)),
    }
    saved = Folder(folder, run, resume)
    results: dict[int, Result] = saved.read() if resume else {}
    count = len(data_sets)
    share = share_of(mesh, count, GROUP if count >= GROUP else 1)
    work = _Groups(kernel, stacked, root, sizes, share.devices)
    with Progress("sampling data sets", count, progress) as bar:
        stopped = _run(work, [i for i in share.ids if i not in results], results, saved, bar)
        if relearn is not None and not stopped:
            for i in (i for i in share.ids if i in results and _wanting(results[i][0])):
                bar.update(len(results), learning_again=f"data set {i}")
                key_i = jr.fold_in(root, count + i)
                results[i] = relearned(kernel, data_sets[i], results[i], key_i, sizes, relearn)
                saved.write(i, [results[i]])
    return Many(
        [results[i][0] if i in results else None for i in range(count)],
        [results[i][1] if i in results else None for i in range(count)],
        kernel.family, data_sets, time.perf_counter() - began,
        run | {"version": __version__, "interrupted": stopped},
    )  # fmt: skip


def _as_list(data_sets: Any) -> list[DataSet]:
    check(
        not isinstance(data_sets, dict) and hasattr(data_sets, "__len__"),
        f"data_sets must be a list of data sets, got {type(data_sets).__name__}; pass [data]",
    )
    check(len(data_sets) > 0, "data_sets must hold at least one data set, got none")
    return list(data_sets)


def _run(
    work: "_Groups", missing: list[int], results: dict[int, Result], saved: Folder, bar: Progress
) -> bool:
    """Add the results of the missing data sets group by group; whether Ctrl-C ended it."""
    with Interrupt(saved.path is not None) as stop:
        for numbers, found in work.run(missing, stop):
            results |= dict(zip(numbers, found, strict=True))
            for begin, part in _neighbours(numbers, found):
                saved.write(begin, part)
            failed = sum(not verdict.trusted for verdict, _ in results.values())
            bar.update(len(results), failed=failed)
    _say_stopped(stop.asked, saved, len(results))
    return stop.asked is not None


def _wanting(verdict: SetVerdict) -> bool:
    """Whether a data set has failed and was not learned by itself yet."""
    return not verdict.trusted and not verdict.learned


@dataclass(frozen=True)
class _Groups:
    """Groups of data sets, run side by side on the cores or devices."""

    kernel: FamilyKernel
    stacked: Any
    root: Key[Array, ""]
    sizes: Sizes
    devices: list[Any] | None

    def run(self, missing: list[int], stop: Interrupt) -> Iterator[tuple[list[int], list[Result]]]:
        """The results of the missing data sets, group by group, in order."""
        parts = [missing[i : i + GROUP] for i in range(0, len(missing), GROUP)]
        if not parts:
            return
        yield parts[0], self._group(0, parts[0])  # compiles alone, before the threads start
        workers = max(os.cpu_count() or 1, len(self.devices or []))
        with ThreadPoolExecutor(workers) as pool:
            waiting = {}
            for number, part in enumerate(parts[1:], 1):
                if stop.asked is not None:
                    break
                waiting[number] = (part, pool.submit(self._group, number, part))
                if len(waiting) > workers:
                    first = min(waiting)
                    part, future = waiting.pop(first)
                    yield part, future.result()
            for part, future in waiting.values():
                yield part, future.result()

    def _group(self, number: int, part: list[int]) -> list[Result]:
        rows = np.resize(part, GROUP)
        data = jax.tree.map(lambda leaf: on_device(leaf[rows]), self.stacked)
        keys = jax.vmap(jr.fold_in, (None, 0))(self.root, on_device(rows))
        arguments = self.kernel, reference(self.kernel), data, keys
        if self.devices:
            arrays, static = eqx.partition(arguments, eqx.is_array)
            place = self.devices[number % len(self.devices)]
            arguments = eqx.combine(jax.device_put(arrays, place), static)
        ran = jax.tree.map(np.asarray, compiled_group(*arguments, self.sizes))
        scale = np.asarray(unwrap(self.kernel.estimator.white.factor), np.float64)
        deviations = np.sqrt(np.sum(scale**2, axis=1))
        return [
            _result(jax.tree.map(lambda leaf, i=i: leaf[i], ran), deviations)
            for i in range(len(part))
        ]


def _result(ran: Ran, scale: np.ndarray) -> Result:
    verdict, labels = judged(ran, scale)
    return verdict, SetDraws(
        ran.positions, ran.log_density, ran.accepted, ran.acceptance_rate, ran.nonfinite,
        labels.astype(np.int8),
    )  # fmt: skip


def _stacked(kernel: FamilyKernel, data_sets: Any) -> Any:
    """The data sets, padded and stacked; one that does not fit is named by its number."""
    layout = kernel.family.layout
    for number, data in enumerate(data_sets):
        try:
            layout.arrays(data)
        except ValueError as error:
            raise type(error)(f"data set {number}: {error}") from error
    return layout.stacked(data_sets)


def _neighbours(numbers: list[int], found: list[Result]) -> Iterator[tuple[int, list[Result]]]:
    """Results in runs of neighbouring numbers: files name ranges."""
    begin = 0
    for i in range(1, len(numbers) + 1):
        if i == len(numbers) or numbers[i] != numbers[i - 1] + 1:
            yield numbers[begin], found[begin:i]
            begin = i


def _say_stopped(asked: int | None, saved: Folder, count: int) -> None:
    if asked is None:
        return
    if saved.path is not None:
        warnings.warn(
            f"{signal.Signals(asked).name}: {count} data sets are saved in {saved.path}; call "
            f"sample_many again with folder='{saved.path}', resume=True to continue",
            stacklevel=3,
        )
    if asked == signal.SIGTERM:
        raise SystemExit(TERMINATED)

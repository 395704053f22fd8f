"""`sample_many`: chains for many data sets from one network, with one verdict each."""

import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Key

from involutive._version import __version__
from involutive._xla.compilation import make_room
from involutive.amortised.family import as_list, checked
from involutive.amortised.folder import Folder, digest
from involutive.amortised.groups import Groups, Result
from involutive.amortised.kernel import FamilyKernel
from involutive.amortised.layout import DataSet, Observed
from involutive.amortised.program import Sizes
from involutive.amortised.relearn import relearned
from involutive.amortised.result import Many
from involutive.amortised.settings import ManySettings
from involutive.amortised.verdict import SetVerdict
from involutive.core.errors import check, check_count
from involutive.core.keys import KeyLike, as_key
from involutive.core.types import Number
from involutive.learning.budget import Budget
from involutive.sampling.devices import Share, share_of
from involutive.sampling.interrupt import TERMINATED, Interrupt
from involutive.sampling.progress import Progress
from involutive.storage.format import PathLike
from involutive.targets.executors import Executor, way_of


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
    executor: Executor | None = None,
    settings: ManySettings | None = None,
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
        relearn: seconds, or a `Budget`, for `learn` on each data set that failed, with the
            network's proposal as its start; by default failures are only listed.
        folder: a folder in which results are saved group by group.
        resume: continue the run saved in `folder`; if there is none, a run begins.
        mesh: devices to spread groups of data sets over. With several processes each runs a share
            of the data sets; call it again with `resume=True` to read all of them.
        executor: a pool whose worker processes run the groups: a Dask client, an executor of
            `concurrent.futures` or `mpi4py.futures`, or anything else that `Target` takes. Each
            worker imports this library; the draws are those that one process makes.
        settings: the work per data set and the thresholds of the verdict.
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
    root, data_sets = as_key(key), as_list("data_sets", data_sets)
    sizes = _sizes(num_chains, num_samples, settings or ManySettings())
    share = _share(mesh, executor, len(data_sets), sizes.settings.group)
    checked(kernel.family.layout, data_sets)
    make_room()
    began = time.perf_counter()
    stacked = kernel.family.layout.stacked(data_sets)
    run = _described(kernel, stacked, root, sizes)
    saved = Folder(folder, run, resume)
    results: dict[int, Result] = saved.read() if resume else {}
    work = Groups(kernel, stacked, root, sizes, share.devices, executor)
    with Progress("sampling data sets", len(data_sets), progress) as bar:
        stopped = _run(work, [i for i in share.ids if i not in results], results, saved, bar)
        if relearn is not None and not stopped:
            for i, found in _relearned(work, data_sets, share.ids, results, relearn):
                bar.update(len(results), learned_again=f"data set {i}")
                results[i] = found
                saved.write(i, [found])
    pairs = [results.get(i, (None, None)) for i in range(len(data_sets))]
    return Many(
        [verdict for verdict, _ in pairs], [draws for _, draws in pairs], kernel.family, data_sets,
        time.perf_counter() - began, run | {"version": __version__, "interrupted": stopped},
    )  # fmt: skip


def _sizes(num_chains: int, num_samples: int, settings: ManySettings) -> Sizes:
    return Sizes(
        check_count("num_chains", num_chains, settings.least_chains),
        check_count("num_samples", num_samples, settings.least_draws),
        settings,
    )


def _share(mesh: Mesh | None, executor: Executor | None, count: int, group: int) -> Share:
    """Which data sets this process runs: all of them where a pool does the work."""
    if executor is None:
        return share_of(mesh, count, group if count >= group else 1)
    way_of(executor)  # refuses what is no pool
    check(mesh is None, "data sets are spread over a mesh or an executor, got both; choose one")
    return Share(range(count), None, 1, group)


def _described(
    kernel: FamilyKernel, stacked: Observed, root: Key[Array, ""], sizes: Sizes
) -> dict[str, Any]:
    """What run this is, to recognise it in a folder."""
    return {
        "key": np.asarray(jr.key_data(root)).tolist(),
        "num_chains": sizes.chains,
        "num_samples": sizes.draws,
        "settings": repr(sizes.settings),
        "data sets": digest(stacked),
        "network": digest(eqx.filter(kernel.estimator, eqx.is_array)),
    }


def _relearned(
    work: Groups,
    data_sets: Sequence[DataSet],
    ids: Sequence[int],
    results: dict[int, Result],
    budget: Budget | Number,
) -> Iterator[tuple[int, Result]]:
    """Learn those of the data sets `ids` that failed, one by one in this process."""
    for i in [i for i in ids if i in results and _wanting(results[i][0])]:
        key = jr.fold_in(work.root, len(data_sets) + i)
        yield i, relearned(work.kernel, data_sets[i], results[i], key, work.sizes, budget)


def _run(
    work: Groups, missing: list[int], results: dict[int, Result], saved: Folder, bar: Progress
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

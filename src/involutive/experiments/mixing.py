"""The paper's network trained to mix: effective draws in stationarity, convergence from X.

The paper's network (state and auxiliary 32 coordinates together) is trained from scratch by a
critic of pairs on raw proposals and the acceptance ratio, without any likelihood step, on mog6,
mog2_1d, ring5 and five modes in six dimensions: of several networks that are trained briefly, the
one with the most effective draws on held-out draws is trained on, and its time is that of all. On
mog6 also a function block with a learned mixture for π by the same objective, and A-NICE-MC for the
time that the paper's network took. Time is that of the processor, compilation included: a machine
that is busy with other work favours nobody.

Every trained kernel is saved with its metrics in the folder `trained` of the result, and a run
takes up what it finds there: a run that was ended goes on with the next seed. With `--quick` only
mog6 is trained, once and for less time.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution

from involutive import targets
from involutive.experiments.measures import exact, from_start, single_precision, stationary
from involutive.experiments.members import (
    FOREVER,
    LEARNED,
    OURS,
    PEER,
    TITLES,
    Trainer,
    trainer_of,
    width_of,
)
from involutive.experiments.mixing_page import SHOWN, claims, draw, table
from involutive.kernel.kernel import AbstractKernel
from involutive.sampling.progress import Progress, hidden
from involutive.storage.save_load import save
from involutive.targets.target import Target

__all__ = ["Config", "claims", "draw", "run", "table"]

MODES_6D = 3.0 * np.random.default_rng(6).normal(size=(5, 6))  # centres of the mixture of our own
WEIGHTS_6D = (0.3, 0.25, 0.2, 0.15, 0.1)  # and their weights


def five_modes() -> Target:
    """Five unit Gaussians of unequal weights in six dimensions, centres drawn from N(0, 9 I)."""
    return targets.mixture(MODES_6D, WEIGHTS_6D, name="five_modes")


MAKERS = {
    "mog6": targets.mog6,
    "mog2_1d": targets.mog2_1d,
    "ring5": targets.ring5,
    "five_modes": five_modes,
}


@dataclass(frozen=True)
class Config:
    """What is trained, and for how long.

    Attributes:
        jobs: targets and members, each trained from every seed; the peer is listed after the
            member whose training time it gets.
        seeds: how many seeds.
        steps: generator steps of each job.
        restarts, brief: networks of the paper's kind that are trained briefly, and the steps of
            each, before the best is trained on; they are among `steps`.
        chains, walk: chains from X and their steps.
        draws: draws of each of 64 chains in stationarity.
        training_draws: exact draws that a training sees.
        seed: the first seed.
    """

    jobs: tuple[tuple[str, str], ...] = (
        ("mog6", OURS), ("mog6", PEER), ("mog6", LEARNED),
        ("mog2_1d", OURS), ("ring5", OURS), ("five_modes", OURS),
    )  # fmt: skip
    seeds: int = 5
    steps: tuple[int, ...] = (60_000, FOREVER, 10_000, 40_000, 60_000, 30_000)
    restarts: int = 4
    brief: int = 2500
    chains: int = 8192
    walk: int = 10
    draws: int = 1000
    training_draws: int = 50_000
    seed: int = 0

    @staticmethod
    def quick() -> "Config":
        """The paper's network on mog6, once."""
        return Config(
            (("mog6", OURS),), 1, (10_000,), restarts=2, chains=4096, training_draws=20_000
        )


class Job(NamedTuple):
    """One training: a target, a member, a seed and its generator steps."""

    target: str
    member: str
    seed: int
    steps: int

    @property
    def name(self) -> str:
        """The file its metrics are saved under."""
        length = "" if self.steps == FOREVER else f"-{self.steps}"
        return f"{self.target}-{self.member}-{self.seed}{length}"


def run(config: Config, folder: Path | None = None) -> Iterator[dict[str, Any]]:
    """Train every job that `folder` has no result of, and yield the metrics of all that ended.

    What an earlier run saved comes first and together, so its page is there at once.
    """
    seeds = range(config.seed, config.seed + config.seeds)
    plan = [
        [Job(target, member, seed, steps) for seed in seeds]
        for (target, member), steps in zip(config.jobs, config.steps, strict=True)
    ]
    with single_precision():
        work = _Work(config, folder)
        found = {job: work.known(job) for jobs in plan for job in jobs}
        if any(found.values()):
            yield _joined(list(found.values()))
        for jobs in plan:
            missing = [job for job in jobs if found[job] is None]
            for job, result in zip(missing, work.each(missing, found), strict=True):
                found[job] = result
                yield _joined(list(found.values()))
            jax.clear_caches()  # another target is another program


class _Work:
    """Trains and measures jobs, and remembers them in a folder."""

    def __init__(self, config: Config, folder: Path | None):
        self.config, self.folder = config, None if folder is None else folder / "trained"
        if self.folder is not None:
            self.folder.mkdir(exist_ok=True)

    def each(self, jobs: list[Job], found: dict[Job, Any]) -> Iterator[dict[str, Any]]:
        """The results of jobs of one target and member; the target and objective are shared."""
        if not jobs:
            return
        name, member, _, steps = jobs[0]
        target = MAKERS[name]()
        scale = width_of(target)
        trainer = trainer_of(member, target, steps, scale, self.config.restarts, self.config.brief)
        with Progress(f"{TITLES[member]} on {name}", len(jobs)) as bar:
            for number, job in enumerate(jobs):
                limit = _seconds_of(job, found) if member == PEER else np.inf
                with hidden():
                    result = self.made(job, target, trainer, limit)
                bar.update(number + 1)
                yield result

    def known(self, job: Job) -> dict[str, Any] | None:
        """What an earlier run saved of this job."""
        path = None if self.folder is None else self.folder / f"{job.name}.npz"
        if path is None or not path.is_file():
            return None
        with np.load(path, allow_pickle=False) as arrays:
            return {key: arrays[key] for key in arrays.files}

    def made(self, job: Job, target: Target, trainer: Trainer, limit: float) -> dict[str, Any]:
        """Train for at most `limit` seconds, measure, save."""
        config = self.config
        keys = jr.split(jr.fold_in(jr.key(job.seed), list(MAKERS).index(job.target)), 4)
        key_data, key_train, key_walk, key_run = keys
        samples = exact(target, key_data, config.training_draws)
        began = time.process_time()
        done = trainer(samples, key_train, lambda: time.process_time() - began > limit)
        seconds = time.process_time() - began
        walk = from_start(done.kernel, _start(done.kernel), key_walk, config.chains, config.walk)
        states = walk.pop("positions")[:, [s for s in SHOWN if s <= config.walk]]
        steps = done.history[-1]["step"] if job.steps == FOREVER else job.steps
        result = walk | stationary(done.kernel, key_run, config.draws)
        result |= {"seconds": seconds, "trained_steps": steps, **_named(job)}
        if job.target == "mog6" and job.seed == config.seed:
            result["states"] = states.astype(np.float32)
        if self.folder is not None:
            save(self.folder / f"{job.name}.inv", done.kernel)
            np.savez_compressed(self.folder / f"{job.name}.npz", allow_pickle=False, **result)
        return result


def _seconds_of(peer: Job, found: dict[Job, Any]) -> float:
    """The time that the paper's network took on the peer's target, from the same seed."""
    same = (peer.target, OURS, peer.seed)
    return next(float(row["seconds"]) for job, row in found.items() if row and job[:3] == same)


def _named(job: Job) -> dict[str, Any]:
    return {"target": job.target, "member": job.member, "seed": job.seed}


def _start(kernel: AbstractKernel) -> AbstractDistribution:
    assert kernel.initial is not None
    return kernel.initial


def _joined(results: list[dict[str, Any] | None]) -> dict[str, Any]:
    """One array per metric over all results there are, and the states that are drawn."""
    found = [row for row in results if row is not None]
    names = [name for name in found[0] if name != "states"]
    data: dict[str, Any] = {name: np.array([row[name] for row in found]) for name in names}
    for row in found:
        if "states" in row:
            data[f"states {row['member']}"] = row["states"]
    return data

"""Convergence on mog6 from N(0, I): the paper's training beside A-NICE-MC (Figures 3 and 5).

Algorithm 1 exactly as printed, over a small grid of clamp and rate, the other members of its family
(`members.py`) and A-NICE-MC are trained from the same exact draws, each from every seed and for as
many rollouts as the config says; `learn`, which is no critic, stands beside them. Each then runs
from X for ten steps, and in stationarity from exact draws, because acceptance from X says nothing
about mixing. The table prints what each was given: rollouts, and time beside the first member's.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import Any

import jax.random as jr
import numpy as np
from jaxtyping import Array

from involutive.core.errors import check, check_count
from involutive.core.types import Figure
from involutive.experiments.measures import (
    exact,
    from_start,
    mean_and_error,
    single_precision,
    stationary,
)
from involutive.experiments.members import (
    AI,
    DEFAULT,
    FAMILY,
    FOREVER,
    GRID,
    OURS,
    PEER,
    PRINTED,
    TITLES,
    first_law,
    kernel_of,
    objective_of,
    printed_name,
    train,
    width_of,
)
from involutive.kernel.kernel import AbstractKernel
from involutive.learning.learn import learn
from involutive.plotting.panels import density_image, panels, style
from involutive.sampling.progress import Progress, hidden
from involutive.targets.benchmarks import mog6
from involutive.training.objective import AbstractObjective

SHOWN = (0, 1, 2, 3)  # steps whose states are drawn
FEWEST = 3  # seeds from which a standard error, and so a claim, is taken
ALL = (OURS, PEER, AI, *(printed_name(*each) for each in GRID), *FAMILY[:-1], DEFAULT)


@dataclass(frozen=True)
class Config:
    """How long each member trains and how much is run.

    Attributes:
        members: which are trained; the first is what the others are compared with.
        rollouts: that each member's generator and critics see in all; steps follow from it.
        seeds: how many seeds every member is trained from.
        seconds: the most wall time of a training; None for no limit.
        chains: chains from X, and states in each picture.
        steps: steps from X.
        draws: draws of each of 64 chains in stationarity.
        training_draws: exact draws that all learn from.
        batch: rollouts per update, of every member but A-NICE-MC, which has its own.
        seed: of everything.
    """

    members: tuple[str, ...] = ALL
    rollouts: int = 10_000_000
    seeds: int = 5
    seconds: float | None = None
    chains: int = 16_384
    steps: int = 10
    draws: int = 1000
    training_draws: int = 20_000
    batch: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("steps", self.steps, least=SHOWN[-1])
        for name in ("rollouts", "chains", "draws", "seeds"):
            check_count(name, getattr(self, name))
        check(
            set(ALL) >= set(self.members) and self.members,
            f"members must be some of {ALL}, got {self.members}",
        )

    @staticmethod
    def quick() -> "Config":
        """Three members, 20 seconds each, one seed: pictures, and no claims."""
        members = (OURS, PEER, printed_name(0.1, 5e-4))
        return Config(members, FOREVER, 1, 20.0, chains=1024, draws=100, training_draws=4000)

    def updates(self, name: str) -> int:
        """Generator steps of a member: each makes `critic_steps + 1` batches of rollouts."""
        made = objective_of(name, 1, 1.0, self.batch).config  # type: ignore[attr-defined]
        kinds = 3 if name == PEER else 1 + (0 < getattr(made, "balance", 0) < 1)
        return max(self.rollouts // (made.batch * kinds * (made.critic_steps + 1)), 1)


def run(config: Config) -> Iterator[dict[str, Any]]:
    """Train each member and yield the metrics, from X and in stationarity, of those that ended."""
    with single_precision():
        key_data, key_truth, key_members = jr.split(jr.key(config.seed), 3)
        samples = exact(mog6(), key_data, config.training_draws)
        known = {"states truth": exact(mog6(), key_truth, config.chains)}
        jobs = [
            (name, jr.fold_in(jr.fold_in(key_members, ALL.index(name)), seed))
            for seed in range(config.seeds)
            for name in config.members
        ]
        for found in _all_metrics(jobs, config, samples):
            yield known | _joined([name for name, _ in jobs[: len(found)]], found)


def _joined(names: list[str], found: list[dict[str, Any]]) -> dict[str, Any]:
    """Arrays over all trainings that ended, and the states of each member's first seed."""
    data: dict[str, Any] = {"member": np.array(names)}
    for name, row in zip(names, found, strict=True):
        data.setdefault(f"states {name}", row["states"])
    plain = [key for key in found[0] if key != "states"]
    return data | {key: np.array([row[key] for row in found]) for key in plain}


def _all_metrics(
    jobs: list[tuple[str, Array]], config: Config, samples: np.ndarray
) -> Iterator[list[dict[str, Any]]]:
    """Train and run every job, two at a time: one alone leaves half of two cores idle.

    An end from outside ends the trainings that have begun with their next chunk.
    """
    target, scale, stop, found = mog6(), width_of(mog6()), Event(), []
    # one object for all seeds of a member, and so one program
    objectives = {
        name: objective_of(name, config.updates(name), scale, config.batch)
        for name in config.members
        if name != DEFAULT
    }

    def work(job: tuple[str, Array]) -> dict[str, Any]:
        name, key = job
        key_train, key_walk, key_run = jr.split(key, 3)
        with hidden():
            if name == DEFAULT:
                kernel: AbstractKernel = learn(
                    target, key=key_train, samples=samples, initial=first_law()
                )
                training = {"seconds": kernel.outcome.seconds, "updates": 0, "rollouts": 0}
            else:
                objective = objectives[name]
                kernel, training = _trained(
                    name, objective, config, samples, key_train, stop.is_set, scale
                )
        walk = from_start(kernel, first_law(), key_walk, config.chains, config.steps)
        states = walk.pop("positions")[:, SHOWN].astype(np.float32)
        return walk | stationary(kernel, key_run, config.draws) | training | {"states": states}

    with Progress("members", len(jobs)) as bar, ThreadPoolExecutor(2) as pool:
        try:
            for row in pool.map(work, jobs):
                found.append(row)
                bar.update(len(found))
                yield found
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _trained(
    name: str,
    objective: AbstractObjective,
    config: Config,
    samples: np.ndarray,
    key: Array,
    spent: Callable[[], bool],
    scale: float,
) -> tuple[AbstractKernel, dict[str, Any]]:
    key_network, key_fit = jr.split(key)
    updates, kernel = config.updates(name), kernel_of(name, mog6(), key_network, scale)
    done = train(name, objective, kernel, samples, key_fit, updates, config.seconds, spent)
    last = done.history[-1]
    share = last["step"] / updates
    rollouts = share * (config.rollouts if config.seconds is None else np.nan)
    return done.kernel, {
        "seconds": last["seconds"],
        "updates": int(last["step"]),
        "rollouts": rollouts,
    }


def table(data: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per member: the mean over seeds, and its standard error where it decides."""
    names = list(dict.fromkeys(map(str, data["member"])))
    first = float(np.mean(_of(data, names[0], "seconds")))
    return [_row(name, data, first) for name in names]


def _row(name: str, data: dict[str, Any], first: float) -> dict[str, Any]:
    ess = _of(data, name, "ess")
    ratio = _of(data, name, "energy") / _of(data, name, "energy_floor")[:, None]
    nll, seconds = _of(data, name, "nll"), float(np.mean(_of(data, name, "seconds")))
    return {
        "member": TITLES.get(name, name),
        "seeds": len(ess),
        "ESS per draw": ess.mean(),
        "± s.e.": mean_and_error(ess)[1] if len(ess) > 1 else "",
        "stationary acceptance": _of(data, name, "stationary_acceptance").mean(),
        "|autocorrelation| lag 1": _of(data, name, "autocorrelation")[:, 0].mean(),
        "lag 10": _of(data, name, "autocorrelation")[:, 1].mean(),
        "acceptance from X": _of(data, name, "acceptance")[:, 0].mean(),
        "energy / floor, 1 step": ratio[:, 1].mean(),
        "3 steps": ratio[:, 3].mean(),
        "last step": ratio[:, -1].mean(),
        "NLL - exact, 1 step": nll[:, 1].mean(),
        "NLL, last step": nll[:, -1].mean(),
        "variance ratio, last step": _of(data, name, "variance_ratio")[:, -1].mean(),
        "mode weights (TV), last step": _of(data, name, "total_variation")[:, -1].mean(),
        "generator steps": int(_of(data, name, "updates").max()),
        "seconds": seconds,
        "time / first member": seconds / first,
    }


def _of(data: dict[str, Any], name: str, metric: str) -> np.ndarray:
    return data[metric][data["member"] == name]


def claims(data: dict[str, Any]) -> dict[str, bool]:
    """Claims with a margin of two standard errors over seeds; none where seeds are too few."""
    names = set(map(str, data["member"]))
    if OURS not in names or len(_of(data, OURS, "ess")) < FEWEST:
        return {}
    found = {
        f"more effective draws per draw than {TITLES.get(name, name)}": _above(data, "ess", name)
        for name in names - {OURS, DEFAULT}
    }
    if PEER in names:
        found["smaller energy distance than A-NICE-MC at every step from 1"] = _above(
            data, "energy", PEER, sign=-1.0
        )
        found["more first proposals from X accepted than A-NICE-MC"] = _above(
            data, "acceptance", PEER, first=True
        )
    return {claim: bool(holds) for claim, holds in sorted(found.items())}


def _above(
    data: dict[str, Any], metric: str, name: str, sign: float = 1.0, first: bool = False
) -> bool:
    """Whether OURS is above (below, for sign -1) another member by two standard errors."""
    ours, other = (_of(data, each, metric) for each in (OURS, name))
    if len(other) < FEWEST:
        return False
    if ours.ndim > 1:
        columns = slice(0, 1) if first else slice(1, None)
        ours, other = ours[:, columns], other[:, columns]
    (a, a_error), (b, b_error) = (mean_and_error(each.T) for each in (ours, other))
    return bool(np.all(sign * (a - b) > 2 * np.hypot(a_error, b_error)))


def draw(data: dict[str, Any]) -> dict[str, Figure]:
    """Figure 3, states after 0 to 3 steps, and Figure 5, NLL and energy distance by steps."""
    names = list(dict.fromkeys(map(str, data["member"])))
    printed = [name for name in names if name.startswith(PRINTED)]
    rows = [name for name in (OURS, PEER, *printed[-1:], DEFAULT) if name in names]
    states, axes = panels(len(rows), len(SHOWN) + 1, (10.0, 2.2 * len(rows)))
    for row, name in zip(axes, rows, strict=True):
        pictures = [*np.moveaxis(data[f"states {name}"], 1, 0), data["states truth"]]
        for axis, points in zip(row, pictures, strict=True):
            density_image(axis, points, 8.0)
        row[0].set_ylabel(_title(name), fontsize=8)
    for axis, step in zip(axes[-1], SHOWN, strict=False):
        axis.set_xlabel("1 step" if step == 1 else f"{step} steps")
    axes[-1, -1].set_xlabel("exact draws")
    states.suptitle("Square root of counts, each panel on its own grey scale; |x|, |y| < 8")
    lines, ((nll, energy),) = panels(1, 2, (10.0, 4.2))
    steps = np.arange(data["nll"].shape[1])
    for i, name in enumerate(names):
        nll.plot(steps, _of(data, name, "nll").mean(axis=0), label=_title(name), **style(i))
        energy.plot(steps, _of(data, name, "energy").mean(axis=0), **style(i))
    nll.axhline(0.0, color="#666666", linewidth=0.8)
    energy.axhline(data["energy_floor"].mean(), color="#666666", linewidth=0.8)
    nll.set(xlabel="steps from X", ylabel="NLL above its exact mean (nats); 0 is exact")
    nll.set_yscale("symlog", linthresh=0.1)
    energy.set(xlabel="steps from X", ylabel="energy distance (line: exact draws)", yscale="log")
    lines.legend(*nll.get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=7)
    return {"states": states, "likelihood": lines}


def _title(name: str) -> str:
    return TITLES.get(name, name.replace(PRINTED, "Algorithm 1,"))

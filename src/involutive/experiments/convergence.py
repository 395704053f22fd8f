"""Convergence on mog6 from N(0, I): the paper's training beside A-NICE-MC (Figures 3 and 5).

The paper's network is trained by members of the paper's own family, A-NICE-MC by its own training,
all from the same exact draws:

    lambda=1         from X, and from where chains from X are: the paper's recipe with what works
    lambda<1         both terms, one critic of states
    pairwise         moves from the target only, judged by a critic of pairs
    combined         both terms, the second judged by a critic of pairs
    likelihood       of a permutation block conjugated by couplings; then a little of combined
    a-nice-mc        forward rollouts, a critic of pairs
    default recipe   `learn`, no critic

Each then runs from X for ten steps: acceptance, the share of states within 3 sd of a mode, the
negative log likelihood against its exact mean; and from exact draws, for acceptance and effective
draws in stationarity, because acceptance from X says nothing about mixing. The first is trained
again from other seeds, to see whether training ever dies.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import Any

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from involutive.core.errors import check, check_count
from involutive.diagnostics.metrics import ess_per_draw
from involutive.experiments.measures import single_precision
from involutive.experiments.members import (
    DEFAULT,
    FIRST,
    MEMBERS,
    PAPER,
    PEER,
    first_law,
    objective_of,
    train,
)
from involutive.kernel.kernel import AbstractKernel
from involutive.learning.learn import learn
from involutive.plotting.panels import density_image, panels, style
from involutive.sampling.progress import Progress, hidden
from involutive.sampling.runner import Chains
from involutive.sampling.sample import sample
from involutive.targets.benchmarks import mog6
from involutive.training.objective import AbstractObjective

RADIUS, SD, NEAR = 5.0, 0.5, 3.0
SHOWN = (0, 1, 2, 3)  # steps whose states are kept for the picture
LOG_CONSTANT = np.log(2 * np.pi * SD**2)  # of the Gaussians; the target's log density lacks it


@dataclass(frozen=True)
class Config:
    """How long each member trains and how much is run.

    Attributes:
        members: which are trained: lambda=1 first, a-nice-mc, and any others.
        train_steps: generator steps of lambda=1.
        family_steps: generator steps of the other members of the paper's family.
        a_nice_steps: generator steps of A-NICE-MC.
        repeats: how many seeds lambda=1 is trained from in all.
        seconds: the most wall time each member may train.
        chains: chains from X, and states in each picture.
        steps: steps from X.
        draws: draws of each of 64 chains in stationarity.
        training_draws: exact draws that all learn from.
        batch: chains a rollout of lambda=1.
        rollout: b of lambda=1; with `every` None, a b of 1 learns nothing about states that missed.
        every: of how many rollouts of lambda=1 one begins where a chain is that runs beside them.
        critic_depth: hidden layers of the critic of lambda=1; the paper has one.
        goals: of lambda=1: acceptance from X, share near a mode after one and after three steps.
        seed: of everything.
    """

    members: tuple[str, ...] = MEMBERS
    train_steps: int = 16_000
    family_steps: int = 6_000
    a_nice_steps: int = 6_000
    repeats: int = 5
    seconds: float | None = None
    chains: int = 32_768
    steps: int = 10
    draws: int = 1000
    training_draws: int = 20_000
    batch: int = 512
    rollout: int = 3
    every: int | None = 4
    critic_depth: int = 2
    goals: tuple[float, float, float] = (0.95, 0.92, 0.96)
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("steps", self.steps, least=SHOWN[-1])
        for name in ("train_steps", "family_steps", "a_nice_steps", "chains", "draws", "repeats"):
            check_count(name, getattr(self, name))
        known = set(MEMBERS) >= set(self.members) >= {PEER} and self.members[0] == PAPER
        check(
            known,
            f"members must be {PAPER} first, {PEER}, and others of {MEMBERS}, got {self.members}",
        )

    @staticmethod
    def quick() -> "Config":
        """Two members, trained just long enough for the paper's claims to be seen."""
        return Config(
            (PAPER, PEER), train_steps=1500, family_steps=1, a_nice_steps=100, repeats=1,
            chains=1024, draws=100, training_draws=4000, batch=256, rollout=1, every=None,
            critic_depth=1, goals=(0.8, 0.4, 0.6),
        )  # fmt: skip


def run(config: Config) -> Iterator[dict[str, Any]]:
    """Train each member and yield the figures, from X and in stationarity, of those that ended."""
    with single_precision():
        key_data, key_truth, key_members, key_repeats = jr.split(jr.key(config.seed), 4)
        exact: Any = mog6().sample
        samples = exact(key_data, config.training_draws)
        fresh = exact(jr.fold_in(key_truth, 1), 100_000)
        known = {
            "goals": np.array(config.goals),
            "states truth": np.asarray(exact(key_truth, config.chains)),
            "true_nll": LOG_CONSTANT - float(np.mean(jax.vmap(mog6().log_density)(fresh))),
        }
        jobs = [(name, jr.fold_in(key_members, MEMBERS.index(name))) for name in config.members]
        jobs += [(PAPER, jr.fold_in(key_repeats, number)) for number in range(1, config.repeats)]
        for found in _all_figures(jobs, config, samples):
            yield known | _joined(config.members[: len(found)], found)


def _joined(names: tuple[str, ...], found: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of members, and of all seeds of lambda=1: the first and those that follow."""
    rows, others = found[: len(names)], found[len(names) :]
    plain = [{key: row[key] for key in row if key != "states"} for row in found]
    data: dict[str, Any] = {"members": np.array(names)}
    data |= {f"states {name}": row["states"] for name, row in zip(names, rows, strict=True)}
    for prefix, part in (("", plain[: len(rows)]), ("seeds ", [plain[0], *plain[len(rows) :]])):
        data |= {f"{prefix}{key}": np.array([row[key] for row in part]) for key in part[0]}
    assert len(data["seeds near"]) == 1 + len(others)
    return data


def _all_figures(
    jobs: list[tuple[str, Array]], config: Config, samples: Array
) -> Iterator[list[dict[str, Any]]]:
    """Train and run every job, two at a time: one alone leaves half of two cores idle.

    An end from outside ends the trainings that have begun with their next chunk.
    """
    objectives = {name: objective_of(name, config) for name, _ in jobs}  # one object, one program
    stop, found = Event(), []

    def work(job: tuple[str, Array]) -> dict[str, Any]:
        with hidden():
            return _figures(job[0], objectives[job[0]], config, samples, job[1], stop.is_set)

    with Progress("members", len(jobs)) as bar, ThreadPoolExecutor(2) as pool:
        try:
            for row in pool.map(work, jobs):
                found.append(row)
                bar.update(len(found))
                yield found
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _figures(
    name: str,
    objective: AbstractObjective | None,
    config: Config,
    samples: Array,
    key: Array,
    spent: Callable[[], bool],
) -> dict[str, Any]:
    key_train, key_start, key_from, key_chain = jr.split(key, 4)
    exact: Any = mog6().sample
    if objective is None:
        kernel: AbstractKernel = learn(mog6(), key=key_train, samples=samples, initial=first_law())
        training = {"seconds": kernel.outcome.seconds, "trained_steps": 0, "best_step": 0}
        training |= {"dead": not kernel.outcome.converged}
    else:
        done = train(name, objective, config, samples, key_train, spent)
        kernel, last = done.kernel, done.history[-1]
        training = {"seconds": last["seconds"], "trained_steps": last["step"]}
        training |= {
            "best_step": last["step"] if name in (PAPER, FIRST) else done.best["step"],
            "dead": done.diverged is not None,
        }
    walk = _from_start(kernel, config, key_from)
    return walk | _stationary(kernel, config, exact(key_start, 64), key_chain) | training


def table(data: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a member, then one for every other seed of lambda=1."""
    members = [_row(str(name), data, "", i) for i, name in enumerate(data["members"])]
    count = len(data["seeds near"])
    return members + [_row(f"{PAPER}, seed {i + 1}", data, "seeds ", i) for i in range(1, count)]


def _row(name: str, data: dict[str, Any], prefix: str, i: int) -> dict[str, Any]:
    near, nll = data[f"{prefix}near"][i], data[f"{prefix}nll"][i] - data["true_nll"]
    return {
        "member": name,
        "acceptance from X": data[f"{prefix}acceptance"][i, 0],
        "near a mode, 1 step": near[0],
        "3 steps": near[2],
        f"{near.size} steps": near[-1],
        "NLL above exact, 1 step": nll[0],
        "NLL, 3 steps": nll[2],
        f"NLL, {nll.size} steps": nll[-1],
        "stationary acceptance": data[f"{prefix}stationary_acceptance"][i],
        "ESS per draw": data[f"{prefix}ess"][i],
        "generator steps": int(data[f"{prefix}trained_steps"][i]),
        "kept at": int(data[f"{prefix}best_step"][i]),
        "seconds": data[f"{prefix}seconds"][i],
    }


def claims(data: dict[str, Any]) -> dict[str, bool]:
    """The paper's claims, each of all seeds of lambda=1, and what it does not report."""
    names, first = [str(name) for name in data["members"]], data["seeds acceptance"][:, 0]
    one, three = data["seeds near"][:, 0], data["seeds near"][:, 2]
    goal = data["goals"]
    found = {
        f"at least {goal[0]:g} of first proposals from X are accepted": (first >= goal[0]).all(),
        f"at least {goal[1]:g} of states are near a mode after one step": (one >= goal[1]).all(),
        f"at least {goal[2]:g} after three steps": (three >= goal[2]).all(),
        "no seed is dead": not data["seeds dead"].any() and (first > 0.5).all(),
    }
    return {claim: bool(holds) for claim, holds in (found | _against_peer(data, names)).items()}


def _against_peer(data: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """What is claimed beside A-NICE-MC, once it has been trained: of every seed, at every step."""
    if PEER not in names:
        return {}
    peer = names.index(PEER)
    found = {
        "more first proposals from X are accepted than A-NICE-MC's": (
            data["seeds acceptance"][:, 0] > data["acceptance"][peer, 0]
        ).all(),
        f"more states near a mode than A-NICE-MC at each of steps 1 to {data['near'].shape[1]}": (
            data["seeds near"] > data["near"][peer]
        ).all(),
        "lower negative log likelihood than A-NICE-MC at every step": (
            data["seeds nll"] < data["nll"][peer]
        ).all(),
    }
    family = [i for i, name in enumerate(names) if name not in (PEER, DEFAULT)]
    if len(family) > 1:
        found["the best member of the family mixes at least as well as A-NICE-MC"] = (
            data["ess"][family].max() >= data["ess"][peer]
        )
    return found


def draw(data: dict[str, Any]) -> dict[str, Any]:
    """Figure 3, states after 0 to 3 steps, and Figure 5, negative log likelihood against steps."""
    names = [str(name) for name in data["members"]]
    rows = [name for name in (PEER, PAPER, DEFAULT) if name in names]
    states, axes = panels(len(rows), len(SHOWN) + 1, (10.0, 2.1 * len(rows)))
    for row, name in zip(axes, rows, strict=True):
        pictures = [*np.moveaxis(data[f"states {name}"], 1, 0), data["states truth"]]
        for axis, points in zip(row, pictures, strict=True):
            density_image(axis, points, 8.0)
        row[0].set_ylabel(name)
    for axis, step in zip(axes[-1], SHOWN, strict=False):
        axis.set_xlabel("1 step" if step == 1 else f"{step} steps")
    axes[-1, -1].set_xlabel("exact draws")
    lines, ((nll, share),) = panels(1, 2, (10.0, 3.6))
    steps = np.arange(1, data["nll"].shape[1] + 1)
    for i, name in enumerate(names):
        nll.plot(steps, data["nll"][i] - data["true_nll"], label=name, **style(i))
        share.plot(steps, data["near"][i], **style(i))
    exact = 1 - np.exp(-(NEAR**2) / 2)  # of a Gaussian in the plane
    for axis, height in ((nll, 0.0), (share, exact)):
        axis.axhline(height, color="#666666", linewidth=0.8)
    nll.set(xlabel="steps from X", ylabel="NLL above its exact mean (nats)")
    nll.set_yscale("symlog", linthresh=0.5)
    share.set(xlabel="steps from X", ylabel="share within 3 sd of a mode", ylim=(0, 1.03))
    lines.legend(*nll.get_legend_handles_labels(), loc="outside upper center", ncols=len(names))
    return {"states": states, "likelihood": lines}


def _from_start(kernel: AbstractKernel, config: Config, key: Key[Array, ""]) -> dict[str, Any]:
    """Run from X: acceptance, share near a mode and negative log likelihood after each step."""
    chains = Chains(kernel, key, range(config.chains), capacity=config.steps, block=config.chains)
    chains.start(first_law())
    start = chains.state().position
    trace = chains.advance(config.steps)
    kept = [start] + [trace.position[:, step - 1] for step in SHOWN[1:]]
    return {
        "acceptance": trace.acceptance_rate.mean(axis=0),
        "near": (_to_mode(trace.position) < NEAR * SD).mean(axis=0),
        "nll": -trace.log_density.mean(axis=0) + LOG_CONSTANT,
        "states": np.stack(kept, axis=1),
    }


def _stationary(
    kernel: AbstractKernel, config: Config, starts: Array, key: Key[Array, ""]
) -> dict[str, Any]:
    """Acceptance and the least rank-normalised ESS per draw, from exact draws."""
    draws = sample(
        kernel, key=key, num_chains=64, num_samples=config.draws, initial=np.asarray(starts)
    )
    return {
        "stationary_acceptance": float(draws.acceptance_rate.mean()),
        "ess": ess_per_draw(draws).least,
    }


def _to_mode(positions: np.ndarray) -> np.ndarray:
    """Distance to the nearest centre."""
    angle = np.arange(6) * np.pi / 3
    centres = RADIUS * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.linalg.norm(positions[..., None, :] - centres, axis=-1).min(axis=-1)

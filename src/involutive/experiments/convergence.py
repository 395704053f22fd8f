"""Convergence on mog6 from N(0, I): the paper's training beside A-NICE-MC (Figures 3 and 5).

The paper's network is trained by members of the paper's own family, A-NICE-MC by its own training,
all from the same exact draws for the same wall time at most:

    lambda=1    from X only, the recipe of the paper with what works
    lambda<1    both terms, one critic of states
    pairwise    moves from the target only, judged by a critic of pairs
    combined    both terms, the second judged by a critic of pairs
    a-nice-mc   forward rollouts, a critic of pairs

Each then runs from X for ten steps: acceptance, the share of states within 3 sd of a mode, the
negative log likelihood against its exact mean; and from exact draws, for acceptance and effective
draws in stationarity, because acceptance from X says nothing about mixing.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import Normal
from jaxtyping import Array, Key

from involutive.architectures import paper_network
from involutive.auxiliary import standard_normal
from involutive.classical import a_nice_mc, a_nice_network
from involutive.errors import check_count
from involutive.kernel import Kernel
from involutive.sampling.chains import Chains
from involutive.sampling.diagnostics import ess_per_draw
from involutive.sampling.run import sample
from involutive.targets import mog6
from involutive.training.a_nice import ANice
from involutive.training.loop import Fit, TrainConfig, fit
from involutive.training.mgan import Mgan, MganConfig
from involutive.training.objective import AbstractObjective

MEMBERS = ("lambda=1", "lambda<1", "pairwise", "combined", "a-nice-mc")
RADIUS, SD, NEAR = 5.0, 0.5, 3.0
SHOWN = (0, 1, 2, 3)  # steps whose states are kept for the picture


@dataclass(frozen=True)
class Config:
    """How long each member trains and how much is run.

    Attributes:
        members: which are trained.
        train_steps: generator steps of the paper's family.
        a_nice_steps: generator steps of A-NICE-MC.
        seconds: the most wall time each member may train.
        chains: chains from X, and states in each picture.
        steps: steps from X.
        draws: draws of each of 64 chains in stationarity.
        seed: of everything.
    """

    members: tuple[str, ...] = MEMBERS
    train_steps: int = 25_000
    a_nice_steps: int = 25_000
    seconds: float | None = 600.0
    chains: int = 4096
    steps: int = 10
    draws: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("steps", self.steps, least=SHOWN[-1])
        for name in ("train_steps", "a_nice_steps", "chains", "draws"):
            check_count(name, getattr(self, name))

    @staticmethod
    def quick() -> "Config":
        """Under a minute: two members, hardly trained."""
        members = ("lambda=1", "a-nice-mc")
        return Config(members, 40, 10, 20.0, chains=256, steps=4, draws=50)


def run(config: Config) -> dict[str, Any]:
    """Train each member and return its figures from X and in stationarity."""
    target = mog6()
    key_data, key_truth, key_members = jr.split(jr.key(config.seed), 3)
    exact: Any = target.sample
    samples = exact(key_data, 20_000)
    data: dict[str, Any] = {"members": np.array(config.members)}
    rows = []
    for name in config.members:
        key_train, key_start, key_from, key_chain = jr.split(
            jr.fold_in(key_members, MEMBERS.index(name)), 4
        )
        done = _train(name, config, samples, key_train)
        walk = _from_start(done.kernel, config, key_from)
        still = _stationary(done.kernel, config, exact(key_start, 64), key_chain)
        rows.append(walk | still | _training(done))
        data[f"states {name}"] = rows[-1].pop("states")
    truth = exact(key_truth, config.chains)
    data["states truth"] = np.asarray(truth)
    data["true_nll"] = -float(
        np.mean(jax.vmap(_log_density)(exact(jr.fold_in(key_truth, 1), 100_000)))
    )
    return data | {key: np.array([row[key] for row in rows]) for key in rows[0]}


def table(data: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a member."""
    last = data["near"].shape[1]
    return [
        {
            "member": str(name),
            "acceptance from X": data["acceptance"][i, 0],
            "near a mode, 1 step": data["near"][i, 0],
            f"{min(3, last)} steps": data["near"][i, min(3, last) - 1],
            f"{last} steps": data["near"][i, -1],
            "NLL, 1 step": data["nll"][i, 0],
            f"NLL, {min(3, last)} steps": data["nll"][i, min(3, last) - 1],
            "NLL, exact": data["true_nll"],
            "stationary acceptance": data["stationary_acceptance"][i],
            "ESS per draw": data["ess"][i],
            "generator steps": int(data["trained_steps"][i]),
            "best at": int(data["best_step"][i]),
            "seconds": data["seconds"][i],
        }
        for i, name in enumerate(data["members"])
    ]


def claims(data: dict[str, Any]) -> dict[str, bool]:
    """The paper's claims, and what it does not report."""
    names = [str(name) for name in data["members"]]
    first = names.index("lambda=1")
    near, nll = data["near"], data["nll"]
    found = {
        "first proposals from X are accepted at least 0.95 of the time": data["acceptance"][
            first, 0
        ]
        >= 0.95,
        "at least 92 % of states are near a mode after one step": near[first, 0] >= 0.92,
        "at least 96 % after three steps": near[first, min(3, near.shape[1]) - 1] >= 0.96,
    }
    if "a-nice-mc" in names:
        peer = names.index("a-nice-mc")
        found["more states near a mode than A-NICE-MC at every step"] = (
            near[first] > near[peer]
        ).all()
        found["lower negative log likelihood than A-NICE-MC at every step"] = (
            nll[first] < nll[peer]
        ).all()
        best = max(data["ess"][i] for i in range(len(names)) if i != peer)
        found["the best member mixes at least as well as A-NICE-MC"] = best >= data["ess"][peer]
    return {claim: bool(holds) for claim, holds in found.items()}


def draw(data: dict[str, Any]) -> dict[str, Any]:
    """Figure 3, states after 0 to 3 steps, and Figure 5, negative log likelihood against steps."""
    from matplotlib.figure import Figure

    names = [str(name) for name in data["members"]]
    states = Figure(figsize=(10, 2 * len(names)), layout="constrained")
    axes = states.subplots(len(names), len(SHOWN) + 1, squeeze=False)
    for row, name in zip(axes, names, strict=True):
        pictures = [*np.moveaxis(data[f"states {name}"], 1, 0), data["states truth"]]
        titles = [f"{step} steps" for step in SHOWN] + ["exact"]
        for axis, points, title in zip(row, pictures, titles, strict=True):
            axis.hist2d(points[:, 0], points[:, 1], bins=60, range=[[-8, 8]] * 2, cmap="magma")
            axis.set(xticks=[], yticks=[], aspect="equal", title=title)
        row[0].set_ylabel(name)
    lines = Figure(figsize=(5, 3.4), layout="constrained")
    axis = lines.subplots()
    steps = np.arange(1, data["nll"].shape[1] + 1)
    for name, values in zip(names, data["nll"], strict=True):
        axis.plot(steps, values - data["true_nll"], marker="o", label=name)
    axis.axhline(0, color="black", linewidth=0.8)
    axis.set(xlabel="steps from X", ylabel="NLL above its exact mean", yscale="symlog")
    axis.legend()
    return {"states": states, "likelihood": lines}


def _objective(name: str, steps: int) -> AbstractObjective:
    match name:
        case "lambda=1":
            return Mgan(MganConfig.tuned(decay=steps))
        case "lambda<1":
            return Mgan(MganConfig.tuned(decay=steps, balance=0.3))
        case "pairwise":
            return Mgan(MganConfig.combined(decay=steps, balance=0.0))
        case "combined":
            return Mgan(MganConfig.combined(decay=steps))
    return ANice()


def _train(name: str, config: Config, samples: Array, key: Key[Array, ""]) -> Fit:
    key_network, key_fit = jr.split(key)
    target, initial = mog6(), Normal(jnp.zeros(2), jnp.ones(2))
    if name == "a-nice-mc":
        kernel = a_nice_mc(target, a_nice_network(key_network, 2), initial)
        steps = config.a_nice_steps
    else:
        network = paper_network(key_network, scale=4.0)
        kernel = Kernel(target, network, standard_normal(30), initial)
        steps = config.train_steps
    loop = TrainConfig(steps, min(500, steps), None, seconds=config.seconds)
    return fit(kernel, _objective(name, steps), samples, key=key_fit, config=loop, label=name)


def _training(done: Fit) -> dict[str, Any]:
    last = done.history[-1]
    return {
        "seconds": last["seconds"],
        "trained_steps": last["step"],
        "best_step": done.best["step"],
        "dead": done.diverged is not None,
    }


def _from_start(kernel: Kernel, config: Config, key: Key[Array, ""]) -> dict[str, Any]:
    """Run from X: acceptance, share near a mode and negative log likelihood after each step."""
    chains = Chains(kernel, key, range(config.chains), capacity=config.steps, block=config.chains)
    chains.start()
    start = chains.state().position
    trace = chains.advance(config.steps)
    kept = [start] + [trace.position[:, step - 1] for step in SHOWN[1:]]
    return {
        "acceptance": trace.acceptance_rate.mean(axis=0),
        "near": (_to_mode(trace.position) < NEAR * SD).mean(axis=0),
        "nll": -trace.log_density.mean(axis=0) + np.log(2 * np.pi * SD**2),
        "states": np.stack(kept, axis=1),
    }


def _stationary(
    kernel: Kernel, config: Config, starts: Array, key: Key[Array, ""]
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


def _log_density(x: Array) -> Array:
    """The normalised log density; the target's own lacks the Gaussians' constant."""
    return mog6().log_density(x) - jnp.log(2 * jnp.pi * SD**2)

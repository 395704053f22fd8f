"""The page of `mixing`: its table, its claims and its pictures, from the metrics of all seeds."""

from typing import Any, NamedTuple

import jax.random as jr
import numpy as np

from involutive import targets
from involutive.core.types import Figure
from involutive.experiments.measures import exact
from involutive.experiments.members import LEARNED, OURS, PEER, TITLES
from involutive.plotting.panels import density_image, panels, style

SHOWN = (0, 1, 2, 3, 10)  # steps whose states are drawn
JUDGED = (1, 2, 3, 5, 10)  # steps at which the energy distance must have fallen
GOALS = {
    "mog6": 0.35,
    "mog2_1d": 0.5,
    "ring5": 0.2,
    "five_modes": 0.2,
}  # effective draws per draw, of the worst seed
QUICK_GOAL = 0.12  # the same of the quick version, which trains for seconds; a guess
REACH = 10.0  # half the width of a picture of mog6; A-NICE-MC's first states lie beyond 8


class Group(NamedTuple):
    """The rows of one target and member."""

    target: str
    member: str
    rows: np.ndarray


def groups(data: dict[str, Any]) -> list[Group]:
    """The targets and members there are, in order."""
    pairs = list(zip(map(str, data["target"]), map(str, data["member"]), strict=True))
    order = list(dict.fromkeys(pairs))
    return [Group(*p, np.array([i for i, q in enumerate(pairs) if q == p])) for p in order]


def table(data: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per target and member: the worst seed, and the mean where it says so."""
    rows = []
    for target, member, at in groups(data):
        energy = data["energy"][at] / data["energy_floor"][at, None]
        rows.append(
            {
                "target": target,
                "member": TITLES[member],
                "seeds": len(at),
                "ESS per draw, worst": data["ess"][at].min(),
                "mean": data["ess"][at].mean(),
                "acceptance, worst": data["stationary_acceptance"][at].min(),
                "|autocorrelation| at lag 1": data["autocorrelation"][at, 0].max(),
                "at lag 10": data["autocorrelation"][at, 1].max(),
                "a mode's weight off by": data["weights"][at].max(),
                "first acceptance from X": data["acceptance"][at, 0].min(),
                "energy distance / floor, step 1": energy[:, 1].max(),
                "step 3": energy[:, 3].max(),
                "step 10": energy[:, -1].max(),
                "|NLL - exact|, step 10": np.abs(data["nll"][at, -1]).max(),
                "variance ratio, step 10": data["variance_ratio"][at, -1].mean(),
                "mode weights (TV), step 10": data["total_variation"][at, -1].max(),
                "generator steps": int(data["trained_steps"][at].max()),
                "maximum CPU seconds": data["seconds"][at].max(),
            }
        )
    return rows


def claims(data: dict[str, Any]) -> dict[str, bool]:
    """What is aimed at, each of the worst seed, true or false as it falls."""
    found: dict[str, Any] = {}
    by = {(target, member): at for target, member, at in groups(data)}
    quick = len(data["ess"]) == 1
    for (target, member), at in by.items():
        if member == OURS:
            goal = QUICK_GOAL if quick else GOALS[target]
            found[f"{target}, {_count(at)}: at least {goal:g} effective draws per draw"] = (
                data["ess"][at] >= goal
            ).all()
    if ("mog6", OURS) in by and not quick:
        found |= _of_mog6(data, by["mog6", OURS])
        if ("mog6", PEER) in by:
            found |= _beside_peer(data, by["mog6", OURS], by["mog6", PEER])
    if ("mog6", LEARNED) in by:
        at = by["mog6", LEARNED]
        found[f"mog6, learned π, {_count(at)}: at least 0.8 effective draws per draw"] = (
            data["ess"][at] >= 0.8
        ).all()
    return {claim: bool(holds) for claim, holds in found.items()}


def _count(at: np.ndarray) -> str:
    return "1 seed" if len(at) == 1 else f"{len(at)} seeds"


def _of_mog6(data: dict[str, Any], at: np.ndarray) -> dict[str, Any]:
    energy, name = data["energy"][at], f"mog6, {_count(at)}"
    falling = np.diff(energy[:, JUDGED], axis=1) < 0
    return {
        f"{name}: at least 0.45 effective draws per draw in the mean": (
            data["ess"][at].mean() >= 0.45
        ),
        f"{name}: at least 0.55 accepted in stationarity": (
            data["stationary_acceptance"][at] >= 0.55
        ).all(),
        f"{name}: mode weights within 0.02": (data["weights"][at] <= 0.02).all(),
        f"{name}: |autocorrelation| at most 0.05 at lag 10": (
            data["autocorrelation"][at, 1] <= 0.05
        ).all(),
        f"{name}, from X: energy distance at most twice the floor by step 10": (
            energy[:, -1] <= 2 * data["energy_floor"][at]
        ).all(),
        f"{name}, from X: energy distance falls at each of steps 1, 2, 3, 5, 10": falling.all(),
        f"{name}, from X: |NLL - exact| at most 0.05 at step 10": (
            np.abs(data["nll"][at, -1]) <= 0.05
        ).all(),
        f"{name}, from X: at least 0.9 of first proposals accepted": (
            data["acceptance"][at, 0] >= 0.9
        ).all(),
    }


def _beside_peer(data: dict[str, Any], ours: np.ndarray, peer: np.ndarray) -> dict[str, Any]:
    """Energy distances of every seed that both were trained from."""
    place = {int(data["seed"][i]): i for i in ours}
    pairs = np.array([(place[s], i) for i in peer if (s := int(data["seed"][i])) in place])
    if len(pairs) == 0:
        return {}
    mine, other = (data["energy"][pairs[:, side], 1:] for side in (0, 1))
    name = f"mog6, {_count(pairs)}, from X: smaller energy distance than A-NICE-MC at every step"
    return {f"{name} from 1 to 10": (mine < other).all()}


def draw(data: dict[str, Any]) -> dict[str, Figure]:
    """Energy distance and NLL by step on mog6, effective draws per target, states by step."""
    figure, ((energy, nll, bars),) = panels(1, 3, (13.0, 4.0))
    found = groups(data)
    steps = np.arange(data["energy"].shape[1])
    for number, (target, member, at) in enumerate(g for g in found if g.target == "mog6"):
        del target
        for k, row in enumerate(at):
            label = {"label": TITLES[member]} if k == 0 else {}
            energy.plot(steps, data["energy"][row], **style(number), **label)
            nll.plot(steps, data["nll"][row], **style(number))
    floor = float(data["energy_floor"][data["target"] == "mog6"].mean())
    energy.axhline(floor, color="#666666", linewidth=0.8, label="exact against exact (mean)")
    energy.set(xlabel="steps from X", ylabel="energy distance to exact draws", yscale="log")
    energy.legend(fontsize=8)
    nll.axhline(0.0, color="#666666", linewidth=0.8)
    nll.set(xlabel="steps from X", ylabel="NLL above its exact mean (nats)")
    nll.set_yscale("symlog", linthresh=0.1)
    names = [f"{target}\n{TITLES[member]}" for target, member, _ in found]
    for i, (_, _, at) in enumerate(found):
        bars.bar(i, data["ess"][at].mean(), color="0.8")
        bars.plot(np.full(len(at), i), data["ess"][at], "ko", markersize=4)
    bars.set_xticks(range(len(names)), names, rotation=40, ha="right", fontsize=7)
    bars.set(ylabel="effective draws per draw (dots: seeds)", ylim=(0, 1.05))
    return {"mixing": figure} | _states(data)


def _states(data: dict[str, Any]) -> dict[str, Any]:
    """Where chains from X are on mog6 after a few steps, beside exact draws."""
    members = [m for m in (OURS, LEARNED, PEER) if f"states {m}" in data]
    if not members:
        return {}
    truth = exact(targets.mog6(), jr.key(1), data[f"states {members[0]}"].shape[0])
    steps = SHOWN[: data[f"states {members[0]}"].shape[1]]
    figure, axes = panels(len(members), len(steps) + 1, (2.0 * len(steps) + 2, 2.1 * len(members)))
    for row, member in zip(axes, members, strict=True):
        for axis, points in zip(row, np.moveaxis(data[f"states {member}"], 1, 0), strict=False):
            density_image(axis, points, REACH)
        density_image(row[-1], truth, REACH)
        row[0].set_ylabel(TITLES[member])
    for axis, step in zip(axes[-1], steps, strict=False):
        axis.set_xlabel("1 step" if step == 1 else f"{step} steps")
    axes[-1, -1].set_xlabel("exact draws")
    figure.suptitle(
        f"Square root of counts, each panel on its own grey scale; |x|, |y| < {REACH:g}", fontsize=9
    )
    return {"mixing-states": figure}

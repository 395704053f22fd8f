"""Amortised proposals: one network for a thousand posteriors.

A network is trained for a family of bimodal light curves and for a hierarchy, each by simulation.
The posteriors of new simulated data sets are sampled with `sample_many`
and compared with exact answers (`amortised_exact.py`): evidence, mode weights, ranks of the true
parameters. Nothing is left out: data sets that the verdict does not trust count everywhere but in
"wrong and trusted". `learn` is timed on a few data sets for the break-even.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np
from scipy import stats

from involutive.amortised.amortise import amortise
from involutive.amortised.family import Family
from involutive.amortised.kernel import FamilyKernel
from involutive.amortised.many import sample_many
from involutive.amortised.result import Many
from involutive.amortised.rows import drawn_pairs, efficiency
from involutive.amortised.settings import AmortiseSettings
from involutive.core.keys import KeyLike
from involutive.core.statistics import ess
from involutive.core.types import Figure
from involutive.experiments.amortised_exact import (
    Exact,
    event,
    exact_hierarchy,
    exact_light_curve,
)
from involutive.experiments.amortised_families import hierarchy, light_curves
from involutive.learning.learn import learn
from involutive.plotting.panels import panels
from involutive.sampling.quantities import quantities
from involutive.sampling.sample import sample
from involutive.storage.save_load import load, save

FAMILIES = {
    "light curves": (light_curves, exact_light_curve),
    "hierarchy": (hierarchy, exact_hierarchy),
}
BINS, RANKED = 20, 99  # of the ranks of true parameters among so many draws
WITHIN = 3.0  # standard errors within which a mode weight is called right
WRONG = 4.5  # standard errors beyond which an answer is called wrong
SLACK = (
    0.005  # of a probability, beside its standard error: what a chain that never left cannot see
)
WANTED = 1000  # effective draws that the time per data set is given for


@dataclass(frozen=True)
class Config:
    """How long the networks train and how many data sets there are.

    Attributes:
        families: which are run.
        sets: data sets of each.
        steps: updates by likelihood.
        steps_density: updates by log-variance.
        chains: of each data set.
        draws: of each chain.
        learned: data sets that `learn` is timed on; 0 for none.
        heads: attention heads of the summary; 0 pools by means alone.
        splines: spline couplings of the proposals; 0 for mixtures alone.
        seed: of everything.
    """

    families: tuple[str, ...] = tuple(FAMILIES)
    sets: int = 1000
    steps: int = 8_000
    steps_density: int = 0
    chains: int = 8
    draws: int = 250
    learned: int = 2
    heads: int = 0
    splines: int = 0
    seed: int = 0

    @staticmethod
    def quick() -> "Config":
        """Seconds of training, few data sets: to see that everything runs."""
        return Config(sets=32, steps=800, steps_density=100, learned=0)


def run(config: Config, folder: Path | None = None) -> Iterator[dict[str, Any]]:
    """Train, sample and compare; networks are kept in the folder and taken up again."""
    data: dict[str, Any] = {"families": np.array(config.families)}
    for name in config.families:
        make, reference = FAMILIES[name]
        family = make()
        many, seconds = trained(family, config, folder)
        key_pairs, key_sample, key_plain = jr.split(jr.key(config.seed + 1), 3)
        x, stacked = drawn_pairs(family, key_pairs, config.sets)
        plain = efficiency(many.estimator, family, stacked, key_plain, AmortiseSettings())
        host = jax.tree.map(np.asarray, stacked)
        sets = [{k: v[i] for k, v in host.items()} for i in range(config.sets)]
        result, each = _sampled(many, sets, key_sample, config)
        exact = [reference(one) for one in sets]
        found = {
            "training_seconds": seconds,
            "network": many.outcome.efficiency,
            "plain": plain,
            "each_seconds": each,
            **_columns(result),
            **_compared(family, result, exact),
            "ranks": _ranks(family, result, np.asarray(x)),
            "learn_seconds": _learned(family, sets[: config.learned], config.seed),
        }
        data |= {f"{name}: {key}": value for key, value in found.items()}
        data["done"] = name
        yield data


def trained(family: Family, config: Config, folder: Path | None) -> tuple[FamilyKernel, float]:
    """The network, and the seconds its training took; read from the folder if it is there."""
    summary = 0 if family.features else AmortiseSettings().summary
    settings = AmortiseSettings(
        steps=config.steps, steps_density=config.steps_density, summary=summary,
        heads=config.heads, splines=config.splines,
    )  # fmt: skip
    sizes = (config.steps, config.steps_density, config.heads, config.splines, config.seed)
    stem = "-".join(map(str, (family.name.replace(" ", "-"), *sizes)))
    path = None if folder is None else folder / f"{stem}.inv"
    if path is not None and path.exists():
        many = load(path, family)
        assert isinstance(many, FamilyKernel)
        return many, many.outcome.seconds
    many = amortise(family, key=config.seed, settings=settings)
    if path is not None:
        save(path, many)
    return many, many.outcome.seconds


def _sampled(
    many: FamilyKernel, sets: list[Any], key: KeyLike, config: Config
) -> tuple[Many, float]:
    """Every data set, and the seconds that one takes when nothing is left to compile."""
    run = partial(sample_many, many, num_chains=config.chains, num_samples=config.draws)
    run(sets[:16], key=config.seed)
    result = run(sets, key=key)
    return result, result.seconds / len(sets)


def _columns(result: Many) -> dict[str, np.ndarray]:
    names = ("ess", "ess_per_draw", "efficiency", "r_hat", "pareto_k", "log_z", "log_z_error")
    return {name: result.column(name) for name in (*names, "trusted")}


def _compared(family: Family, result: Many, exact: list[Exact]) -> dict[str, np.ndarray]:
    """Evidence and the probability of the event, beside the exact ones, with errors."""
    chances, errors = [], []
    for number, answer in enumerate(exact):
        inside = event(family.name, _values(family, result, number)).astype(float)
        size = float(ess(inside)) if np.ptp(inside) > 0 else result[number].ess
        p = answer.chance
        chances.append(inside.mean())
        errors.append(np.sqrt(p * (1 - p) / max(size, 1.0)))
    return {
        "chance": np.array(chances),
        "chance_error": np.array(errors),
        "chance_exact": np.array([answer.chance for answer in exact]),
        "log_z_exact": np.array([answer.log_z for answer in exact]),
    }


def _values(family: Family, result: Many, number: int) -> dict[str, np.ndarray]:
    return quantities(family.template, result.positions(number)).variables


def _ranks(family: Family, result: Many, x: np.ndarray) -> np.ndarray:
    """The rank of each true coordinate among draws of its posterior, `(sets, dim)`, 0 to 99."""
    ranks = []
    for number in range(len(result)):
        flat = result.positions(number).reshape(-1, family.dim)
        some = flat[np.linspace(0, len(flat) - 1, RANKED).astype(int)]
        ranks.append(np.sum(some < x[number], axis=0))
    return np.array(ranks)


def _learned(family: Family, sets: list[Any], seed: int) -> float:
    """Seconds that `learn` and as many effective draws take on one data set; NaN if not timed."""
    spent = []
    for number, one in enumerate(sets):
        began = time.perf_counter()
        kernel = learn(family.at(one), key=seed + number)
        sample(kernel, key=number, num_chains=8, num_samples=250)
        spent.append(time.perf_counter() - began)
    return float(np.median(spent)) if spent else float("nan")


def uniform_p(ranks: np.ndarray) -> float:
    """The least p-value of a χ² test that ranks are uniform, over coordinates, times their number.

    Args:
        ranks: `(sets, dim)`, each from 0 to 99.
    """
    found = []
    for column in ranks.T:
        counts = np.bincount(column * BINS // (RANKED + 1), minlength=BINS)
        found.append(stats.chisquare(counts).pvalue)
    return float(min(1.0, len(found) * min(found)))


def measured(data: dict[str, Any], name: str) -> dict[str, float]:
    """The numbers that the claims rest on, of one family."""
    own = {
        key.split(": ", 1)[1]: value for key, value in data.items() if key.startswith(f"{name}: ")
    }
    off = np.abs(own["chance"] - own["chance_exact"])
    beyond = np.abs(own["log_z"] - own["log_z_exact"])
    wrong = (off > WRONG * own["chance_error"] + SLACK) | (
        beyond > WRONG * own["log_z_error"] + SLACK
    )
    trusted = own["trusted"] > 0
    rate = own["ess_per_draw"]
    slow = own["each_seconds"] * WANTED / np.median(own["ess"])
    gain = own["learn_seconds"] - own["each_seconds"]
    return {
        "training seconds": float(own["training_seconds"]),
        "effective draws per draw": float(np.median(rate)),
        "share above 0.1": float(np.mean(rate > 0.1)),
        "network alone": float(np.median(own["plain"])),
        "weights effective": float(np.median(own["efficiency"])),
        "seconds per 1000": float(slow),
        "SBC p": uniform_p(own["ranks"]),
        "weights right": float(np.mean(off <= WITHIN * own["chance_error"] + SLACK)),
        "trusted": float(trusted.mean()),
        "wrong": float(np.mean(wrong)),
        "wrong and trusted": float(np.mean(wrong & trusted)),
        "learn seconds": float(own["learn_seconds"]),
        "break-even sets": float(own["training_seconds"] / gain) if gain > 0 else float("nan"),
    }


def table(data: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per family."""
    return [{"family": str(n)} | measured(data, str(n)) for n in data["families"] if _has(data, n)]


def claims(data: dict[str, Any]) -> dict[str, bool]:
    """What was to be shown, for each family."""
    held = {}
    for name in data["families"]:
        if not _has(data, name):
            continue
        found = measured(data, str(name))
        held |= {
            f"{name}: median of at least 0.5 effective draws per draw": found[
                "effective draws per draw"
            ]
            >= 0.5,
            f"{name}: at least 95 % of data sets above 0.1": found["share above 0.1"] >= 0.95,
            f"{name}: at most 0.1 s for 1000 effective draws": found["seconds per 1000"] <= 0.1,
            f"{name}: training within 15 minutes": found["training seconds"] <= 900,
            f"{name}: ranks of the truth are uniform (p > 1e-4)": found["SBC p"] > 1e-4,
            f"{name}: mode weights right in at least 97 %": found["weights right"] >= 0.97,
            f"{name}: wrong and trusted in at most 1 of 200": found["wrong and trusted"] <= 1 / 200,
        }
    return held


def _has(data: dict[str, Any], name: object) -> bool:
    return f"{name}: ranks" in data


def draw(data: dict[str, Any]) -> dict[str, Figure]:
    """Effective draws, ranks, and probabilities beside the exact ones, one row per family."""
    names = [str(name) for name in data["families"] if _has(data, name)]
    figure, axes = panels(len(names), 3, (9.0, 2.6 * len(names)))
    for row, name in zip(axes, names, strict=True):
        row[0].hist(data[f"{name}: ess_per_draw"], bins=40)
        row[0].set(xlabel="effective draws per draw", ylabel=name)
        row[1].hist(data[f"{name}: ranks"].ravel(), bins=BINS)
        row[1].set(xlabel="rank of the truth among 99 draws")
        row[2].plot(data[f"{name}: chance_exact"], data[f"{name}: chance"], ".", markersize=2)
        row[2].set(xlabel="exact probability", ylabel="of the chains")
    return {"amortised": figure}

"""Capacity, auxiliary dimension and training time against effective draws (Section 7's question).

Three families on exact draws of mog6 and ring5, each from several seeds:

    swap network    `g⁻¹ ∘ Swap ∘ g`, Gaussian π: the hidden width of g's couplings, the dimension
                    of π and the time of training are varied, one at a time
    learned law     `φ' = g⁻¹(π)`, π from a mixture fitted by the default recipe: the number of its
                    components is varied
    paper           the paper's network by the paper's kind of training (`MganConfig.mixing`), no
                    likelihood: the generator steps are varied, each length a training of its own

The first two are trained by likelihood. The metric is the rank-normalised ESS per draw of chains
started in the target, with acceptance beside it.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax.random as jr
import numpy as np
import optax
from flowjax import bijections as fb
from jaxtyping import Array

from involutive import targets
from involutive.auxiliary import standard_normal
from involutive.bijections.couplings import mlp
from involutive.core.types import Axes, Figure
from involutive.experiments.measures import exact, mixing, single_precision
from involutive.experiments.members import trained_network
from involutive.involutions.architectures import state_scaling, swap_network
from involutive.involutions.blocks import Conjugate
from involutive.kernel.kernel import Kernel
from involutive.learning.fit.trained import train_proposal
from involutive.learning.settings import LearnSettings
from involutive.plotting.panels import log_axis, panels, style
from involutive.sampling.sample import sample
from involutive.targets.target import Target
from involutive.training.fit import Fit, TrainConfig, fit
from involutive.training.likelihood import Likelihood

TARGETS = {"mog6": targets.mog6, "ring5": targets.ring5}
CHUNK = 600  # updates between two looks; divides every part of training, for one compilation
SCALE = 4.0  # both targets reach to about 5; networks like numbers near one


@dataclass(frozen=True)
class Config:
    """What is varied around a swap network of `width` hidden units and `aux_dim` auxiliaries.

    `shares` are the parts of its training after which that network is run.
    """

    seed: int = 0
    seeds: int = 3
    targets: tuple[str, ...] = ("mog6", "ring5")
    width: int = 64
    aux_dim: int = 6
    widths: tuple[int, ...] = (8, 64, 128)
    aux_dims: tuple[int, ...] = (2, 6, 14)
    components: tuple[int, ...] = (2, 6, 24, 96)
    paper_steps: tuple[int, ...] = (2000, 8000, 20_000)
    steps: int = 6_000
    shares: tuple[float, ...] = (0.1, 0.3, 1.0)
    blocks: int = 4
    training_draws: int = 20_000
    chains: int = 32
    draws: int = 1000

    @staticmethod
    def quick() -> "Config":
        """One target, two widths, two mixtures, short training."""
        small = Config(targets=("mog6",), width=32, widths=(4, 32), aux_dims=(6,))
        small = replace(small, components=(2, 12), steps=3000, shares=(0.2, 1.0), seeds=1)
        small = replace(small, paper_steps=(500, 3000))
        return replace(small, training_draws=4000, draws=300, blocks=3)


def run(config: Config) -> dict[str, Any]:
    """Return, for every target, ESS per draw and acceptance of every network."""
    with single_precision():
        return _run(config)


def _run(config: Config) -> dict[str, Any]:
    parts = []
    for name in config.targets:
        target = TARGETS[name]()
        seeds = [replace(config, seed=config.seed + k) for k in range(config.seeds)]
        studies = [_study(target, each) for each in seeds]
        parts.append({key: np.stack([one[key] for one in studies]) for key in studies[0]})
    return {name: np.stack([part[name] for part in parts]) for name in parts[0]} | {
        "paper_steps": np.array(config.paper_steps),
        "targets": np.array(config.targets),
        "widths": np.array(config.widths),
        "aux_dims": np.array(config.aux_dims),
        "components": np.array(config.components),
    }


def _study(target: Target, config: Config) -> dict[str, np.ndarray]:
    key_data, key_start, key_mixture = jr.split(jr.key(config.seed), 3)
    rows = exact(target, key_data, config.training_draws)
    start = exact(target, key_start, config.chains)
    base = (config.width, config.aux_dim)
    trained, history = _train_in_parts(target, rows, start, config)
    sizes = [(w, config.aux_dim) for w in config.widths]
    sizes += [(config.width, a) for a in config.aux_dims]
    fits = {size: _train_swap(target, rows, *size, config).kernel for size in set(sizes) - {base}}
    fits[base] = trained
    found = {size: _figures(kernel, start, config) for size, kernel in fits.items()}
    by_width = [found[w, config.aux_dim] for w in config.widths]
    by_aux = [found[config.width, a] for a in config.aux_dims]
    mixtures = [
        _figures(_train_mixture(target, rows, k, jr.fold_in(key_mixture, k)), start, config)
        for k in config.components
    ]
    key_paper = jr.fold_in(key_mixture, 0)
    paper = [
        _figures(trained_network(target, jr.fold_in(key_paper, n), n, rows), start, config)
        for n in config.paper_steps
    ]
    return {
        "by_paper_steps": np.array(paper),
        "by_width": np.array(by_width),
        "by_aux": np.array(by_aux),
        "by_components": np.array(mixtures),
        "history": np.array(history),
    }


def _train_in_parts(
    target: Target, rows: np.ndarray, start: np.ndarray, config: Config
) -> tuple[Kernel, list[list[float]]]:
    """Train the base network and run it on the way: updates, seconds, ESS per draw, acceptance."""
    kernel, objective = _swap(target, config.width, config.aux_dim, config)
    history, memory, done, seconds = [], None, 0, 0.0
    for share in config.shares:
        count = round(share * config.steps) - done
        plan = TrainConfig(count, CHUNK, patience=None)
        fitted = fit(kernel, objective, rows, key=config.seed + done, config=plan, memory=memory,
                     label="in parts")  # fmt: skip
        kernel, memory, done = fitted.kernel, fitted.memory, done + count
        seconds += fitted.history[-1]["seconds"]
        history.append([float(done), seconds, *_figures(kernel, start, config)])
    return kernel, history


def _swap(target: Target, width: int, aux: int, config: Config) -> tuple[Kernel, Likelihood]:
    network = swap_network(config.seed, target.dim, aux, config.blocks, mlp(width, last_scale=0.1))
    g = fb.Chain([state_scaling(SCALE, target.dim, aux), network.g]).merge_chains()
    kernel = Kernel(target, Conjugate(g, network.inner), standard_normal(aux))
    rate = optax.cosine_decay_schedule(3e-3, config.steps)
    return kernel, Likelihood(optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate)))


def _train_swap(target: Target, rows: np.ndarray, width: int, aux: int, config: Config) -> Fit:
    kernel, objective = _swap(target, width, aux, config)
    plan = TrainConfig(config.steps, CHUNK, patience=None)
    return fit(kernel, objective, rows, key=config.seed, config=plan, label=f"width {width}")


def _train_mixture(target: Target, rows: np.ndarray, count: int, key: Array) -> Kernel:
    settings = LearnSettings(components=(count,), couplings_below=0.0, tune_steps=300)
    return train_proposal(target, rows, key, settings=settings)[0].kernel


def _figures(kernel: Kernel, start: np.ndarray, config: Config) -> list[float]:
    """ESS per draw and acceptance of chains started in the target."""
    draws = sample(kernel, key=config.seed, num_chains=config.chains, num_samples=config.draws,
                   num_warmup=0, initial=start)  # fmt: skip
    found = mixing(draws)
    return [found["ESS per draw"], found["acceptance"]]


VARIED = (
    ("by_width", "widths", "swap network", "hidden width"),
    ("by_aux", "aux_dims", "swap network", "auxiliary dimension"),
    ("by_components", "components", "learned law", "components"),
    ("by_paper_steps", "paper_steps", "paper's network, adversarial", "generator steps"),
)


def _summary(values: np.ndarray) -> dict[str, float | str]:
    """Mean over seeds of ESS per draw and acceptance `(seeds, 2)`, with standard errors."""
    several = len(values) > 1
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values)) if several else ("", "")
    mean = values.mean(axis=0)
    return {
        "ESS per draw": float(mean[0]), "± s.e.": float(error[0]) if several else "",
        "acceptance": float(mean[1]), "seeds": len(values),
    }  # fmt: skip


def table(data: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per target and network, and the base network after parts of its training."""
    rows = []
    for t, target in enumerate(data["targets"]):
        for key, sizes, family, name in VARIED:
            for k, size in enumerate(data[sizes]):
                row = {"target": str(target), "family": family, "varied": name, "value": int(size)}
                rows.append(row | _summary(data[key][t][:, k]))
        for k, (step, seconds, _, _) in enumerate(data["history"][t].mean(axis=0)):
            row = {"target": str(target), "family": "swap network", "varied": "training steps"}
            row |= {"value": int(step)} | _summary(data["history"][t][:, k, 2:])
            rows.append(row | {"seconds": float(seconds)})
    return rows


def claims(data: dict[str, Any]) -> dict[str, bool]:
    """What capacity and training buy, on every target, in the mean over seeds."""
    width, mixture, history, paper = (
        data[name].mean(axis=1)
        for name in ("by_width", "by_components", "history", "by_paper_steps")
    )
    return {
        "the widest couplings are accepted more than the narrowest": bool(
            (width[:, -1, 1] > width[:, 0, 1]).all()
        ),
        "longer training raises acceptance": bool((history[:, -1, 3] > history[:, 0, 3]).all()),
        "longer training gives the paper's network more effective draws": bool(
            (paper[:, -1, 0] > paper[:, 0, 0]).all()
        ),
        "the most components give more effective draws than the fewest": bool(
            (mixture[:, -1, 0] > mixture[:, 0, 0]).all()
        ),
        "a learned auxiliary distribution beats every Gaussian swap network": bool(
            (mixture[:, -1, 0] > width[..., 0].max(axis=1)).all()
        ),
    }


def draw(data: dict[str, Any]) -> dict[str, Figure]:
    """ESS per draw and acceptance against what is varied; bars are standard errors over seeds."""
    figure, axes = panels(1, len(VARIED) + 1, (14.0, 3.6), sharey=True)
    for t, target in enumerate(data["targets"]):
        for axis, (key, sizes, family, name) in zip(axes[0], VARIED, strict=False):
            _curves(axis, data[sizes], data[key][t], 2 * t, str(target))
            log_axis(axis, data[sizes])
            axis.set_xlabel(f"{name}\n({family})", fontsize=8)
        last, history = axes[0, -1], data["history"][t]
        _curves(last, history[0, :, 0], history[:, :, 2:], 2 * t, str(target))
        last.set_xlabel("updates\n(swap network)", fontsize=8)
    axes[0, 0].set(ylabel="ESS per draw, acceptance", ylim=(-0.03, 1.03))
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=4)
    return {"capacity": figure}


def _curves(axis: Axes, at: np.ndarray, values: np.ndarray, number: int, target: str) -> None:
    """ESS per draw and acceptance, `values` of (seeds, places, 2)."""
    count = len(values)
    error = values.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.zeros(values.shape[1:])
    for i, label in enumerate(("ESS", "acceptance")):
        look = style(number + i, linewidth=0.8 if i else 1.4)
        axis.errorbar(
            at, values[..., i].mean(axis=0), error[:, i], label=f"{target}, {label}", **look
        )

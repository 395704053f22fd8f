"""The members that `convergence` compares: what each trains, and how."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from flowjax import bijections as fb
from flowjax.distributions import Normal
from jaxtyping import Array, Key

from involutive.auxiliary import standard_normal
from involutive.bijections.cascades import additive_cascade
from involutive.bijections.couplings import mlp
from involutive.involutions.architectures import paper_network, state_scaling
from involutive.involutions.blocks import Conjugate, PermutationBlock
from involutive.kernel.classical import a_nice_mc, a_nice_network
from involutive.kernel.kernel import Kernel
from involutive.targets.benchmarks import mog6
from involutive.training.a_nice import ANice
from involutive.training.fit import Fit, TrainConfig, fit
from involutive.training.likelihood import Likelihood
from involutive.training.mgan.config import MganConfig
from involutive.training.mgan.objective import Mgan
from involutive.training.objective import AbstractObjective

PAPER, FIRST, PEER, DEFAULT = "lambda=1", "likelihood", "a-nice-mc", "default recipe"
# a member's place is part of its seed
MEMBERS = (PAPER, "lambda<1", "pairwise", "combined", PEER, DEFAULT, FIRST)
SCALE = float(np.exp((np.log(6) + 2 * np.log(0.5)) / 2))  # the entropy of mog6 over that of N(0, I)


def objective_of(name: str, config: Any) -> AbstractObjective | None:
    """What a member is trained by; None for the default recipe."""
    steps, both = config.family_steps, {"steps": 1, "data_steps": 2, "critic_depth": 2}
    match name:
        case "lambda=1":
            first = {"steps": config.rollout, "batch": config.batch, "every": config.every}
            # most of what is rejected from X lost more to π' than it won: see `MganConfig.margin`
            firm = {"soften": 4.0, "margin": 8.0, "critic_depth": config.critic_depth}
            return Mgan(MganConfig.tuned(decay=config.train_steps, **first, **firm))
        case "lambda<1":
            return Mgan(MganConfig.tuned(decay=steps, balance=0.3, **both))
        case "pairwise":
            return Mgan(MganConfig.combined(decay=steps, balance=0.0, **both))
        case "combined":
            return Mgan(MganConfig.combined(decay=steps, **both))
        case "likelihood":
            return Mgan(MganConfig.combined(1e-4, decay=_after(config), **both))
        case "a-nice-mc":
            return ANice()
    return None


def first_law() -> Normal:
    """X."""
    return Normal(jnp.zeros(2), jnp.ones(2))


def train(
    name: str,
    objective: AbstractObjective,
    config: Any,
    samples: Array,
    key: Key[Array, ""],
    spent: Callable[[], bool],
) -> Fit:
    """Train a member on exact draws of mog6, until it has had its steps or time is `spent`."""
    key_network, key_fit = jr.split(key)
    target = mog6()
    if name == FIRST:
        return _likelihood_first(objective, config, samples, key_network, key_fit, spent)
    if name == PEER:
        kernel = a_nice_mc(target, a_nice_network(key_network, 2), first_law())
        steps = config.a_nice_steps
    else:
        network = paper_network(key_network, scale=4.0)
        kernel = Kernel(target, network, standard_normal(30), first_law())
        steps = config.train_steps if name == PAPER else config.family_steps
    # at λ = 1 the rate falls to zero and the last parameters are near the modes more often; the
    # held-out distance also weighs the modes, and prefers earlier ones
    keep = "last" if name == PAPER else "best"
    loop = TrainConfig(steps, min(500, steps), None, seconds=config.seconds, keep=keep)
    return fit(kernel, objective, samples, key=key_fit, config=loop, label=name, spent=spent)


def _after(config: Any) -> int:
    """Generator steps after likelihood."""
    return max(config.family_steps // 6, 1)


def _likelihood_first(
    objective: AbstractObjective,
    config: Any,
    samples: Array,
    key_g: Array,
    key: Array,
    spent: Callable[[], bool],
) -> Fit:
    """Train `g⁻¹ ∘ Swap ∘ g` by likelihood, and then a little by an adversarial objective.

    States are scaled so that p ⊗ Y has the entropy of N(0, I), or no map that keeps volume could
    take one to the other.
    """
    cascade = additive_cascade(key_g, 4, 6, mlp(64, last_scale=0.1))
    g = fb.Chain([state_scaling(SCALE, 2, 2), cascade]).merge_chains()
    kernel = Kernel(mog6(), Conjugate(g, PermutationBlock.swap(4)), standard_normal(2), first_law())
    steps, more, shared = config.family_steps, _after(config), {"label": FIRST, "spent": spent}
    by_likelihood = Likelihood(optax.adam(optax.cosine_decay_schedule(3e-3, steps)))
    key_first, key_after = jr.split(key)
    loop = TrainConfig(steps, min(500, steps), None, seconds=config.seconds)
    first = fit(kernel, by_likelihood, samples, key=key_first, config=loop, **shared)
    loop = replace(loop, steps=more, chunk=min(500, more), keep="last")
    after = fit(first.kernel, objective, samples, key=key_after, config=loop, **shared)
    began = first.history[-1]
    rows = [
        row | {"step": row["step"] + began["step"], "seconds": row["seconds"] + began["seconds"]}
        for row in after.history
    ]
    return replace(after, history=rows)

"""The paper's way to learn from nothing, as a strategy of `learn`.

The paper's network is trained by its adversarial objective, with the posterior draws replaced by
the chain's own, refreshed on a schedule with a discard ratio (`bootstrap.py`). It learns what its
chains have found: use it to compare, not to search for modes.
"""

from dataclasses import replace

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.distributions import StandardNormal
from jaxtyping import Array, Key

from involutive._xla.batched import LawRows
from involutive._xla.compilation import on_device
from involutive.core.keys import split
from involutive.involutions.architectures import paper_network
from involutive.kernel.classical import random_walk
from involutive.kernel.kernel import Kernel
from involutive.learning.budget import Meter
from involutive.learning.find.annealing import finite_draws
from involutive.learning.fit.recipe import Trained
from involutive.learning.outcome import Learned
from involutive.learning.refine.local import gradients_useful, local_move
from involutive.learning.refine.rounds import Learner
from involutive.training.bootstrap import BootstrapConfig, bootstrap
from involutive.training.fit import TrainConfig
from involutive.training.mgan.config import MganConfig
from involutive.training.mgan.objective import Mgan

AUXILIARY = 30  # the paper's auxiliary dimension in two dimensions
CHANCE = 0.3  # of a local move in the kernel that is returned


def schedule(scale: float) -> BootstrapConfig:
    """A-NICE-MC's ten rounds, each made shorter, or fewer for a smaller budget."""
    share = min(scale, 1.0)
    steps = max(int(300 * share), 20)
    return BootstrapConfig(
        rounds=max(int(10 * share**0.5), 2),
        train=TrainConfig(steps=steps, chunk=steps, patience=None),
        draws=max(int(500 * share), 50),
        burn_in=max(int(200 * share), 20),
    )


def learn_by_bootstrap(learner: Learner, config: BootstrapConfig, key: Key[Array, ""]) -> Learned:
    """Train the paper's network on its own draws, and compose it with a local move."""
    key_net, key_start, key_train, key_finish = jr.split(key, 4)
    target, dim = learner.target, learner.target.dim
    auxiliary = max(AUXILIARY, 2 * dim) + dim % 2
    network = paper_network(key_net, dim, auxiliary)
    kernel = Kernel(target, network, StandardNormal((auxiliary,)), learner.law)
    starts = finite_draws(learner.rows, LawRows(learner.law), key_start, 64)[0]
    gradients = gradients_useful(learner.rows, starts)
    step = on_device(0.5 * np.std(starts, axis=0))
    first = None if gradients else random_walk(target, jnp.diag(step), learner.law)
    config, meter = _limited(config, learner.meter), learner.meter
    made = bootstrap(
        kernel, Mgan(MganConfig.combined()), key=key_train, first=first, config=config,
        progress=learner.progress, spent=lambda: not meter.allows(0),
    )  # fmt: skip
    rounds = int(made.fit.history[-1]["round"]) + 1
    meter.spend(rounds * _evaluations_a_round(config))
    last = made.fit.history[-1]
    trained = Trained(
        made.kernel, last.get("acceptance", 0.0), last.get("ess", 0.0), _named(made.fit.history)
    )
    points: Array = on_device(made.samples[-20_000:])
    key_local, key_pilot = split(key_finish, 2)
    local = local_move(target, points, key_local, gradients=gradients, initial=learner.law)
    return learner.composed(trained, local, rounds, key_pilot, learner.law, (CHANCE,))


def _limited(config: BootstrapConfig, meter: Meter) -> BootstrapConfig:
    """With a limit in seconds, as much of what is left for every round, looked at more often."""
    if meter.seconds_left is None:
        return config
    seconds, chunk = meter.seconds_left / config.rounds, max(config.train.steps // 5, 1)
    return replace(config, train=replace(config.train, seconds=seconds, chunk=chunk))


def _named(history: list[dict[str, float]]) -> list[dict[str, object]]:
    return [{"stage": "bootstrap", **row} for row in history]


def _evaluations_a_round(config: BootstrapConfig) -> int:
    """Density evaluations of a refresh and of the rollouts, a local move counted as one."""
    rollouts = MganConfig.combined()
    update = rollouts.batch * (rollouts.critic_steps + 1) * (rollouts.steps + rollouts.data_steps)
    return config.chains * (config.draws + config.burn_in) + config.train.steps * update

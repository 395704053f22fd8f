"""The paper's way to learn without draws, as a strategy of `learn`.

The paper's network is trained by its adversarial objective, with the posterior draws replaced by
the chain's own, refreshed on a schedule with a discard ratio (`training/bootstrap.py`). It learns
only the modes that its chains have found: use it for comparisons, not to search for modes.
"""

import jax.numpy as jnp
import numpy as np
from flowjax.distributions import StandardNormal

from involutive._xla.batched import BatchedDistribution
from involutive._xla.compilation import on_device
from involutive.core.keys import split
from involutive.core.types import Number
from involutive.involutions.architectures import paper_network
from involutive.kernel.classical import random_walk
from involutive.kernel.kernel import Kernel
from involutive.learning.find.annealing import finite_draws
from involutive.learning.find.climbs import Climbed
from involutive.learning.find.search import gradients_useful
from involutive.learning.judge.ended_early import best_so_far
from involutive.learning.judge.measure import best_composition
from involutive.learning.outcome import Learned
from involutive.learning.problem import Problem, Spending
from involutive.learning.refine.local import local_move
from involutive.learning.settings import BootstrapSettings
from involutive.learning.stages import Cost, Fitted, Found, Looked, Proposal, Row
from involutive.training.bootstrap import BootstrapConfig, Bootstrapped, bootstrap
from involutive.training.fit import TrainConfig
from involutive.training.mgan.config import MganConfig
from involutive.training.mgan.objective import Mgan


def learn_by_bootstrap(problem: Problem) -> Learned:
    """Train the paper's network on its own draws, and compose it with a local move.

    Ctrl-C leaves a random walk: a network that is trained in part may be worse than one.
    """
    try:
        return _trained(problem)
    except KeyboardInterrupt:
        return best_so_far(problem, None, "interrupted")


def _trained(problem: Problem) -> Learned:
    key_net, key_start, key_train, key_local, key_pilot = split(problem.keys.rounds, 5)
    target, law, settings = problem.target, problem.initial, problem.settings
    how, spending = settings.bootstrap, problem.spend(settings.budget.rounds, Cost())
    auxiliary = max(how.auxiliary, how.auxiliary_per_dim * target.dim) + target.dim % 2
    network = paper_network(key_net, target.dim, auxiliary)
    kernel = Kernel(target, network, StandardNormal((auxiliary,)), law)
    x = BatchedDistribution(law)
    starts = finite_draws(spending.density, x, key_start, how.starts, settings.search).points
    if not len(starts):
        return best_so_far(problem, None, "budget")
    gradients = gradients_useful(spending.density, starts, settings.search)
    step = on_device(how.first_step * np.std(starts, axis=0))
    first = None if gradients else random_walk(target, jnp.diag(step), law)
    config = schedule(problem.plan.scale, spending, how)
    made = bootstrap(
        kernel, Mgan(MganConfig.combined()), key=key_train, first=first, config=config,
        progress=problem.progress, spent=lambda: not spending.allows(),
    )  # fmt: skip
    fitted = _fitted(made, config, starts, gradients, spending)
    local = local_move(
        target, on_device(made.samples[-settings.training_draws :]), key_local, settings,
        gradients=gradients, initial=law,
    )  # fmt: skip
    places = starts[np.resize(np.arange(len(starts)), settings.pilot_chains)]
    elsewhere = np.zeros(len(places), bool)
    return best_composition(
        problem, problem.spend(settings.budget.look, fitted.cost), fitted, fitted.proposal, local,
        law, (how.chance,), places, elsewhere, key_pilot,
    )  # fmt: skip


def schedule(scale: Number, spending: Spending, settings: BootstrapSettings) -> BootstrapConfig:
    """A-NICE-MC's schedule of ten rounds; a smaller budget has fewer and shorter ones."""
    share = min(scale, 1.0)
    steps = max(int(settings.updates * share), settings.least_updates)
    rounds = max(int(settings.rounds * share**0.5), settings.least_rounds)
    seconds = max(spending.allowance.seconds, 0.1) / rounds
    chunk = max(steps // settings.looks, 1)
    train = TrainConfig(steps=steps, chunk=chunk, patience=None, seconds=seconds)
    return BootstrapConfig(
        rounds=rounds,
        train=train,
        draws=max(int(settings.draws * share), settings.least_draws),
        burn_in=max(int(settings.burn_in * share), settings.least_burn_in),
    )


def _fitted(
    made: Bootstrapped,
    config: BootstrapConfig,
    starts: np.ndarray,
    gradients: bool,
    spending: Spending,
) -> Fitted:
    last = made.fit.history[-1]
    rounds = int(last["round"]) + 1
    spending.note(rounds * _evaluations_per_round(config))
    history: list[Row] = [{"stage": "bootstrap", **row} for row in made.fit.history]
    ess = last.get("ess", 0.0)
    proposal = Proposal(made.kernel, last.get("acceptance", 0.0), ess, 0, history)
    cost = spending.cost
    none = Climbed.none(starts.shape[1], starts.dtype).laplace(spending.problem.settings.search)
    found = Found(made.samples, starts, *none, -np.inf, gradients, True, cost)
    reached: list[Row] = [{"seconds": cost.seconds, "ess": ess}]
    return Fitted(
        found, proposal, made.samples, starts, starts[:0], rounds, True, 0.0, Looked(), cost,
        reached,
    )  # fmt: skip


def _evaluations_per_round(config: BootstrapConfig) -> int:
    """Density evaluations of a refresh and of the rollouts; a local move counts as one."""
    rollouts = MganConfig.combined()
    update = rollouts.batch * (rollouts.critic_steps + 1) * (rollouts.steps + rollouts.data_steps)
    return config.chains * (config.draws + config.burn_in) + config.train.steps * update

"""The paper's way to learn without draws, as a strategy of `learn`.

The paper's network is trained by its adversarial objective, with the posterior draws replaced by
the chain's own, refreshed on a schedule with a discard ratio (`training/bootstrap.py`). It learns
what its chains have found: use it to compare, not to search for modes.
"""

import jax.numpy as jnp
import numpy as np
from flowjax.distributions import StandardNormal

from involutive._xla.batched import BatchedDistribution
from involutive._xla.compilation import on_device
from involutive.core.keys import split
from involutive.involutions.architectures import paper_network
from involutive.kernel.classical import random_walk
from involutive.kernel.kernel import Kernel
from involutive.learning.budget import ROUNDS
from involutive.learning.find.annealing import finite_draws
from involutive.learning.find.climbs import Climbed
from involutive.learning.find.search import gradients_useful
from involutive.learning.judge.compose import best_composition, best_so_far
from involutive.learning.outcome import Learned
from involutive.learning.problem import Problem, Spending
from involutive.learning.refine.local import local_move
from involutive.learning.stages import Cost, Fitted, Found, Looked, Proposal, Row
from involutive.training.bootstrap import BootstrapConfig, Bootstrapped, bootstrap
from involutive.training.fit import TrainConfig
from involutive.training.mgan.config import MganConfig
from involutive.training.mgan.objective import Mgan

AUXILIARY = 30  # the paper's auxiliary dimension in two dimensions
CHANCE = 0.3  # of a local move in the kernel that is returned; a guess


def learn_by_bootstrap(problem: Problem) -> Learned:
    """Train the paper's network on its own draws, and compose it with a local move."""
    key_net, key_start, key_train, key_local, key_pilot = split(problem.keys.rounds, 5)
    target, law, spending = problem.target, problem.law, problem.spend(ROUNDS, Cost())
    auxiliary = max(AUXILIARY, 2 * target.dim) + target.dim % 2
    network = paper_network(key_net, target.dim, auxiliary)
    kernel = Kernel(target, network, StandardNormal((auxiliary,)), law)
    starts = finite_draws(spending.density, BatchedDistribution(law), key_start, 64)[0]
    if not len(starts):
        return best_so_far(problem, None, "budget")
    gradients = gradients_useful(spending.density, starts)
    step = on_device(0.5 * np.std(starts, axis=0))
    first = None if gradients else random_walk(target, jnp.diag(step), law)
    config = schedule(problem.plan.budget.scale, spending)
    made = bootstrap(
        kernel, Mgan(MganConfig.combined()), key=key_train, first=first, config=config,
        progress=problem.progress, spent=lambda: not spending.allows(),
    )  # fmt: skip
    fitted = _fitted(made, config, starts, gradients, spending)
    local = local_move(
        target, on_device(made.samples[-problem.settings.training_draws :]), key_local,
        gradients=gradients, initial=law,
    )  # fmt: skip
    places = starts[np.resize(np.arange(len(starts)), problem.settings.pilot_chains)]
    elsewhere = np.zeros(len(places), bool)
    return best_composition(
        problem, problem.spend(1.0, fitted.cost), fitted, fitted.proposal, local, law, (CHANCE,),
        places, elsewhere, key_pilot,
    )  # fmt: skip


def schedule(scale: float, spending: Spending) -> BootstrapConfig:
    """A-NICE-MC's ten rounds, each made shorter, or fewer for a smaller budget."""
    share = min(scale, 1.0)
    steps, rounds = max(int(300 * share), 20), max(int(10 * share**0.5), 2)
    seconds = max(spending.allowance.seconds, 0.1) / rounds
    train = TrainConfig(steps=steps, chunk=max(steps // 5, 1), patience=None, seconds=seconds)
    return BootstrapConfig(
        rounds=rounds,
        train=train,
        draws=max(int(500 * share), 50),
        burn_in=max(int(200 * share), 20),
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
    none = Climbed.none(starts.shape[1], starts.dtype).laplace()
    found = Found(made.samples, starts, *none, -np.inf, gradients, True, cost)
    reached: list[Row] = [{"seconds": cost.seconds, "ess": ess}]
    return Fitted(
        found, proposal, made.samples, starts, starts[:0], rounds, True, 0.0, Looked(), cost,
        reached,
    )  # fmt: skip


def _evaluations_per_round(config: BootstrapConfig) -> int:
    """Density evaluations of a refresh and of the rollouts, a local move counted as one."""
    rollouts = MganConfig.combined()
    update = rollouts.batch * (rollouts.critic_steps + 1) * (rollouts.steps + rollouts.data_steps)
    return config.chains * (config.draws + config.burn_in) + config.train.steps * update

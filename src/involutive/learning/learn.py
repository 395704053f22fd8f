"""`learn`: from a log density to a kernel.

1. Find where the density lives (`climbs.py`, `start.py`): climbs from X, and annealing from X, or
   draws of X resampled by weight where enough of them count.
2. Weigh what was found (`importance.py`): a mixture is fitted to the target by its own
   importance-weighted draws. The points found need the right support only. Where that suffices, by
   itself or with HMC before every proposal, and chains bear it out, learning ends here: go to 5.
   Where weights tell too little, the proposal is trained on the points found instead.
3. Run many chains with that proposal and a local move. The kernel is exact, so the chains repair
   the weights of the modes. Their states train the proposal of the next round (`recipe.py`).
4. Stop when the effective draws per draw and the spread of the draws no longer change; train once
   more at full length.
5. Compose proposal and local move, and measure the result on chains started apart.

Everything learned is fixed before the first draw is kept.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from flowjax.distributions import AbstractDistribution, Normal
from jax.sharding import Mesh
from jaxtyping import Array

from involutive._xla.batched import BLOCK, Rows
from involutive._xla.compilation import jit_once, make_room, on_device
from involutive._xla.cost import SEARCH_OPERATIONS, TRAINING_OPERATIONS, affordable, operations
from involutive.core.errors import InputError, check
from involutive.core.keys import as_key, split
from involutive.learning.bootstrap import learn_by_bootstrap, schedule
from involutive.learning.budget import Meter, as_budget
from involutive.learning.effort import Effort
from involutive.learning.find.search import Search
from involutive.learning.fit.recipe import Recipe
from involutive.learning.outcome import Learned
from involutive.learning.refine.checkpoint import SavedRounds
from involutive.learning.refine.rounds import REACHES, Learner
from involutive.sampling.devices import devices_here
from involutive.storage.format import PathLike
from involutive.targets.fingerprint import check_density
from involutive.targets.target import Target
from involutive.training.fit import check_samples

STRATEGIES = ("recipe", "bootstrap")
WIDE = 3.0  # sd of the default initial law


def learn(
    target: Any,
    *,
    key: Any,
    samples: Any = None,
    initial: Any = None,
    budget: Any = None,
    strategy: str = "recipe",
    recipe: Recipe | None = None,
    effort: Effort | None = None,
    checkpoint: PathLike | None = None,
    resume: bool = False,
    progress: bool | None = None,
    mesh: Mesh | None = None,
) -> Learned:
    """Learn a kernel for `target`, from the density alone or from draws.

    Args:
        target: the density.
        key: an int seed or a JAX key; learning is deterministic given it, unless a budget in
            seconds cuts it short.
        samples: (approximate) posterior draws `(n, dim)`; the search for modes is skipped then.
        initial: the law X to start from, or starting points `(n, dim)`; by default the
            target's prior where it has one, else N(0, 3² I).
        budget: seconds, or `Budget(seconds=..., evaluations=...)`.
        strategy: "recipe", or "bootstrap": the paper's network and adversarial objective, trained
            on the chain's own draws (`by_bootstrap.py`); it finds no mode that its chains miss.
        recipe: sizes of the proposal and its training.
        effort: sizes of the search and of the rounds; less for a density of much work.
        checkpoint: a file that learning is saved in before every round.
        resume: go on from `checkpoint`, to the same kernel as without the interruption, or begin
            if there is none.
        progress: show progress; by default on a terminal.
        mesh: devices to spread chains and training batches over. With several processes each
            learns the same kernel on its own devices; nothing is sent between them.

    Returns:
        A kernel for `sample`, with `outcome`: what was reached, and what to try if that is not
        enough. It is exact in every case.
    """
    check(
        isinstance(target, Target),
        f"target must be a Target, got {type(target).__name__}; "
        "wrap a log density as inv.Target(log_density, dim=...)",
    )
    check(
        strategy in STRATEGIES,
        f"strategy must be one of {', '.join(STRATEGIES)}, got {strategy!r}",
    )
    check(
        strategy == "recipe" or (samples is None and checkpoint is None),
        "strategy='bootstrap' learns from its own draws and keeps no checkpoint; "
        "leave samples= and checkpoint= out",
    )
    make_room()
    root = as_key(key)
    law = initial_law(target.initial if initial is None else initial, target.dim)
    meter = Meter(as_budget(budget))
    rows = None if samples is None else check_samples(samples, target.dim)
    check_density(target)
    scale, work = meter.budget.scale, operations(target.log_density, target.dim)
    search = scale * affordable(work, SEARCH_OPERATIONS)
    rounds = scale * affordable(work, TRAINING_OPERATIONS)
    effort = (effort or Effort()).scaled(search, rounds)
    recipe = (recipe or Recipe()).shorter(1 / min(rounds, 1.0), least=50)
    block = min(BLOCK, 1 << (effort.climbers.bit_length() - 1))  # so few of a density of much work
    rows_of = Rows(target.log_density, target.dim, block)
    learner = Learner(target, law, meter, effort, recipe, progress, rows_of, devices_here(mesh))
    if strategy == "bootstrap":
        return learn_by_bootstrap(learner, schedule(scale), root)
    key_find, key_rounds, key_polish, key_finish = split(root, 4)
    if rows is not None:
        return learner.finish(learner.train(rows, key_rounds, None), rows, 0, key_finish)
    saved = None if checkpoint is None else SavedRounds(checkpoint, learner, root, resume)
    at = saved.read() if saved else None
    try:
        if at is None:
            found = Search(rows_of, law, meter, effort, progress).find(key_find, initial)
            at = learner.weigh(found, key_rounds)
            if at.trained.ess < REACHES:
                at = learner.first_round(found, at)
            elif not at.done:
                learner.prepare(at)
        if at.number == 0 and at.done:
            if saved:
                saved.write(at)
            learned = learner.finish_weighed(at, key_finish)
            if learned is not None:
                return learned
            at = at._replace(done=False)
            learner.prepare(at)
        while learner.more(at):
            if saved:
                saved.write(at)
            at = learner.next_round(at)
        return learner.finish(learner.polish(at, key_polish), at.draws, at.number, key_finish)
    finally:
        learner.ahead.close()


def initial_law(initial: Any, dim: int) -> AbstractDistribution:
    """The law X: as given, a normal around given points, or N(0, 3² I)."""
    if initial is None:
        return _normal(np.zeros(dim), np.full(dim, WIDE))
    if isinstance(initial, AbstractDistribution):
        check(
            initial.shape == (dim,) and initial.cond_shape is None,
            f"initial must be a law of {dim} coordinates, got shape {initial.shape}",
        )
        return initial
    try:
        points = np.asarray(initial, dtype=jnp.result_type(float))
    except (TypeError, ValueError) as error:
        found = type(initial).__name__
        raise InputError(f"initial must be a law or points (n, {dim}), got {found}") from error
    check(
        points.ndim == 2 and points.shape[1] == dim and len(points) > 0,
        f"initial must be a law or points of shape (n, {dim}), got shape {points.shape}",
    )
    check(np.isfinite(points).all(), "initial must be finite, got NaN or infinite points")
    spread = np.maximum(2 * points.std(axis=0), 1e-3 * (1 + np.abs(points).max(axis=0)))
    return _normal(points.mean(axis=0), spread)


def _normal(mean: np.ndarray, spread: np.ndarray) -> AbstractDistribution:
    parts = (on_device(part.astype(jnp.result_type(float))) for part in (mean, spread))
    return _compiled_normal(*parts)


@jit_once
def _compiled_normal(mean: Array, spread: Array) -> Normal:
    return Normal(mean, spread)

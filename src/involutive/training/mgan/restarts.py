"""Adversarial training from several networks: short trainings first, then a long one of the best.

Networks that differ in nothing but their key are far apart after a short training. So several are
trained briefly, and the one with the most effective draws per draw on held-out draws is trained on.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import jax.random as jr
from jaxtyping import Array, Key

from involutive.core.errors import check, check_count
from involutive.core.types import ArrayLike
from involutive.kernel.kernel import Kernel
from involutive.training.fit import Fit, TrainConfig, fit
from involutive.training.mgan.objective import Mgan


@dataclass(frozen=True)
class Restarts:
    """How many networks are trained briefly, for how long, and by what.

    Attributes:
        count: networks that are tried.
        steps: updates of each.
        objective: what those updates improve; it shares its kind of critic with the long training.
        points: held-out draws that the networks are compared on; the error of an autocorrelation
            is one over their square root.
    """

    count: int
    steps: int
    objective: Mgan
    points: int = 7500

    def __post_init__(self) -> None:
        for name in ("count", "steps", "points"):
            check_count(name, getattr(self, name))


def fit_best(
    make: Callable[[Key[Array, ""]], Kernel],
    restarts: Restarts,
    objective: Mgan,
    samples: ArrayLike,
    *,
    key: Key[Array, ""],
    config: TrainConfig,
    label: str = "training",
    spent: Callable[[], bool] = lambda: False,
) -> Fit:
    """Train `restarts.count` networks briefly and the best of them on, with its critic.

    Args:
        make: draws an untrained kernel.
        restarts: the short trainings.
        objective: what the long training improves.
        samples: draws of the target, `(n, dim)`.
        key: a JAX key.
        config: of the long training; its steps are those of all trainings together.
        label: the caption of the progress bar.
        spent: asked after every chunk; training ends once it is true.

    Returns:
        The fit of the long training; its history counts that training's updates only.
    """
    left = config.steps - restarts.count * restarts.steps
    check(
        left > 0,
        f"steps must exceed those of the restarts, {restarts.count} x {restarts.steps}, "
        f"got {config.steps}",
    )
    key_first, key_init, key_long = jr.split(key, 3)
    brief = replace(
        config, steps=restarts.steps, chunk=restarts.steps, monitor=restarts.points, keep="last"
    )

    def short(number: int) -> Fit:
        key_network, key_fit = jr.split(jr.fold_in(key_first, number))
        done = (number * restarts.steps, config.steps)
        return fit(
            make(key_network), restarts.objective, samples, key=key_fit, config=brief, label=label,
            part=done,
        )  # fmt: skip

    best = max((short(number) for number in range(restarts.count)), key=_effective_draws)
    memory = objective.init(best.kernel, key_init)._replace(critics=best.memory.critics)
    return fit(
        best.kernel, objective, samples, key=key_long, config=replace(config, steps=left),
        label=label, memory=memory, spent=spent, part=(config.steps - left, config.steps),
    )  # fmt: skip


def _effective_draws(done: Fit) -> float:
    return done.history[-1]["ess"]

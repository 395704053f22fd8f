"""The MGAN objective's settings: the paper's, what works, and what also mixes."""

from dataclasses import dataclass, field, replace
from typing import Any

import optax

from involutive.core.errors import check, check_count


def _rmsprop() -> optax.GradientTransformation:
    return optax.rmsprop(5e-4)


def _adam(learning_rate: float, decay: int | None) -> optax.GradientTransformation:
    if decay is None:
        return optax.adam(learning_rate, b1=0.5, b2=0.9)
    fall = optax.cosine_decay_schedule(learning_rate, decay - decay // 2)
    held = optax.constant_schedule(learning_rate)
    rate = optax.join_schedules([held, fall], [decay // 2])
    return optax.adam(rate, b1=0.5, b2=0.9)


@dataclass(frozen=True)
class MganConfig:
    """The objective and how it is optimised. The defaults are the paper's Algorithm 1.

    Attributes:
        steps: b, steps from X.
        data_steps: m, steps from a draw of the target.
        balance: λ; 1 uses the first term only, 0 the second only.
        pairwise: judge the second term by a critic of pairs.
        batch: chains a rollout.
        critic_steps: critic updates before each generator update.
        clamp: w, the bound on the critic's weights, or None.
        penalty: weight of the gradient penalty, or None.
        critic_width, critic_depth: hidden layers of a critic.
        scale: states are divided by this before a critic sees them.
        rescue: while no proposal is accepted, moves count as accepted with at least this
            probability, so that the critic's gradient reaches the network; None never does.
        soften, margin: T and m; moves count as accepted with probability min(1, (ratio/eᵐ)^(1/T)).
            Where the ratio is above one, or far below, min(1, ratio) has no gradient: with T = 1
            and m = 0 nothing keeps proposals from the brink, nor brings back those beyond it.
        every, age: every so many-th rollout from X begins where a chain is that runs beside
            training and begins anew after `age` steps on average: so states that missed the modes
            are met as they come, as with a larger b, at the price of one step; None for no chains.
        optimiser, critic_optimiser: Optax transformations.
    """

    steps: int = 2
    data_steps: int = 2
    balance: float = 1.0
    pairwise: bool = False
    batch: int = 256
    critic_steps: int = 1
    clamp: float | None = 0.1
    penalty: float | None = None
    critic_width: int = 64
    critic_depth: int = 1
    scale: float = 1.0
    rescue: float | None = None
    soften: float | int = 1.0
    margin: float | int = 0.0
    every: int | None = None
    age: float | int = 8
    optimiser: optax.GradientTransformation = field(default_factory=_rmsprop)
    critic_optimiser: optax.GradientTransformation = field(default_factory=_rmsprop)

    def __post_init__(self) -> None:
        for name in ("steps", "data_steps", "critic_steps", "critic_width", "critic_depth"):
            check_count(name, getattr(self, name))
        check_count("batch", self.batch, least=2)
        check(0 <= self.balance <= 1, f"balance must be in [0, 1], got {self.balance}")
        check(self.scale > 0, f"scale must be positive, got {self.scale}")
        check(self.soften >= 1, f"soften must be at least 1, got {self.soften}")
        check(self.margin >= 0, f"margin must not be negative, got {self.margin}")
        if self.every is not None:
            check_count("every", self.every)
        check(self.age >= 1, f"age must be at least 1, got {self.age}")
        for name in ("clamp", "penalty"):
            value = getattr(self, name)
            check(value is None or value > 0, f"{name} must be positive or None, got {value}")
        check(
            self.clamp is not None or self.penalty is not None,
            "a critic needs a bound on its slope, got neither clamp nor penalty; pass penalty=1.0",
        )
        rescue = self.rescue
        check(rescue is None or 0 < rescue <= 1, f"rescue must be in (0, 1], got {rescue}")

    @staticmethod
    def paper(learning_rate: float = 5e-4, **changes: Any) -> "MganConfig":
        """Algorithm 1: λ = 1, one critic step a generator step, RMSProp, clamped weights."""
        rmsprop = optax.rmsprop(learning_rate)
        return replace(MganConfig(optimiser=rmsprop, critic_optimiser=rmsprop), **changes)

    @staticmethod
    def tuned(
        learning_rate: float = 2e-3, decay: int | None = None, **changes: Any
    ) -> "MganConfig":
        """λ = 1 with what works: three critic steps, gradient penalty, Adam(β 0.5, 0.9).

        Late training is unstable at the full rate: if `decay` is given, the length of training in
        generator steps, both rates fall to zero over its second half.
        """
        count = int(changes.get("critic_steps", 3))
        config = MganConfig(
            critic_steps=count, clamp=None, penalty=1.0, scale=4.0, rescue=0.5,
            optimiser=_adam(learning_rate, decay),
            critic_optimiser=_adam(learning_rate, None if decay is None else count * decay),
        )  # fmt: skip
        return replace(config, **changes)

    @staticmethod
    def combined(
        learning_rate: float = 2e-3, decay: int | None = None, **changes: Any
    ) -> "MganConfig":
        """Both terms, the second judged by a critic of pairs: fast from X, and moving."""
        config = {"balance": 0.3, "pairwise": True} | changes
        return MganConfig.tuned(learning_rate, decay, **config)

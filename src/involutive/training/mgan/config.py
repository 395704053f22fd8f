"""The MGAN objective's settings: the paper's, what works from X, and what mixes."""

from dataclasses import dataclass, field, replace
from typing import Any

import optax

from involutive.core.errors import check, check_count
from involutive.training.mgan.critics import adversarial_adam
from involutive.training.soap import scale_by_soap

EARLY = 0.1  # share of a training of `mixing` before its rates fall
FIRST_SHARE = 1 / 3  # of the ratio's weight at the first update of `mixing`; one seed of mog6
LONGEST = 5.0  # norm that gradients of the generator are clipped at in `mixing`; a guess


def _rmsprop() -> optax.GradientTransformation:
    return optax.rmsprop(5e-4)


def _rate(learning_rate: float, decay: int | None, held: float = 0.5) -> optax.ScalarOrSchedule:
    """A rate that is constant for a share of `decay` steps, then falls along a cosine."""
    if decay is None:
        return learning_rate
    first = int(held * decay)
    fall = optax.cosine_decay_schedule(learning_rate, max(decay - first, 1))
    return optax.join_schedules([optax.constant_schedule(learning_rate), fall], [first])


@dataclass(frozen=True)
class MganConfig:
    """The objective and how it is optimised. The defaults are the paper's Algorithm 1.

    Attributes:
        steps: b, steps from X.
        data_steps: m, steps from a draw of the target.
        balance: λ; 1 uses the first term only, 0 the second only.
        pairwise: judge the second term by a critic of pairs.
        proposals: judge one raw proposal (x, φ') in the second term, instead of the state the
            chain has after m steps. A critic of accepted states is content with staying put.
        ratio: μ, the weight of `E[√(1 + log²r) - 1]` over those proposals, r the acceptance
            ratio. `min(1, r)` has no gradient above one and hardly any far below; this has one
            everywhere, and it alone asks for r = 1, where every proposal is accepted.
        first_share: share of μ that the first update has; the weight grows to μ geometrically
            over `growth` updates. At the full weight from the start, proposals of one network on
            mog6 stayed dependent on the state (0.07 effective draws per draw, 0.35 with growth).
        growth: updates over which the weight of the ratio grows.
        first_ratio: weight of `E[log(1 + 1/r)]` over first proposals from X, which asks that
            those are accepted, because the second term meets no states of X. A quarter of a
            batch is enough.
        batch: rollouts per update of the generator.
        critic_steps: critic updates before each generator update.
        clamp: w, the bound on the critic's weights, or None.
        penalty: weight of the gradient penalty, or None.
        penalised: share of a batch at which the penalty is taken.
        critic_width, critic_depth: hidden layers of a critic.
        leak: slope of a critic's ReLU below zero; 0 in the paper.
        scale: states are divided by this before a critic sees them.
        optimiser, critic_optimiser: Optax transformations.
    """

    steps: int = 2
    data_steps: int = 2
    balance: float = 1.0
    pairwise: bool = False
    proposals: bool = False
    ratio: float = 0.0
    first_share: float = 1.0
    growth: int = 1
    first_ratio: float = 0.0
    batch: int = 256
    critic_steps: int = 1
    clamp: float | None = 0.1
    penalty: float | None = None
    penalised: float = 1.0
    critic_width: int = 64
    critic_depth: int = 1
    leak: float = 0.0
    scale: float = 1.0
    optimiser: optax.GradientTransformation = field(default_factory=_rmsprop)
    critic_optimiser: optax.GradientTransformation = field(default_factory=_rmsprop)

    def __post_init__(self) -> None:
        for name in ("steps", "data_steps", "critic_steps", "critic_width", "critic_depth"):
            check_count(name, getattr(self, name))
        check_count("growth", self.growth)
        check_count("batch", self.batch, least=2)
        check(0 < self.first_share <= 1, f"first_share must be in (0, 1], got {self.first_share}")
        check(0 <= self.balance <= 1, f"balance must be in [0, 1], got {self.balance}")
        check(self.scale > 0, f"scale must be positive, got {self.scale}")
        for name in ("ratio", "first_ratio"):
            value = getattr(self, name)
            check(value >= 0, f"{name} must not be negative, got {value}")
        check(0 <= self.leak < 1, f"leak must be in [0, 1), got {self.leak}")
        check(0 < self.penalised <= 1, f"penalised must be in (0, 1], got {self.penalised}")
        for name in ("clamp", "penalty"):
            value = getattr(self, name)
            check(value is None or value > 0, f"{name} must be positive or None, got {value}")
        check(
            self.clamp is not None or self.penalty is not None,
            "a critic needs a bound on its slope, got neither clamp nor penalty; pass penalty=1.0",
        )
        check(
            self.balance < 1 or not (self.proposals or self.ratio),
            "proposals and ratio belong to the second term, got balance=1, which leaves it out; "
            "pass balance=0.0",
        )

    @staticmethod
    def paper(learning_rate: float = 5e-4, **changes: Any) -> "MganConfig":
        """Algorithm 1: λ = 1, one critic step per generator step, RMSProp, clamped weights."""
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
            critic_steps=count, clamp=None, penalty=1.0, scale=4.0,
            optimiser=adversarial_adam(_rate(learning_rate, decay)),
            critic_optimiser=adversarial_adam(_rate(learning_rate, decay and count * decay)),
        )  # fmt: skip
        return replace(config, **changes)

    @staticmethod
    def combined(
        learning_rate: float = 2e-3, decay: int | None = None, **changes: Any
    ) -> "MganConfig":
        """Both terms, the second judged by a critic of pairs: fast from X, and moving."""
        config = {"balance": 0.3, "pairwise": True} | changes
        return MganConfig.tuned(learning_rate, decay, **config)

    @staticmethod
    def mixing(
        learning_rate: float = 6e-3, decay: int | None = None, held: float = EARLY, **changes: Any
    ) -> "MganConfig":
        """What mixes: a critic of pairs on raw proposals, and the acceptance ratio beside it.

            min_θ max_D  E[D(x, x̃)] - E[D(x, φ')] + μ E[√(1 + log²r) - 1],    x, x̃ ~ p

        Pass `scale`, the standard deviation of the target, and `decay`, the length of training:
        after the share `held` of it the rates fall, because most is gained while they do, and the
        weight of the ratio grows all along. The generator is optimised by SOAP: 5 000 updates
        from one trained network on mog6 raised acceptance by 0.044, and by 0.022 with Adam.
        """
        growing = {} if decay is None else {"first_share": FIRST_SHARE, "growth": decay}
        config = {
            "balance": 0.0, "pairwise": True, "proposals": True, "ratio": 0.3, "first_ratio": 0.1,
            "critic_width": 128, "critic_depth": 2, "leak": 0.2, "critic_steps": 1,
            "penalised": 0.25,
        } | growing | changes  # fmt: skip
        count = int(config["critic_steps"])
        soap = optax.chain(
            optax.clip_by_global_norm(LONGEST),
            scale_by_soap(),
            optax.scale_by_learning_rate(_rate(learning_rate, decay, held)),
        )
        falling = {
            "optimiser": soap,
            "critic_optimiser": adversarial_adam(
                _rate(learning_rate, decay and count * decay, held)
            ),
        }
        return MganConfig.tuned(**(falling | config))

    @staticmethod
    def settling(
        learning_rate: float = 4e-3, decay: int | None = None, **changes: Any
    ) -> "MganConfig":
        """`mixing` for a network that mixes already: full weight of the ratio, falling rates."""
        return MganConfig.mixing(learning_rate, decay, 0.0, **({"first_share": 1.0} | changes))

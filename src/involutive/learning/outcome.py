"""What `learn` returns: a kernel with the record of how it was learned."""

from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive.core.views import view
from involutive.kernel.composite import Cycle, Mixture
from involutive.kernel.kernel import AbstractKernel, Info, Kernel, State
from involutive.storage.codec import register
from involutive.targets.target import Target

POOR = 0.5  # effective draws per draw of a proposal below which a local move goes before it


@register
@dataclass(frozen=True, eq=False)
class Outcome:
    """What learning reached.

    Attributes:
        acceptance: of the kernel in stationarity, in the pilot run.
        ess_per_draw: least over coordinates and |x|², in the pilot run.
        r_hat: largest over coordinates and |x|², over chains started apart.
        rounds: refreshes of the training draws.
        evaluations: density evaluations, a gradient counted as three.
        seconds: wall time.
        converged: whether the figures say that the kernel mixes.
        advice: what to try if not.
        history: one row a chunk of the last training.
        reached: one row a training: the seconds since learning began, and the effective draws per
            draw of its proposal on draws that it was not trained on.
    """

    acceptance: float
    ess_per_draw: float
    r_hat: float
    rounds: int
    evaluations: int
    seconds: float
    converged: bool
    advice: str
    history: list[dict[str, Any]] = field(default_factory=list)
    reached: list[dict[str, float]] = field(default_factory=list)

    @property
    def nearly_learned(self) -> float | None:
        """Seconds after which 0.9 of the final effective draws per draw were reached."""
        final = 0.9 * self.reached[-1]["ess"] if self.reached else 0.0
        return next((row["seconds"] for row in self.reached if row["ess"] >= final), None)

    def __str__(self) -> str:
        verdict = "converged" if self.converged else f"NOT converged: {self.advice}"
        return (
            f"learned in {self.seconds:.1f} s, {self.rounds} rounds, {self.evaluations:,} density "
            f"evaluations: {self.ess_per_draw:.2f} effective draws per draw at acceptance "
            f"{self.acceptance:.2f}, R-hat {self.r_hat:.3f} from separate starts; {verdict}"
        )


@register
class Learned(AbstractKernel):
    """A learned global proposal composed with a local move; fixed from here on.

    Attributes:
        initial: the law of the learned proposal, which chains start from.
        kernel: the composition that is sampled with.
        warmup: steps to throw away before the first draw, unless `sample` is told otherwise.
        outcome: what learning reached.
    """

    target: Target
    initial: AbstractDistribution | None
    kernel: AbstractKernel
    warmup: int = eqx.field(static=True)
    outcome: Outcome = eqx.field(static=True)

    @property
    def mover(self) -> AbstractKernel:
        """The composition alone, so that kernels which differ in their record compile once."""
        return self.kernel.mover

    def draw(self, key: Key[Array, ""]) -> Any:
        return self.kernel.draw(key)

    def move(self, noise: Any, state: State) -> tuple[State, Info]:
        return self.kernel.move(noise, state)

    @property
    def proposal(self) -> Kernel:
        """The learned global proposal alone."""
        parts = self.kernel.kernels if isinstance(self.kernel, Mixture | Cycle) else (self.kernel,)
        return next(part for part in reversed(parts) if isinstance(part, Kernel))

    def __repr__(self) -> str:
        return f"Learned({self.target.name}: {self.outcome})"

    def _repr_html_(self) -> str:
        return view("learned_html")(self)


def compose(proposal: Kernel, local: Kernel, chance: float) -> AbstractKernel:
    """Join a global proposal with a local move, made with probability `chance`.

    The local move makes the kernel irreducible whatever was learned, and frees chains from states
    that the proposal rarely reaches. At `chance` one it is made before every global move.
    """
    if chance >= 1:
        return Cycle([local, proposal])
    return Mixture([local, proposal], [chance, 1 - chance])


def local_chances(ess: float, cheap: bool) -> tuple[float, ...]:
    """How often to move locally, in the order to try, for a proposal of that many effective draws.

    A good proposal needs local moves rarely; a poor one before every global move. `cheap` says that
    a local move costs one density evaluation.
    """
    if ess < POOR:
        return (0.3,) if cheap else (1.0,)
    return (0.005, 0.05, 0.3) if ess >= 0.75 else (0.05, 0.3)

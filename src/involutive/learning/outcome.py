"""What `learn` returns: a kernel with the record of how it was learned."""

from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
from flowjax.bijections import Identity
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Float, Key

from involutive.core.views import view
from involutive.involutions.blocks import FunctionBlock
from involutive.kernel.composite import Cycle, Mixture
from involutive.kernel.kernel import AbstractKernel, Info, Kernel, State
from involutive.kernel.replicas import Tempered
from involutive.learning.stages import Looked, Row
from involutive.storage.codec import register
from involutive.targets.target import Target


@register
@dataclass(frozen=True, eq=False)
class Outcome:
    """The record of learning: metrics of the learned kernel, cost and history.

    Args:
        acceptance: acceptance rate of the kernel in the pilot run.
        ess_per_draw: effective draws per draw, the minimum over coordinates and |x|².
        r_hat: R-hat of chains from separate starts, the maximum over coordinates and |x|²; NaN if
            learning was frugal, which runs no chains.
        rounds: rounds of chains and training.
        evaluations: density evaluations; a gradient counts as three.
        seconds: wall time.
        converged: whether the metrics say that the kernel mixes.
        advice: what to try if not.
        history: one row per step of fitting and training.
        reached: one row per training: the seconds since learning began, and the effective draws per
            draw of its proposal on draws that it was not trained on.
        ended: "finished", "budget" or "interrupted".
        modes: modes that climbs have found; 0 if nothing climbed.
        looked: the record of the searches for modes that may be missing.

    Example:
        >>> import involutive as inv
        >>> kernel = inv.learn(inv.targets.mog2_1d(), key=0, progress=False)
        >>> kernel.outcome.converged
        True
    """

    acceptance: float
    ess_per_draw: float
    r_hat: float
    rounds: int
    evaluations: int
    seconds: float
    converged: bool
    advice: str
    history: list[Row] = field(default_factory=list)
    reached: list[Row] = field(default_factory=list)
    ended: str = "finished"
    modes: int = 0
    looked: Looked | None = None

    @property
    def nearly_learned(self) -> float | None:
        """Seconds after which 0.9 of the final effective draws per draw were reached."""
        final = 0.9 * self.reached[-1]["ess"] if self.reached else 0.0
        return next((row["seconds"] for row in self.reached if row["ess"] >= final), None)

    def __str__(self) -> str:
        verdict = "converged" if self.converged else f"NOT converged: {self.advice}"
        ended = "" if self.ended == "finished" else f" ({self.ended})"
        frugal = self.looked is not None and self.looked.frugal
        by = "by weights, no pilot" if frugal else f"R-hat {self.r_hat:.3f} from separate starts"
        return (
            f"learned in {self.seconds:.1f} s{ended}, {self.rounds} rounds, "
            f"{self.evaluations:,} density evaluations: {self.ess_per_draw:.2f} effective draws "
            f"per draw at acceptance {self.acceptance:.2f}, {by}; {verdict}"
        )

    def __repr__(self) -> str:
        return f"Outcome({self})"

    def _repr_html_(self) -> str:
        return view("outcome_html")(self)

    def plot(self, axes: Any = None) -> Any:
        """Draw what learning tried: effective draws per draw of every proposal, and losses.

        Args:
            axes: Matplotlib axes to draw on; by default those of a new figure.

        Returns:
            A NumPy array of Matplotlib axes: the proposals, then one per training.

        Raises:
            InputError: if the axes do not fit.
        """
        return view("plot_outcome")(self, axes)


class Learned(AbstractKernel):
    """A learned global proposal composed with a local move; nothing is adapted any more.

    Attributes:
        target: the density it was learned for.
        initial: the distribution of the learned proposal, which most chains start from.
        kernel: the composition that `sample` runs.
        warmup: steps that `sample` discards by default.
        outcome: the record of learning.
        starts: places away from the proposal, from which one chain in four starts, so that R-hat
            does not compare the proposal with itself.

    Example:
        >>> import involutive as inv
        >>> kernel = inv.learn(inv.targets.mog2_1d(), key=0, progress=False)
        >>> isinstance(kernel, inv.Learned), kernel.proposal.target.dim
        (True, 1)
    """

    target: Target
    initial: AbstractDistribution | None
    kernel: AbstractKernel
    warmup: int = eqx.field(static=True)
    outcome: Outcome = eqx.field(static=True)
    starts: Float[Array, "n dim"] | None = None

    @property
    def mover(self) -> AbstractKernel:
        """The composition alone, so that kernels that differ in their record compile once."""
        return self.kernel.mover

    @property
    def grid(self) -> float | None:
        return self.kernel.grid

    def draw(self, key: Key[Array, ""]) -> Any:
        return self.kernel.draw(key)

    def move(self, noise: Any, state: State) -> tuple[State, Info]:
        return self.kernel.move(noise, state)

    def recorded(self, outcome: Outcome) -> "Learned":
        """The same kernel with another record."""
        return Learned(self.target, self.initial, self.kernel, self.warmup, outcome, self.starts)

    @property
    def proposal(self) -> Kernel:
        """The learned global proposal alone; for a ladder of replicas, draws of its reference."""
        if isinstance(self.kernel, Tempered):
            identity = FunctionBlock(Identity((self.target.dim,)))
            return Kernel(self.target, identity, self.kernel.reference, self.initial)
        parts = self.kernel.kernels if isinstance(self.kernel, Mixture | Cycle) else (self.kernel,)
        return next(part for part in reversed(parts) if isinstance(part, Kernel))

    def __repr__(self) -> str:
        return f"Learned({self.target.name}: {self.outcome})"

    def _repr_html_(self) -> str:
        return view("learned_html")(self)


register(Learned)

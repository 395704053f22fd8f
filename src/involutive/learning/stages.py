"""What the stages of learning hand to each other: frozen results, each with its own cost."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from involutive.core.types import Number
from involutive.involutions.symmetries import Symmetries
from involutive.kernel.kernel import AbstractKernel, Kernel
from involutive.storage.codec import register

Row = dict[str, Any]  # one row of the history: the stage's name, and metrics


@register
@dataclass(frozen=True)
class Cost:
    """What a stage spent: density evaluations (a gradient counts as three) and seconds."""

    evaluations: int = 0
    seconds: Number = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.evaluations + other.evaluations, self.seconds + other.seconds)


@register
@dataclass(frozen=True)
class Found:
    """The result of the search.

    Attributes:
        points: points that cover the density, `(n, dim)`; their weights need not be right.
        starts: places apart from the modes, for chains that start elsewhere than the proposal.
        tops: `(k, dim)`, the different tops that climbs have reached; none where none climbed.
        factors: `(k, dim, dim)`, square roots of the covariances by the Hessians at the tops.
        log_masses: `(k,)`, of the modes by their tops' heights and Hessians.
        log_z: the log of the density's integral as annealing saw it, or -inf.
        gradients: whether the density has useful gradients.
        complete: whether the budget let the search finish.
        cost: what it took.
        heavy: those of the points that a proposal must cover, from modes of more than negligible
            mass; all of them where it is None.
    """

    points: np.ndarray
    starts: np.ndarray
    tops: np.ndarray
    factors: np.ndarray
    log_masses: np.ndarray
    log_z: Number
    gradients: bool
    complete: bool
    cost: Cost
    heavy: np.ndarray | None = None

    @property
    def must_cover(self) -> np.ndarray:
        """The points that a proposal must cover."""
        return self.points if self.heavy is None else self.heavy

    @property
    def modes(self) -> int:
        """How many different tops climbs have reached."""
        return len(self.tops)


@register
@dataclass(frozen=True)
class Proposal:
    """A global proposal and how well it does, judged on draws it was not fitted to.

    Attributes:
        kernel: an independence proposal with a known density q.
        acceptance: of chains that propose from q.
        ess: effective draws per draw of such chains.
        components: mixture components in q, 0 where couplings shape it.
        history: one row per step of fitting.
    """

    kernel: Kernel
    acceptance: Number
    ess: Number
    components: int = 0
    history: list[Row] = field(default_factory=list)


@register
@dataclass(frozen=True)
class Looked:
    """How learning looked for what it may have missed.

    Attributes:
        starts: places apart from the proposal that chains may start from.
        widths: multiples of X's width at which climbs started.
        second: points that the second search reached.
        new: of those of the last second search, points that the proposal did not cover.
        log_z_search: log of the density's integral as annealing saw it, -inf where it did not run.
        log_z_weights: the same by the importance weights of the proposal.
        groups: nested R-hat between chains started from the proposal and chains started elsewhere.
        places: at which the last look compared the density with the proposal, 0 if none was made.
        climbs: made from some of them.
        missed: estimated share of the mass that neither the proposal nor the pilot chains cover.
        frugal: whether learning was frugal: `places` are then all of its evaluations, `climbs` all
            of its ascents.
    """

    starts: int = 0
    widths: tuple[Number, ...] = ()
    second: int = 0
    new: int = 0
    log_z_search: Number = float("-inf")
    log_z_weights: Number = float("-inf")
    groups: Number = float("nan")
    places: int = 0
    climbs: int = 0
    missed: Number = 0.0
    frugal: bool = False


@register
@dataclass(frozen=True)
class Fitted:
    """The result of the fit, and of every round that follows.

    Attributes:
        found: what it started from.
        proposal: the best proposal so far.
        draws: approximate draws of the target that stand for it.
        states: where chains of the next round start.
        fresh: the draws of the last round alone.
        rounds: rounds made.
        settled: whether nothing more is gained: chains may judge it.
        missed: share of the points found that q does not cover.
        looked: how it was looked for what may be missing.
        cost: what it took, the stages before included.
        reached: one row per training: seconds since the start, effective draws per draw.
        symmetries: exchanges and sign flips that leave the density alone, where they were looked
            for and found.
        structured: whether structures were tried beside the mixture.
        measured: the best kernel that chains have measured so far.
    """

    found: Found
    proposal: Proposal
    draws: np.ndarray
    states: np.ndarray
    fresh: np.ndarray
    rounds: int
    settled: bool
    missed: Number
    looked: Looked
    cost: Cost
    reached: list[Row] = field(default_factory=list)
    symmetries: Symmetries | None = None
    structured: bool = False
    measured: AbstractKernel | None = None

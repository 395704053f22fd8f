"""The frozen results that stages of learning pass on, each with its own cost."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from involutive.core.types import Number
from involutive.involutions.symmetries import Symmetries
from involutive.kernel.kernel import AbstractKernel, Kernel
from involutive.storage.codec import register

Row = dict[str, Any]  # one row of the history: the stage's name, and metrics
Modes = tuple[np.ndarray, np.ndarray, np.ndarray]  # tops, square roots of covariances, log masses


@register
@dataclass(frozen=True)
class Cost:
    """The cost of stages: density evaluations (a gradient counts as three) and seconds."""

    evaluations: int = 0
    seconds: Number = 0.0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.evaluations + other.evaluations, self.seconds + other.seconds)


@register
@dataclass(frozen=True)
class Found:
    """The result of the search.

    Attributes:
        points: points that cover the density, `(n, dim)`; their frequencies may be wrong.
        starts: places away from the modes, where chains start that do not start from the proposal.
        tops: `(k, dim)`, the distinct tops that climbs have reached; empty if nothing climbed.
        factors: `(k, dim, dim)`, square roots of the inverse Hessians at the tops.
        log_masses: `(k,)`, Laplace approximations of the modes' log masses.
        log_z: annealing's estimate of the log of the density's integral, or -inf.
        gradients: whether the density has useful gradients.
        complete: whether the budget let the search finish.
        cost: what the search cost.
        heavy: the points that a proposal must cover, which lie in modes with mass; None for all.
        passes: how often a final search has added modes to this result.
        before: the kernel of the pass before that, which missed them.
        given: whether the points are draws that the user gave, on which a proposal is trained.
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
    passes: int = 0
    before: AbstractKernel | None = None
    given: bool = False

    @property
    def must_cover(self) -> np.ndarray:
        """The points that a proposal must cover."""
        return self.points if self.heavy is None else self.heavy

    @property
    def modes(self) -> int:
        """The number of distinct tops that climbs have reached."""
        return len(self.tops)

    def joined_by(self, points: np.ndarray, modes: Modes | None = None) -> "Found":
        """The result with more points, which a proposal must cover too, and with their modes."""
        own = self.tops, self.factors, self.log_masses
        pairs = zip(own, modes, strict=True) if modes else [(part,) for part in own]
        tops, factors, log_masses = (np.concatenate(pair) for pair in pairs)
        return replace(
            self,
            points=np.concatenate([self.points, points]),
            heavy=np.concatenate([self.must_cover, points]),
            tops=tops, factors=factors, log_masses=log_masses,
        )  # fmt: skip


@register
@dataclass(frozen=True)
class Proposal:
    """A global proposal, with metrics on draws that it was not fitted to.

    Attributes:
        kernel: an independence proposal with a known density q.
        acceptance: acceptance rate of chains that propose from q.
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
    """The record of the searches for modes that learning may have missed.

    Attributes:
        starts: number of places away from the proposal that chains may start from.
        widths: multiples of X's width at which climbs started.
        second: number of points that the second search reached.
        new: points of the last second search that the proposal did not cover.
        log_z_search: annealing's estimate of the log of the density's integral, -inf without one.
        log_z_weights: its estimate by the importance weights of the proposal, or by replicas.
        effective: effective draws behind that estimate; inf if it does not come from weights.
        log_z_chains: mean of log p/q at draws of chains, which log Z of what chains visit does not
            exceed; NaN where chains were not asked.
        groups: nested R-hat between chains started from the proposal and chains started elsewhere.
        places: number of places at which the final search compared density and proposal, 0 if no
            final search was made.
        climbs: number of climbs of the final search.
        missed: estimated share of the mass that neither the proposal nor the pilot chains cover.
        frugal: whether learning was frugal: `places` then counts all of its evaluations, `climbs`
            all of its ascents.
    """

    starts: int = 0
    widths: tuple[Number, ...] = ()
    second: int = 0
    new: int = 0
    log_z_search: Number = float("-inf")
    log_z_weights: Number = float("-inf")
    effective: Number = float("inf")
    log_z_chains: Number = float("nan")
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
        found: the result of the search.
        proposal: the best proposal so far.
        draws: approximate draws of the target, on which the next training works.
        states: positions from which the chains of the next round start.
        fresh: the draws of the last round alone.
        rounds: number of rounds made.
        suffices: whether the proposal promises enough to be measured before anything else is tried.
        missed: share of the points found that q does not cover.
        looked: the record of the searches for modes that may be missing.
        cost: what all stages so far cost.
        reached: one row per training: seconds since the start, effective draws per draw.
        symmetries: exchanges and sign flips that leave the density invariant; None if none were
            found or none were looked for.
        structured: whether structured proposals were tried.
        measured: the best kernel that pilot chains have measured so far.
        unchanged: whether the last round changed neither the draws nor the proposal by much.
        polished: whether the proposal was trained at full length after the rounds.
        ladder_ess: effective draws per draw of the proposal that replicas were tried with, None if
            they were not.
    """

    found: Found
    proposal: Proposal
    draws: np.ndarray
    states: np.ndarray
    fresh: np.ndarray
    rounds: int
    suffices: bool
    missed: Number
    looked: Looked
    cost: Cost
    reached: list[Row] = field(default_factory=list)
    symmetries: Symmetries | None = None
    structured: bool = False
    measured: AbstractKernel | None = None
    unchanged: bool = False
    polished: bool = False
    ladder_ess: Number | None = None

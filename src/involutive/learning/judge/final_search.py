"""The final search, for mass that the learned proposal q and its pilot chains have missed.

Neither importance weights of q's own draws nor chains that start from q show what q misses. So the
final search computes p/q at many other places: draws of X shrunk and stretched, draws of q
stretched, and points between draws of q. It climbs from the places with the largest p/q and from
random ones, and estimates the mass of those it reaches whose p/q exceeds every p/q seen at q's
draws (`diagnostics/coverage.py`). Mass that chains of the kernel do visit is not missed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.batched import GRADIENT, BatchedDensity, BatchedDistribution, OutOfBudget
from involutive._xla.compilation import on_device
from involutive._xla.cost import operations
from involutive.auxiliary.hierarchical import evaluations_within
from involutive.core.errors import InputError
from involutive.core.keys import generator, split
from involutive.core.statistics import log_mean_exp
from involutive.core.types import Number
from involutive.diagnostics.coverage import ABOVE, DRAWS, HILLS, STARTS, missed
from involutive.diagnostics.search import LEAST_EFFECTIVE
from involutive.kernel.kernel import Kernel
from involutive.kernel.replicas import Tempered
from involutive.learning.find.annealing import finite_points
from involutive.learning.fit.tails import proposal_draws
from involutive.learning.judge.pilot import evaluations_per_step, run_chains
from involutive.learning.outcome import Learned, Outcome
from involutive.learning.problem import Problem, Spending
from involutive.learning.settings import LookSettings
from involutive.learning.stages import Cost, Looked
from involutive.learning.weights import effective
from involutive.training.likelihood import proposal_law

Places = Callable[[int], np.ndarray]  # a number of places to places `(count, dim)`


class Group(NamedTuple):
    """A way to draw places.

    Attributes:
        places: draws so many places.
        far: whether they reach beyond the bulk of the proposal and of X.
        bulk: whether they are spread about as wide as that bulk.
    """

    places: Places
    far: bool
    bulk: bool = False


@dataclass(frozen=True)
class FinalSearch:
    """The result of a final search.

    Attributes:
        places: number of places at which p/q was computed; 0 if the budget did not allow any.
        climbs: number of climbs.
        missed: share of the mass that the proposal does not cover.
        hills: `(k, dim)`, tops of that mass, the densest first; empty if none was found.
        level: log p/q above which a point counts as missed by q.
        log_z: log of the density's integral by the weights of q's draws.
        effective: effective draws behind that estimate.
        log_z_chains: mean of log p/q at draws of chains; NaN where none were run.
    """

    places: int = 0
    climbs: int = 0
    missed: Number = 0.0
    hills: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    level: Number = float("inf")
    log_z: Number = float("-inf")
    effective: Number = 0.0
    log_z_chains: Number = float("nan")


def final_search(problem: Problem, learned: Learned) -> tuple[Learned, FinalSearch]:
    """Search once more, and record the result in the kernel's outcome.

    If the kernel misses mass, its outcome is not converged, and the densest point found there joins
    the places that chains start from, so that `sample` shows the missed mass too.

    Returns:
        The kernel with its record, and the result of the search.
    """
    outcome, proposal = learned.outcome, _independence_proposal(learned)
    if outcome.ended != "finished" or outcome.looked is None or proposal is None:
        return learned, FinalSearch()
    if not problem.has_time(problem.settings.look.least_seconds):
        return learned, FinalSearch()
    largest = problem.settings.look.largest
    spent = Cost(outcome.evaluations, outcome.seconds)
    spending = problem.spend(problem.settings.budget.look, spent)
    key_look, key_chains = split(jr.fold_in(problem.keys.early, 1), 2)
    try:
        look = estimate_missed(problem, spending, proposal, key_look)
        if look.missed > largest:
            look = _asked_of_chains(learned, spending, look, key_chains)
    except OutOfBudget:  # the outcome then shows that no search was made
        return learned.recorded(_at_cost(outcome, spending)), FinalSearch()
    except KeyboardInterrupt:
        interrupted = replace(_at_cost(outcome, spending), ended="interrupted")
        return learned.recorded(interrupted), FinalSearch()
    looked = _recorded(outcome.looked, look, isinstance(learned.kernel, Tempered))
    outcome = replace(_at_cost(outcome, spending), looked=looked)
    starts = learned.starts
    if look.missed > largest:
        outcome = replace(outcome, converged=False, advice=_advice(look.missed))
        starts = _starts_with_point(starts, look.hills[0])
    parts = learned.initial, learned.kernel, learned.warmup
    return Learned(learned.target, *parts, outcome, starts), look


def _recorded(looked: Looked, look: FinalSearch, replicas: bool) -> Looked:
    """The record of all searches, with the final one.

    The proposal may have been trained since log Z was estimated; its own weights replace that
    estimate if they are worth enough. The estimate of replicas is kept.
    """
    looked = replace(
        looked, places=look.places, climbs=look.climbs, missed=look.missed,
        log_z_chains=look.log_z_chains,
    )  # fmt: skip
    if replicas or look.effective < LEAST_EFFECTIVE:
        return looked
    return replace(looked, log_z_weights=look.log_z, effective=look.effective)


def _at_cost(outcome: Outcome, spending: Spending) -> Outcome:
    """The record with what everything has cost so far."""
    cost = spending.cost
    return replace(outcome, evaluations=cost.evaluations, seconds=cost.seconds)


def estimate_missed(
    problem: Problem, spending: Spending, proposal: Kernel, key: Key[Array, ""]
) -> FinalSearch:
    """Estimate the share of the mass that an independence proposal misses.

    Raises:
        OutOfBudget: if the budget does not allow it.
    """
    p, settings = spending.density, problem.settings.look
    q = BatchedDistribution(proposal_law(proposal), p.block)
    within = evaluations_within(q.law)
    # beside places, q is drawn from, and evaluated at draws, at ends of climbs and around hills
    rows = 2 * settings.own_draws + 2 * STARTS + HILLS * DRAWS
    if within and not spending.allows(within * rows):
        raise OutOfBudget
    try:
        return _searched(problem, p, q, proposal, key)
    finally:
        spending.note(within * (q.evaluations + settings.own_draws))


def _searched(
    problem: Problem,
    p: BatchedDensity,
    q: BatchedDistribution,
    proposal: Kernel,
    key: Key[Array, ""],
) -> FinalSearch:
    """Compare p and q at many places, climb from the largest ratios, and weigh what is there."""
    key_own, key_x, key_rng = split(key, 3)
    rng, settings = generator(key_rng), problem.settings.look
    climbs = _climb_count(problem, p)
    drawn = proposal_draws(proposal, settings.own_draws, key_own)
    drawn = drawn[np.isfinite(drawn).all(axis=1)]
    own = _log_ratio(p, q, drawn)
    if climbs < settings.fewest or not np.isfinite(own).any():
        return FinalSearch()
    log_z, top = log_mean_exp(own), float(np.max(own))
    x = BatchedDistribution(problem.initial).draws(key_x, settings.own_draws)
    groups = _groups(drawn, x, rng, settings)
    counts = [_place_count(problem, p, q.law, group) for group in groups]
    keep, rows = int(settings.best * climbs) // len(groups) + 1, settings.at_once
    best = np.concatenate(
        [
            _highest_ratios(p, q, group.places, count, keep, rows)
            for group, count in zip(groups, counts, strict=True)
        ]
    )
    share = int(settings.random * climbs) // len(settings.widths)
    near = np.concatenate([_normal_like(x, width, rng)(share) for width in settings.widths])
    starts = np.concatenate([best, near.astype(p.dtype)])
    starts = starts[np.isfinite(p.values(starts))]
    gradient = problem.target.has_gradient
    found = missed(p, q, drawn, starts, log_z, top, rng, gradient, climbs)
    share = _share(found.log_mass - log_z)
    level = max(top, log_z + ABOVE) - ABOVE / 2
    return FinalSearch(
        sum(counts), climbs + len(starts), share, found.hills, level, log_z, effective(own)
    )


def _asked_of_chains(
    learned: Learned, spending: Spending, look: FinalSearch, key: Key[Array, ""]
) -> FinalSearch:
    """The result of the search, after chains that start from q have shown what they visit.

    Nothing is missed if they spend enough of their steps where q misses mass.
    """
    ratios = _log_ratios_of_chains(learned, spending, key)
    seen = np.mean(ratios > look.level) if len(ratios) else 0.0
    finite = ratios[np.isfinite(ratios)]
    mean = float(np.mean(finite)) if len(finite) else float("nan")
    visited = seen > spending.problem.settings.look.visited * look.missed
    return replace(look, missed=0.0 if visited else look.missed, log_z_chains=mean)


def _log_ratios_of_chains(learned: Learned, spending: Spending, key: Key[Array, ""]) -> np.ndarray:
    """Log p/q at the draws of chains that start from q; none where they have no place to start."""
    key_starts, key_chains = split(key, 2)
    p, settings = spending.density, spending.problem.settings.look
    q = BatchedDistribution(proposal_law(learned.proposal), p.block)
    drawn = proposal_draws(learned.proposal, settings.chain_tries * settings.chains, key_starts)
    places = finite_points(p, drawn)[: settings.chains]
    if len(places) < settings.chains:
        return np.zeros(0)
    within = evaluations_within(q.law)
    # and p and q at kept states
    step = settings.chains * (evaluations_per_step(learned.kernel) + 1 + within)
    if not spending.allows(settings.steps * step):
        raise OutOfBudget
    trace = run_chains(learned.kernel, places, settings.steps, key_chains, spending)
    rows = trace.position[:, trace.position.shape[1] // 2 :].reshape(-1, p.dim)
    spending.note(within * len(rows))
    return _log_ratio(p, q, rows)


def _independence_proposal(learned: Learned) -> Kernel | None:
    """The kernel's independence proposal, None if it has none."""
    try:
        proposal_law(learned.proposal)
    except (InputError, StopIteration):
        return None
    return learned.proposal


def _advice(share: Number) -> str:
    return (
        f"about {share:.0%} of the mass lies where neither the proposal nor its chains are; pass "
        "initial= that covers it, or a larger budget="
    )


def _starts_with_point(starts: Array | None, point: np.ndarray) -> Array | None:
    """Starting places, every second one replaced by the point."""
    if starts is None:
        return starts
    rows = np.array(starts)
    rows[::2] = point
    return on_device(rows)


def _climb_count(problem: Problem, p: BatchedDensity) -> int:
    """The number of climbs from q: in proportion to the search's, or what the budget allows."""
    settings = problem.settings.look
    usual = max(STARTS * problem.settings.climbers / settings.climbers, settings.usual)
    each = (1 + settings.best + settings.random) * GRADIENT * settings.climb_gradients
    allowed = settings.climb_share * p.left / each
    return int(min(usual, allowed, STARTS))


def _place_count(
    problem: Problem, p: BatchedDensity, law: AbstractDistribution, group: Group
) -> int:
    """Places in a group: more in many dimensions, fewer if p or q is expensive or budgets small.

    The share of places that see a mode falls with every dimension, by the ratio of the mode's
    reach to the width of the group. For a mode far out it is small in few dimensions too.
    """
    settings, dim = problem.settings.look, problem.target.dim
    groups = len(settings.widths) + len(settings.stretches) + 1
    work = operations(law.log_prob, dim) + operations(problem.target.log_density, dim)
    growth = min(
        settings.dimension_growth ** max(dim - 2, 0),
        settings.bulk_growth if group.bulk else settings.most_growth,
    )
    growth = max(growth, settings.most_growth) if group.far else growth
    most = settings.place_draws * growth * problem.settings.search_draws
    each = groups * (1 + evaluations_within(law))
    most = min(most, settings.place_share * p.left / each)
    return int(np.clip(settings.scanned / (work * groups), 1, max(most, 1)))


def _groups(
    drawn: np.ndarray, x: np.ndarray, rng: np.random.Generator, settings: LookSettings
) -> list[Group]:
    """Ways to draw places: normal draws at every width of X, stretched draws of q, and points
    between pairs of them.
    """
    centre = drawn.mean(axis=0)

    def picked(count: int) -> np.ndarray:
        return drawn[rng.integers(len(drawn), size=count)]

    def stretched(count: int, stretch: Number) -> np.ndarray:
        rows = centre + stretch * (picked(count) - centre)
        # draws of q are few: noise between them makes new places
        return rows + settings.jitter * stretch * drawn.std(axis=0) * rng.normal(size=rows.shape)

    def between(count: int) -> np.ndarray:
        first, second = picked(count), picked(count)
        return first + rng.uniform(size=(count, 1)) * (second - first)

    narrow = settings.narrowest_bulk
    around_x = [
        Group(_normal_like(x, width, rng), far=width >= 1, bulk=narrow <= width <= 1)
        for width in settings.widths
    ]
    around_q = [
        Group(partial(stretched, stretch=s), far=s >= 2, bulk=s < 2) for s in settings.stretches
    ]
    return [*around_x, *around_q, Group(between, far=False)]


def _normal_like(x: np.ndarray, width: Number, rng: np.random.Generator) -> Places:
    """Normal draws with the mean of X and its scales times a width."""
    centre, scale = x.mean(axis=0), width * x.std(axis=0)
    return lambda count: centre + scale * rng.normal(size=(count, x.shape[1]))


def _highest_ratios(
    p: BatchedDensity, q: BatchedDistribution, group: Places, count: int, keep: int, at_once: int
) -> np.ndarray:
    """Of `count` places of a group, the `keep` with the highest p/q."""
    best, heights = np.zeros((0, p.dim), p.dtype), np.zeros(0)
    for begin in range(0, count, at_once):  # so that memory is bounded
        places = group(min(at_once, count - begin)).astype(p.dtype)
        best = np.concatenate([best, places])
        heights = np.concatenate([heights, _log_ratio(p, q, places)])
        order = np.argsort(-heights, kind="stable")[:keep]
        best, heights = best[order], heights[order]
    return best


def _log_ratio(p: BatchedDensity, q: BatchedDistribution, points: np.ndarray) -> np.ndarray:
    """`log p - log q` at every row; -inf where either is not finite."""
    value, known = (law.values(points).astype(np.float64) for law in (p, q))
    with np.errstate(invalid="ignore"):
        ratio = value - known
    return np.where(np.isfinite(value) & np.isfinite(known), ratio, -np.inf)


def _share(log_odds: Number) -> float:
    """The share of the total that has those log odds against the rest; all of it if unknown."""
    if np.isnan(log_odds):
        return 1.0
    return float(1 / (1 + np.exp(-min(log_odds, 700.0)))) if log_odds > -700.0 else 0.0

"""The final search, for mass that the learned proposal q and its pilot chains have missed.

Neither importance weights of q's own draws nor chains that start from q show what q misses. So the
final search computes p/q at many other places: draws of X shrunk and stretched, draws of q
stretched, and points between draws of q. It climbs from the places with the largest p/q and from
random ones, and estimates the mass of those it reaches whose p/q exceeds every p/q seen at q's
draws (`coverage.py`). Mass that chains of the kernel do visit is not missed.
"""

from dataclasses import dataclass, replace

import jax.random as jr
import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.batched import GRADIENT, BatchedDensity, BatchedDistribution, OutOfBudget
from involutive._xla.compilation import on_device
from involutive._xla.cost import operations
from involutive.core.errors import InputError
from involutive.core.keys import generator, split
from involutive.core.statistics import log_mean_exp
from involutive.core.types import Number
from involutive.diagnostics.coverage import ABOVE, STARTS, missed
from involutive.learning.find.annealing import finite_points
from involutive.learning.judge.pilot import evaluations_per_step, run_chains
from involutive.learning.outcome import Learned
from involutive.learning.problem import Problem, Spending
from involutive.learning.settings import LookSettings
from involutive.learning.stages import Cost
from involutive.training.likelihood import proposal_law


@dataclass(frozen=True)
class FinalSearch:
    """The result of a final search.

    Attributes:
        places: number of places at which p/q was computed; 0 if the budget did not allow any.
        climbs: number of climbs.
        missed: share of the mass that the proposal does not cover.
        point: the point of largest density in that mass, or None.
        level: log p/q above which a point counts as missed by q.
    """

    places: int = 0
    climbs: int = 0
    missed: Number = 0.0
    point: np.ndarray | None = None
    level: Number = float("inf")


def final_search(problem: Problem, learned: Learned) -> Learned:
    """Search once more, and record the result in the kernel's outcome.

    If the kernel misses mass, its outcome is not converged, and the point found there joins the
    places that chains start from, so that `sample` shows the missed mass too.
    """
    outcome, law = learned.outcome, _proposal_distribution(learned)
    if outcome.ended != "finished" or outcome.looked is None or law is None:
        return learned
    if not problem.has_time(problem.settings.look.least_seconds):
        return learned
    largest = problem.settings.look.largest
    spent = Cost(outcome.evaluations, outcome.seconds)
    spending = problem.spend(problem.settings.budget.look, spent)
    key_look, key_chains = split(jr.fold_in(problem.keys.early, 1), 2)
    try:
        look = estimate_missed(problem, spending, law, key_look)
        if look.missed > largest and _chains_visit(learned, spending, law, look, key_chains):
            look = replace(look, missed=0.0)
    except (OutOfBudget, KeyboardInterrupt):  # the outcome then shows that no search was made
        return learned
    looked = replace(outcome.looked, places=look.places, climbs=look.climbs, missed=look.missed)
    outcome = replace(
        outcome, looked=looked, evaluations=spending.cost.evaluations, seconds=spending.cost.seconds
    )
    starts = learned.starts
    if look.missed > largest:
        outcome = replace(outcome, converged=False, advice=_advice(look.missed))
        starts = _starts_with_point(starts, look.point)
    parts = learned.initial, learned.kernel, learned.warmup
    return Learned(learned.target, *parts, outcome, starts)


def estimate_missed(
    problem: Problem, spending: Spending, law: AbstractDistribution, key: Key[Array, ""]
) -> FinalSearch:
    """Estimate the share of the mass that the proposal `law` misses."""
    key_own, key_x, key_rng = split(key, 3)
    p, rng, settings = spending.density, generator(key_rng), problem.settings.look
    q = BatchedDistribution(law, p.block)
    climbs = _climb_count(problem, p)
    drawn = q.draws(key_own, settings.own_draws)
    drawn = drawn[np.isfinite(drawn).all(axis=1)]
    own = _log_ratio(p, q, drawn)
    if climbs < settings.fewest or not np.isfinite(own).any():
        return FinalSearch()
    log_z, top = log_mean_exp(own), float(np.max(own))
    x = BatchedDistribution(problem.initial).draws(key_x, settings.own_draws)
    places = _places(drawn, x, _places_per_group(problem, p, law), rng, settings).astype(p.dtype)
    ratio = _log_ratio(p, q, places)
    best = places[np.argsort(-ratio, kind="stable")[: int(settings.best * climbs)]]
    near = _at_widths(x, int(settings.random * climbs), rng, settings.widths).astype(p.dtype)
    starts = np.concatenate([best, near])
    starts = starts[np.isfinite(p.values(starts))]
    gradient = problem.target.has_gradient
    found = missed(p, q, drawn, starts, log_z, top, rng, gradient, climbs)
    share = _share(found.log_mass - log_z)
    level = max(top, log_z + ABOVE) - ABOVE / 2
    return FinalSearch(len(places), climbs + len(starts), share, found.point, level)


def _chains_visit(
    learned: Learned,
    spending: Spending,
    law: AbstractDistribution,
    look: FinalSearch,
    key: Key[Array, ""],
) -> bool:
    """Whether chains that start from q spend enough of their steps where q misses mass."""
    key_starts, key_chains = split(key, 2)
    p, q = spending.density, BatchedDistribution(law, spending.density.block)
    settings = spending.problem.settings.look
    drawn = q.draws(key_starts, settings.chain_tries * settings.chains)
    places = finite_points(p, drawn)[: settings.chains]
    if len(places) < settings.chains:
        return False
    step = settings.chains * (evaluations_per_step(learned.kernel) + 1)  # and p at kept states
    if not spending.allows(settings.steps * step):
        raise OutOfBudget
    trace = run_chains(learned.kernel, places, settings.steps, key_chains, spending)
    rows = trace.position[:, trace.position.shape[1] // 2 :].reshape(-1, p.dim)
    seen = np.mean(_log_ratio(p, q, rows) > look.level)
    return bool(seen > settings.visited * look.missed)


def _proposal_distribution(learned: Learned) -> AbstractDistribution | None:
    """The distribution q of the kernel's independence proposal, None if it has none."""
    try:
        return proposal_law(learned.proposal)
    except (InputError, StopIteration):
        return None


def _advice(share: Number) -> str:
    return (
        f"about {share:.0%} of the mass lies where neither the proposal nor its chains are; pass "
        "initial= that covers it, or a larger budget="
    )


def _starts_with_point(starts: Array | None, point: np.ndarray | None) -> Array | None:
    """Starting places, every second one replaced by the point."""
    if starts is None or point is None:
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


def _places_per_group(problem: Problem, p: BatchedDensity, law: AbstractDistribution) -> int:
    """Places per group: a share of the search's draws; fewer if q is expensive or budgets small."""
    settings = problem.settings.look
    groups = len(settings.widths) + len(settings.stretches) + 1
    work = operations(law.log_prob, problem.target.dim) * groups
    most = int(settings.place_draws * problem.settings.search_draws)
    most = min(most, settings.place_share * p.left / groups)
    return int(np.clip(settings.scanned / work, 1, max(most, 1)))


def _places(
    drawn: np.ndarray, x: np.ndarray, count: int, rng: np.random.Generator, settings: LookSettings
) -> np.ndarray:
    """Normal draws at every width of X, stretched draws of q, and points between pairs of them."""
    centre, stretches = drawn.mean(axis=0), settings.stretches
    picked = [drawn[rng.integers(len(drawn), size=count)] for _ in range(len(stretches) + 2)]
    stretched = [centre + s * (rows - centre) for s, rows in zip(stretches, picked, strict=False)]
    along = rng.uniform(size=(count, 1))
    between = picked[-1] + along * (picked[-2] - picked[-1])
    near = _at_widths(x, count * len(settings.widths), rng, settings.widths)
    return np.concatenate([near, *stretched, between])


def _at_widths(
    x: np.ndarray, count: int, rng: np.random.Generator, widths: tuple[Number, ...]
) -> np.ndarray:
    """Normal draws with the mean of X and its scales times every width."""
    centre, scale, share = x.mean(axis=0), x.std(axis=0), max(count // len(widths), 1)
    shape = (share, x.shape[1])
    return np.concatenate([centre + w * scale * rng.normal(size=shape) for w in widths])


def _log_ratio(p: BatchedDensity, q: BatchedDistribution, points: np.ndarray) -> np.ndarray:
    """`log p - log q` at every row; -inf where either is not finite."""
    value, known = (law.values(points).astype(np.float64) for law in (p, q))
    with np.errstate(invalid="ignore"):
        ratio = value - known
    return np.where(np.isfinite(value) & np.isfinite(known), ratio, -np.inf)


def _share(log_odds: Number) -> float:
    """The share of the total that has those log odds against the rest."""
    return float(1 / (1 + np.exp(-min(log_odds, 700.0)))) if log_odds > -700.0 else 0.0

"""The last look: what the learned proposal, and the chains that measured it, have missed.

Weights of the proposal's draws and chains that start from it are blind to what it misses. So p and
q are compared at many other places: X drawn in and stretched, the proposal stretched, and between
its draws. The places where p/q is largest climb, beside random ones, and the mass of what they
reach above every ratio that was seen is estimated (`coverage.py`). Chains may have been there
though the proposal has not: then nothing is missed.
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
from involutive.learning.budget import LOOK
from involutive.learning.find.annealing import finite_points
from involutive.learning.judge.pilot import run_chains
from involutive.learning.outcome import Learned
from involutive.learning.problem import Problem, Spending
from involutive.learning.stages import Cost
from involutive.training.likelihood import proposal_law

OWN_DRAWS = 2048  # of q, whose largest p/q is the level above which q is said to miss; a guess
WIDTHS = (0.01, 0.03, 0.1, 0.3, 0.6, 1.0, 2.0, 4.0)  # multiples of X's width; guesses
STRETCHES = (1.0, 1.5, 2.0, 3.0)  # of the proposal's draws about their centre; guesses
BEST, RANDOM = 0.25, 0.5  # climbs from the highest p/q and from X, per climb from q; guesses
SCANNED = 4e9  # arithmetic operations of q that bound the places compared; about a second
LENGTH = 40  # gradients of a usual climb; of a hundred at most
CLIMBERS = 1024  # of the search, from which on the look has all of its climbs
USUAL = 128  # climbs where the budget has room for them; a guess
FEWEST = 16  # climbs below which there is no look; a guess
LARGEST = 0.01  # share of the mass that may be missed; a guess
CHAINS, STEPS = 64, 200  # that show whether chains go where the proposal does not; guesses
VISITED = 1 / 3  # of a missed mass that chains must hold to have been there; a guess


@dataclass(frozen=True)
class Look:
    """What a last look saw.

    Attributes:
        places: at which p and q were compared; 0 if the budget did not allow it.
        climbs: made from some of them.
        missed: share of the mass that the proposal does not cover.
        point: the densest point of it, or None.
        level: log p/q above which q is said to miss.
    """

    places: int = 0
    climbs: int = 0
    missed: Number = 0.0
    point: np.ndarray | None = None
    level: Number = float("inf")


def looked_at(problem: Problem, learned: Learned) -> Learned:
    """The same kernel with what a last look saw on its record; one that misses mass has failed.

    What was missed joins the places that chains start from, so that `sample` shows it too.
    """
    outcome, law = learned.outcome, _law(learned)
    if outcome.ended != "finished" or outcome.looked is None or law is None:
        return learned
    spending = problem.spend(LOOK, Cost(outcome.evaluations, outcome.seconds))
    key_look, key_chains = split(jr.fold_in(problem.keys.early, 1), 2)
    try:
        look = last_look(problem, spending, law, key_look)
        if look.missed > LARGEST and _visited(learned, spending, law, look, key_chains):
            look = replace(look, missed=0.0)
    except (OutOfBudget, KeyboardInterrupt):  # the kernel is there, and says that nothing looked
        return learned
    looked = replace(outcome.looked, places=look.places, climbs=look.climbs, missed=look.missed)
    outcome = replace(
        outcome, looked=looked, evaluations=spending.cost.evaluations, seconds=spending.cost.seconds
    )
    starts = learned.starts
    if look.missed > LARGEST:
        outcome = replace(outcome, converged=False, advice=_advice(look.missed))
        starts = _with_point(starts, look.point)
    parts = learned.initial, learned.kernel, learned.warmup
    return Learned(learned.target, *parts, outcome, starts)


def last_look(
    problem: Problem, spending: Spending, law: AbstractDistribution, key: Key[Array, ""]
) -> Look:
    """Look for what the proposal `law` misses."""
    key_own, key_x, key_rng = split(key, 3)
    p, rng = spending.density, generator(key_rng)
    q = BatchedDistribution(law, p.block)
    climbs = _climbs(problem, p)
    drawn = q.draws(key_own, OWN_DRAWS)
    drawn = drawn[np.isfinite(drawn).all(axis=1)]
    own = _log_ratio(p, q, drawn)
    if climbs < FEWEST or not np.isfinite(own).any():
        return Look()
    log_z, top = log_mean_exp(own), float(np.max(own))
    x = BatchedDistribution(problem.law).draws(key_x, OWN_DRAWS)
    places = _places(drawn, x, _count(problem, p, law), rng).astype(p.dtype)
    ratio = _log_ratio(p, q, places)
    best = places[np.argsort(-ratio, kind="stable")[: int(BEST * climbs)]]
    near = _at_widths(x, int(RANDOM * climbs), rng).astype(p.dtype)
    starts = np.concatenate([best, near])
    starts = starts[np.isfinite(p.values(starts))]
    gradient = problem.target.has_gradient
    found = missed(p, q, drawn, starts, log_z, top, rng, gradient, climbs)
    share = _share(found.log_mass - log_z)
    level = max(top, log_z + ABOVE) - ABOVE / 2
    return Look(len(places), climbs + len(starts), share, found.point, level)


def _visited(
    learned: Learned, spending: Spending, law: AbstractDistribution, look: Look, key: Key[Array, ""]
) -> bool:
    """Whether chains of the kernel that start from q go where q misses mass, and by how much."""
    key_starts, key_chains = split(key, 2)
    p, q = spending.density, BatchedDistribution(law, spending.density.block)
    places = finite_points(p, q.draws(key_starts, 4 * CHAINS))[:CHAINS]
    if len(places) < CHAINS:
        return False
    trace = run_chains(learned.kernel, places, STEPS, key_chains, spending)
    rows = trace.position[:, trace.position.shape[1] // 2 :].reshape(-1, p.dim)
    seen = np.mean(_log_ratio(p, q, rows) > look.level)
    return bool(seen > VISITED * look.missed)


def _law(learned: Learned) -> AbstractDistribution | None:
    """q, where the kernel has an independence proposal with a known density."""
    try:
        return proposal_law(learned.proposal)
    except (InputError, StopIteration):
        return None


def _advice(share: Number) -> str:
    return (
        f"about {share:.0%} of the mass lies where neither the proposal nor its chains are; pass "
        "initial= that covers it, or a larger budget="
    )


def _with_point(starts: Array | None, point: np.ndarray | None) -> Array | None:
    """Starting places, every other one of them the point."""
    if starts is None or point is None:
        return starts
    rows = np.array(starts)
    rows[::2] = point
    return on_device(rows)


def _climbs(problem: Problem, p: BatchedDensity) -> int:
    """Climbs from q: as many as the search made, or what half of the evaluations left allow."""
    usual = max(STARTS * problem.settings.climbers / CLIMBERS, USUAL)
    allowed = 0.5 * p.left / ((1 + BEST + RANDOM) * GRADIENT * LENGTH)
    return int(min(usual, allowed, STARTS))


def _count(problem: Problem, p: BatchedDensity, law: AbstractDistribution) -> int:
    """Places per group: as many as the search drew, fewer where q is much work or budgets small."""
    groups = len(WIDTHS) + len(STRETCHES) + 1
    work = operations(law.log_prob, problem.target.dim) * groups
    most = min(problem.settings.search_draws // 2, 0.25 * p.left / groups)
    return int(np.clip(SCANNED / work, 1, max(most, 1)))


def _places(drawn: np.ndarray, x: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """X at every width, the proposal's draws stretched, and points between pairs of them."""
    centre = drawn.mean(axis=0)
    picked = [drawn[rng.integers(len(drawn), size=count)] for _ in range(len(STRETCHES) + 2)]
    stretched = [centre + s * (rows - centre) for s, rows in zip(STRETCHES, picked, strict=False)]
    along = rng.uniform(size=(count, 1))
    between = picked[-1] + along * (picked[-2] - picked[-1])
    return np.concatenate([_at_widths(x, count * len(WIDTHS), rng), *stretched, between])


def _at_widths(x: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Points like X's draws, drawn in or stretched about their centre to every width."""
    centre, scale, share = x.mean(axis=0), x.std(axis=0), max(count // len(WIDTHS), 1)
    shape = (share, x.shape[1])
    return np.concatenate([centre + w * scale * rng.normal(size=shape) for w in WIDTHS])


def _log_ratio(p: BatchedDensity, q: BatchedDistribution, points: np.ndarray) -> np.ndarray:
    """`log p - log q` at every row; -inf where either is no number."""
    value, known = (law.values(points).astype(np.float64) for law in (p, q))
    with np.errstate(invalid="ignore"):
        ratio = value - known
    return np.where(np.isfinite(value) & np.isfinite(known), ratio, -np.inf)


def _share(log_odds: Number) -> float:
    """The share of a mass with those log odds against the rest."""
    return float(1 / (1 + np.exp(-min(log_odds, 700.0)))) if log_odds > -700.0 else 0.0

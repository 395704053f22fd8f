"""Adaptation of a ladder of replicas in rounds, before any draw is kept.

Every round runs many ladders in parallel, with twice the scans of the previous one. After a round,
equal rejection rates set the schedule, the barrier sets the number of replicas, and the spread of
draws and gradients sets the scales. The reference is refitted to the cold draws, and mixed with the
wide one that the ladder began with. Step sizes adapt to the acceptance rate within a round. The
last round adapts nothing: it measures the ladder.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from flowjax.bijections import Affine
from flowjax.distributions import AbstractDistribution, Normal
from jaxtyping import Array, Key

from involutive.auxiliary import GaussianMixture, Joined
from involutive.core.errors import check_count
from involutive.core.keys import KeyLike, as_key
from involutive.core.types import Number
from involutive.kernel.kernel import State
from involutive.kernel.ladder import Ladder, equal_rejection, measured, trip_rate
from involutive.kernel.replicas import Tempered
from involutive.kernel.rounds import (
    RoundClock,
    Seen,
    reference_draws,
    run_round,
    scored,
    started,
)
from involutive.targets.target import Target

Fit = Callable[[np.ndarray], AbstractDistribution]

WIDTH = 3.0  # standard deviation of the default reference, in the target's coordinates. A guess
FIRST = 8  # replicas of the first round. A guess
MOST = 64  # replicas at most. A guess
NEAR = 0.25  # relative change in the number of replicas below which it stays: each one compiles
ACCEPTED = 0.8  # local acceptance aimed at by HMC. Standard (Beskos et al. 2013: 0.65 to 0.9)
WALKED = 0.3  # by a random walk. Standard (Roberts, Gelman, Gilks 1997: 0.234 to 0.44)
SHARE = 0.1  # weight of the wide reference beside a fitted one. A guess
BETTER = 1.05  # factor of round trips per evaluation that learned exchanges must gain. A guess


@dataclass(frozen=True)
class Adaptation:
    """Settings of the adaptation of a ladder.

    Attributes:
        rounds: rounds of adaptation; each has twice the scans of the one before.
        scans: scans of the first round.
        ladders: ladders run side by side.
        fit: `(n, dim)` cold draws to a distribution, the fitted reference; None keeps the first.
        learned_swaps: try affine transports between neighbours.
        seconds: no round begins that is expected to end after so many seconds; None for no limit.

    Raises:
        InputError: if `rounds`, `scans` or `ladders` is not a whole number of at least 1.

    Example:
        >>> import involutive as inv
        >>> inv.Adaptation(rounds=3, ladders=8).scans
        25
    """

    rounds: int = 5
    scans: int = 25
    ladders: int = 32
    fit: Fit | None = None
    learned_swaps: bool = True
    seconds: Number | None = None

    def __post_init__(self) -> None:
        for name in ("rounds", "scans", "ladders"):
            check_count(name, getattr(self, name))


def gaussian_fit(draws: np.ndarray) -> GaussianMixture:
    """One Gaussian with the mean and covariance of draws `(n, dim)`, the covariance 1.2 times."""
    mean, spread = draws.mean(0), np.atleast_2d(np.cov(draws.T))
    spread = spread + 1e-6 * np.diag(np.diag(spread) + 1e-12)
    return GaussianMixture(np.ones(1), mean[None], 1.2 * spread[None])


def tempered(
    target: Target,
    reference: AbstractDistribution | None = None,
    *,
    key: KeyLike = 0,
    leaps: int | None = 8,
    scans: int = 1,
    rounds: int = 5,
    ladders: int = 32,
    fit: Fit | None = gaussian_fit,
    learned_swaps: bool = True,
) -> Tempered:
    """Return a ladder of replicas from `reference` to the target, adapted and then fixed.

    Args:
        target: the density to sample.
        reference: a normalised FlowJAX distribution (`sample`, `log_prob`) that covers the target's
            modes; by default `N(0, 3² I)`.
        key: an int seed or a JAX key.
        leaps: leapfrog steps per local move; None makes random-walk steps, without gradients.
        scans: scans per step, of which the last is the draw.
        rounds: rounds of adaptation; each has twice the scans of the one before. 0 adapts nothing.
        ladders: ladders run side by side in adaptation.
        fit: `(n, dim)` cold draws to a distribution that becomes the reference, together with the
            one given; None keeps the one given. A fit that raises the barrier is dropped.
        learned_swaps: try transports between neighbours and keep them if they pay.

    Returns:
        The kernel, for `inv.sample`; its `ladder` holds the barrier, round trips and log Z.

    Example:
        >>> import involutive as inv
        >>> kernel = inv.tempered(inv.targets.mog2(), ladders=8, rounds=1, learned_swaps=False)
        >>> inv.sample(kernel, key=1, num_chains=4, num_samples=10).positions.shape
        (4, 10, 2)
    """
    wide = Normal(jnp.zeros(target.dim), WIDTH * jnp.ones(target.dim))
    reference = wide if reference is None else reference
    betas = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, FIRST - 1)])
    kernel = Tempered(target, reference, betas, leaps=leaps, scans=scans)
    if rounds == 0:
        return kernel
    settings = Adaptation(rounds, ladders=ladders, fit=fit, learned_swaps=learned_swaps)
    return adapt_ladder(kernel, key=key, settings=settings)


def adapt_ladder(kernel: Tempered, *, key: KeyLike, settings: Adaptation | None = None) -> Tempered:
    """Adapt a ladder in rounds and measure it; the returned kernel is fixed.

    Args:
        kernel: the ladder to begin with: its target, reference, schedule, steps and scales.
        key: an int seed or a JAX key.
        settings: how long to adapt, and what.

    Returns:
        The adapted kernel; `ladder` has the measurements, `ladders` the final states.

    Example:
        >>> import involutive as inv
        >>> plain = inv.tempered(inv.targets.mog2(), rounds=0)
        >>> short = inv.Adaptation(rounds=1, ladders=8, learned_swaps=False)
        >>> inv.adapt_ladder(plain, key=0, settings=short).warmup > 0
        True
    """
    how = settings or Adaptation()
    work = _LadderAdapter(kernel, as_key(key), how)
    number, clock = 0, RoundClock(how.seconds)
    for number in range(how.rounds):
        seen = work.run(how.scans * 2**number, adapt=True)
        work.rescale(seen)
        work.reschedule(seen, how.rounds - number)
        if how.fit is not None and number >= 1 and number % 2 == 1 and number < how.rounds - 1:
            work.refit(seen)
        if not clock.allows_another():
            break
    if how.learned_swaps and number == how.rounds - 1:
        work.try_transports(how.scans * 2 ** max(number - 1, 0))
    return work.finished(work.run(how.scans * 2**number, adapt=False))


class _LadderAdapter:
    """A ladder during adaptation: the kernel, the states of its ladders, and the cost so far."""

    def __init__(self, kernel: Tempered, key: Key[Array, ""], how: Adaptation):
        self.kernel, self.how, self.wide = kernel, how, kernel.reference
        self._root, self._turn, self.evaluations = key, 0, 0.0
        starts = reference_draws(kernel.reference, jr.split(self._key(), how.ladders))
        self.states = started(kernel, starts, jr.split(self._key(), how.ladders))
        self.before: tuple[float, Tempered, State] | None = None

    def _key(self) -> Key[Array, ""]:
        self._turn += 1
        return jr.fold_in(self._root, self._turn)

    def run(self, scans: int, adapt: bool) -> Seen:
        capacity = self.how.scans * 2 ** (self.how.rounds - 1)
        rate = WALKED if self.kernel.leaps is None else ACCEPTED
        trips = int(np.sum(self.states.carried.trips))
        self.states, steps, sums, weights, cold = run_round(
            self.kernel, self.states, self._key(), jnp.asarray(scans),
            jnp.asarray(rate if adapt else np.nan), capacity,
        )  # fmt: skip
        self.kernel = eqx.tree_at(lambda k: k.steps, self.kernel, steps)
        moved, leaps = self.kernel.num_replicas - 1, self.kernel.leaps
        per_scan = moved * (1 if leaps is None else 3 * (leaps + 1) + 3 * adapt) + 1
        per_scan += 2 * moved * (self.kernel.exchange is not None)
        self.evaluations += float(per_scan * scans * self.how.ladders)
        swaps, moves, mean, square, slope = (np.asarray(part, float) for part in sums)
        return Seen(
            swaps, moves, mean, np.maximum(square - mean**2, 1e-30), slope,
            np.asarray(weights)[:scans], np.asarray(cold)[:scans],
            int(np.sum(self.states.carried.trips)) - trips,
        )  # fmt: skip

    def rescale(self, seen: Seen) -> None:
        """Scale each coordinate by (var x / var ∇)^¼, the sd of a Gaussian by either (nutpie's)."""
        spread = np.sqrt(seen.spreads[1:])
        if self.kernel.leaps is not None:
            spread = np.sqrt(spread / np.sqrt(np.maximum(seen.slopes, 1e-30)))
        old = np.asarray(self.kernel.scales)
        if old.ndim == 3 or not np.isfinite(spread).all():
            return
        # the step stays what it is along the average coordinate
        change = np.exp(np.mean(np.log(spread / old), axis=1))
        self._replace(scales=spread, steps=np.asarray(self.kernel.steps) / change)

    def reschedule(self, seen: Seen, left: int) -> None:
        """Equal rejection between neighbours; another number of replicas if it differs much."""
        old, count = np.asarray(self.kernel.betas, float), self.kernel.num_replicas
        wanted = int(np.clip(np.ceil(2 * np.sum(1 - seen.swaps)) + 1, 2, MOST))
        if left > 1 and abs(wanted - count) > NEAR * count:
            count = wanted
        betas = equal_rejection(old, seen.swaps, count)
        log_betas, log_old = (np.log(b[1:] + 1e-3) for b in (betas, old))
        steps = np.interp(log_betas, log_old, np.log(np.asarray(self.kernel.steps)))
        rows = np.asarray(self.kernel.scales)
        nearest = np.abs(log_betas[:, None] - log_old).argmin(1)
        self._place(nearest[:-1])
        self._replace(betas=betas, steps=np.exp(steps), scales=rows[nearest])

    def _place(self, nearest: np.ndarray) -> None:
        """Give every replica of the new schedule the position of the nearest old one."""
        carried, cold = self.states.carried, len(self.kernel.betas) - 2
        whole = [
            np.concatenate([np.asarray(inner), np.asarray(last)[:, None]], axis=1)
            for inner, last in (
                (carried.positions, self.states.position),
                (carried.log_target, self.states.log_density),
                (carried.log_reference, np.zeros(self.how.ladders)),
            )
        ]
        parts = [jnp.asarray(part[:, np.minimum(nearest, cold)]) for part in whole]
        tags = jnp.zeros((self.how.ladders, nearest.size + 2), jnp.int32)
        self.states = scored(
            self.kernel,
            self.states._replace(carried=carried._replace(
                positions=parts[0], log_target=parts[1], log_reference=parts[2], tags=tags,
            )),
        )  # fmt: skip

    def refit(self, seen: Seen) -> None:
        """Fit a reference to the cold draws, or undo the last fit if it raised the barrier."""
        barrier = float(np.sum(1 - seen.swaps))
        if self.before is not None and barrier > self.before[0]:
            _, self.kernel, self.states = self.before
            return
        assert self.how.fit is not None
        self.before = barrier, self.kernel, self.states
        draws = seen.cold[len(seen.cold) // 2 :].reshape(-1, seen.cold.shape[-1])
        fitted = self.how.fit(draws)
        self._replace(reference=Joined(fitted, self.wide, SHARE))
        self.states = scored(self.kernel, self.states)

    def try_transports(self, scans: int) -> None:
        """Exchange through affine transports if that makes more round trips per evaluation."""
        plain, states, spent = self.kernel, self.states, self.evaluations
        seen = self.run(scans, adapt=True)
        cost = self.evaluations - spent
        self.kernel = eqx.tree_at(lambda k: k.steps, self.kernel, plain.steps)
        sd = np.sqrt(seen.spreads)
        maps = [
            Affine(jnp.asarray(seen.means[k + 1] - seen.means[k] * s), jnp.asarray(s))
            for k, s in enumerate(sd[1:] / sd[:-1])
        ]
        self._replace(transports=maps)
        learned = self.run(scans, adapt=True)
        relative_cost = (self.evaluations - spent - cost) / cost
        if trip_rate(learned.swaps) / relative_cost < BETTER * trip_rate(seen.swaps):
            self.kernel, self.states = plain, states
        else:
            self.kernel = eqx.tree_at(lambda k: k.steps, self.kernel, plain.steps)

    def finished(self, seen: Seen) -> Tempered:
        k = self.kernel
        ladder: Ladder = measured(
            k.betas, seen.swaps, seen.moves, seen.trips, seen.log_weights, self.evaluations
        )
        # steps from the hot end to the cold one, at the measured rate of round trips
        way = k.num_replicas / trip_rate(seen.swaps) / 2
        warmup = int(np.ceil(min(way, 10 * seen.cold.shape[0]) / k.scans))
        self._replace(ladder=ladder, warmup=warmup, ladders=self.states.carried.positions)
        return self.kernel

    def _replace(self, **changed: Any) -> None:
        """Replace parts of the kernel."""
        k = self.kernel
        same = {"betas": k.betas, "steps": k.steps, "scales": k.scales, "reference": k.reference}
        same |= {"leaps": k.leaps, "scans": k.scans, "warmup": k.warmup, "ladder": k.ladder}
        made = Tempered(k.target, **(same | changed))
        keeps = not {"transports", "betas", "reference"} & changed.keys()
        if keeps and k.exchange is not None:
            made = eqx.tree_at(
                lambda m: m.exchange, made, k.exchange, is_leaf=lambda leaf: leaf is None
            )
        self.kernel = made

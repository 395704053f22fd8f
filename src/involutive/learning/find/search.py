"""The search for where a density lives: climbs, annealing or resampling, and the user's points."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from flowjax.distributions import AbstractDistribution
from jaxtyping import Array, Key

from involutive._xla.batched import LawRows, Rows
from involutive._xla.threads import one_thread
from involutive.core.errors import check
from involutive.core.keys import generator, split
from involutive.learning.budget import CLIMBED, SEARCH, Meter
from involutive.learning.effort import Effort
from involutive.learning.find.annealing import (
    anneal,
    finite_draws,
    finite_rows,
    log_mean,
    resampled,
)
from involutive.learning.find.climbs import Climbed, climb, on_the_way, promising
from involutive.learning.refine.local import FEW, gradients_useful
from involutive.sampling.progress import Progress

SPIKE = 20.0  # by which a mode's log mass may be below that of all: else it is a spike of no mass
BESIDE = 8.0  # the same for places on the way into a spike
PARTIES = 4  # that climb one after the other
# times the width of X, then of what was reached, from which more climb; at most that many times
GROWN = (1.8, 1.1, 1.1, 1.1, 1.1)
TRIED = 4  # times as many places as climb, to find them where the density is finite
AROUND = 2.0  # widths of what was reached that they begin in


@dataclass(frozen=True)
class Search:
    """A search from the law X, of a given size."""

    rows: Rows
    law: AbstractDistribution
    meter: Meter
    effort: Effort
    progress: bool | None

    def find(self, key: Key[Array, ""], initial: Any) -> np.ndarray:
        """Points that cover the density: climbed from X, annealed from X, and the user's own."""
        with one_thread():
            return self._find(key, initial)

    def _find(self, key: Key[Array, ""], initial: Any) -> np.ndarray:
        key_start, key_climb, key_anneal, key_beside = split(key, 4)
        effort, law = self.effort, LawRows(self.law, self.rows.block)
        search, log_weights = finite_draws(
            self.rows, law, key_start, max(effort.search, effort.particles)
        )
        starts = search[: effort.particles]
        check(
            len(starts) > 0,
            "the log density is not finite at any of 100 draws of the initial law; pass initial=, "
            "a law or points inside the support",
        )
        gradients = gradients_useful(self.rows, starts)
        slopes = gradients and self.rows.dim > FEW
        climbed = Climbed(starts[:0], starts[:0], np.zeros(0))
        with Progress("finding modes", 2, self.progress) as bar:
            if gradients:
                climbed = self._climb(search[: effort.search], key_climb, slopes)
            bar.update(1, evaluations=self.rows.evaluations)
            carried, mass = self._carry(law, search, log_weights, key_anneal, gradients, slopes)
            spikes = climbed.masses < mass - SPIKE
            found = [climbed.points[~spikes], carried]
            if spikes.any():
                starts, least = climbed.starts[spikes], mass - BESIDE
                found.append(on_the_way(self.rows, starts, least, key_beside, gradients=slopes))
            bar.update(2, evaluations=self.rows.evaluations)
        if initial is not None and not isinstance(initial, AbstractDistribution):
            found.append(np.asarray(initial, dtype=carried.dtype))
        return finite_rows(self.rows, np.concatenate(found))

    def _carry(
        self,
        law: LawRows,
        search: np.ndarray,
        log_weights: np.ndarray,
        key: Key[Array, ""],
        gradients: bool,
        slopes: bool,
    ) -> tuple[np.ndarray, float]:
        """Draws of X resampled or annealed, with the density's log integral as they saw it."""
        count = self.effort.particles
        picked = resampled(search, log_weights, count, key) if gradients else None
        if picked is not None:
            return picked, log_mean(log_weights)
        if gradients and self.meter.past(CLIMBED):
            return search[:0], -np.inf
        return anneal(
            self.rows, law, search[:count], log_weights[:count], key,
            gradients=slopes,
            spent=lambda: self.meter.past(SEARCH),
        )  # fmt: skip

    def _climb(self, search: np.ndarray, key: Key[Array, ""], slopes: bool) -> Climbed:
        """Climb from points of X, from around it, and from where a wider search stood highest.

        A quarter each: X, X stretched twofold and fourfold, and the best of the search. Where that
        leads far beyond X, more climb from around what was reached, until it grows no more: modes
        may go on there.
        """
        quarter, (key_first, *keys) = self.effort.climbers // 4, split(key, 1 + len(GROWN))
        centre, many = search.mean(axis=0), TRIED * quarter
        wider = (centre + (search[:many] - centre) * stretch for stretch in (2.0, 4.0))
        parts = [
            search[:quarter],
            *(finite_rows(self.rows, points)[:quarter] for points in wider),
            promising(self.rows, search, quarter),
        ]
        climbed = [self._party(np.concatenate(parts), key_first, slopes)]
        width = np.ptp(_ends(search), axis=0)
        for key_again, grown in zip(keys, GROWN, strict=True):
            low, high = _ends(climbed[-1].points)
            if self.meter.past(SEARCH) or not np.any(high - low > grown * width):
                break
            key_around, key_more = split(key_again, 2)
            width = np.maximum(high - low, width)
            # evenly, since what is missing lies at the edge
            shares = generator(key_around).uniform(size=(2 * many, self.rows.dim))
            around = (0.5 * (low + high) + AROUND * width * (shares - 0.5)).astype(search.dtype)
            around = finite_rows(self.rows, around)[: 2 * quarter]
            if len(around) < PARTIES:  # hardly any place there is inside the support
                break
            climbed.append(self._party(around, key_more, slopes))
        return Climbed(*map(np.concatenate, zip(*climbed, strict=True)))

    def _party(self, points: np.ndarray, key: Key[Array, ""], slopes: bool) -> Climbed:
        """Climb from points; with a limit in seconds by parties, until the search's is over."""
        parties = 1 if self.meter.budget.seconds is None else PARTIES
        points, tops = points.astype(self.rows.dtype), []
        for i, key_party in enumerate(split(key, parties)):
            tops.append(climb(self.rows, points[i::parties], key_party, gradients=slopes))
            if self.meter.past(SEARCH):
                break
        return Climbed(*map(np.concatenate, zip(*tops, strict=True)))


def _ends(points: np.ndarray) -> np.ndarray:
    """Where the points begin and end along every coordinate, but for a hundredth on each side."""
    points = points[np.isfinite(points).all(axis=1)]
    return np.quantile(points, [0.01, 0.99], axis=0) if len(points) else np.zeros((2, 1))

"""Frugal learning, for densities whose calls are expensive."""

from dataclasses import dataclass

from involutive.core.types import Number
from involutive.diagnostics.findings import LEAST_ESS
from involutive.learning.settings.checks import check_not_negative


@dataclass(frozen=True)
class FrugalSettings:
    """When learning is frugal, and its sizes and thresholds.

    Args:
        on: True for always, False for never; None to decide by the budget and by the cost of a
            call. [the user's choice]
        below: evaluations of a budget below which learning is frugal. [a guess]
        ordinary: evaluations of ordinary learning without gradients. Learning is frugal if so many
            calls of a density on the host would exceed the budget in seconds.
            [measured by `python -m involutive.bench.frugal --ordinary`]
        timed_calls: calls that are timed; the minimum counts. [a guess]
        timed_pool: simultaneous calls if a pool makes them. [a guess]
        timed_share: share of the budget in seconds after which one timing decides. [a guess]
        speed: arithmetic operations per second of a JAX density, whose calls are not timed.
            [a guess, on the fast side]
        most_dim: maximum dimension of frugal learning unless `on` is True: the evaluations for a
            Hessian grow as the squared dimension. [a guess]
        advised: evaluations per dimension that are advised where a budget was too small. [a guess]
        goal: effective draws that the user will want. A batch must save more evaluations on the
            way to them than it costs. [the benchmark's goal]
        first: draws of the first batch, and additional draws per dimension. [a guess]
        first_share: maximum share of the evaluations left that the first batch may take. [a guess]
        frame_draws: draws of X whose quantiles give the unit of length of every coordinate.
            [a guess]
        widths: multiples of X's width in the first batch, beside X itself. [a guess]
        width_share: share of the first batch at those widths. [a guess]
        ascents: ascents per group. [a guess]
        least_ascents: minimum ascents of a first search. [a guess: a mode that one start in twenty
            leads to is missed by one search in ten]
        per_mode: minimum ascents per mode found. [a guess: coupon collector's]
        most_ascents: maximum ascents of a first search. [a guess]
        later_ascents: ascents of a later search. [a guess]
        rare: maximum ascents that end in a rarely seen mode. [a guess]
        unseen: rarely seen modes per ascent at which the search may end; by Good and Turing they
            estimate the chance of an unseen mode. [a guess]
        ascent_share: share of a budget of evaluations that ascents may take. [a guess]
        ascent_steps: maximum steps of an ascent. [a guess]
        ascent_rise: nats of predicted rise below which an ascent ends. [a guess]
        probe: first distance of a probe for slopes, in sds of X. [a guess]
        probe_scale: later distances, in local scales. [a guess]
        probe_least: smallest distance, in sds of X. [a guess]
        trust: first length of a step, in sds of X times √dim. [a guess]
        trust_change: factors on that length after a failed step and after one that rose. [a guess]
        tries: lengths of the step that are tried. [a guess]
        try_noise: sd of the noise on a try, in local scales. [a guess: its density must be known]
        along: places between two tops, as shares of the distance, where a valley is looked for.
            [a guess]
        valley: nats below the lower of two tops that make a valley between two modes. [a guess]
        regressed_points: minimum evaluations near a top, per term of the quadratic fitted to them.
            [a guess]
        regressed_radius: their maximum distance from the top beyond √dim, in local scales.
            [a guess]
        regressed_rest: maximum root mean squared residual of the quadratic, in nats. [a guess]
        regressed_least: minimum curvature of the quadratic, in local scales. [a guess]
        regressed_draws: draws around every top before the regression, per term. [a guess]
        widest: largest scale of a mode, in sds of X. [a guess]
        batch: draws of a batch, and additional draws per dimension. [a guess]
        least_batch: share of these draws, without those per dimension, below which a budget has no
            room for another batch. [a guess]
        batch_growth: share of the first batch's size by which every batch grows. [a guess]
        effective: effective draws per dimension below which weights are tempered. [a guess]
        negligible: weight, relative to the largest, below which an evaluation is left out of a fit.
            [a guess]
        whitened: minimum draws resampled by weight from which a whitening is made. [a guess]
        held: share of the evaluations held out to compare candidates. [a guess]
        first_components: numbers of components of the first candidates, where no mode was found.
            [a guess]
        more: factor on the number of components of a larger candidate. [a guess]
        most_components: maximum number of components. [a guess]
        lack: maximum nats by which log p/q, above or below its median, changes the chance of a
            point to seed a component. [a guess]
        points_per: effective draws per component and dimension of a larger candidate. [a guess]
        helps: factor of effective draws that a larger candidate must gain. [a guess]
        poor: effective draws per draw below which a batch explores. [a guess]
        exploring: shares of an exploring batch: q, q stretched, normals around the points with the
            largest p/q, one wide normal over X. [a guess]
        settled: the same shares of a batch that does not explore.
            [standard: defensive importance sampling, Hesterberg 1995]
        gains: factor of effective draws in all that a tempered batch must gain. [a guess]
        scout_pool: points with the largest p/q, per scout, among which scouts are chosen. [a guess]
        below_level: share of the mass below the level of p/q that a mode must exceed to count as
            missed. [a guess]
        scouts: number of normals around points with the largest p/q. [a guess]
        most_batches: maximum batches between two searches. [a guess]
        patience: maximum cost of successive batches that do not pay, as a share of the evaluations
            that a perfect proposal would save. [a guess]
        unexplained: nats by which p must exceed the tails of known modes at a place from which a
            later search ascends. [a guess]
        later_places: starting places per ascent of a later search. [a guess]
        later_shares: shares of the new ones among them from normals at X's widths and from the
            mixture stretched. [a guess]
        searches: maximum searches after the first, each for modes that the mixture misses.
            [a guess]
        given_share: share of the first batch from a given kernel's proposal. [a guess]
        trusted: effective draws in all below which weights do not judge the proposal. [standard:
            Vehtari et al. 2021]
        least_ess: effective draws per draw below which the proposal is said to fail. [a guess]
        tails: candidate shares of proposals from components stretched by `stretches`. [a guess]
        stretches: factors on the covariances of those components. [a guess]
        warmup: steps to discard, needed by chains that start away from the proposal. [a guess]
        starts: weighted draws that chains start from. [a guess]
        start_width: sd around those draws, in the scale within modes. [a guess]

    Raises:
        InputError: if a number is negative.

    Example:
        >>> import involutive as inv
        >>> inv.LearnSettings(frugal=inv.FrugalSettings(on=True)).frugal.goal
        10000
    """

    on: bool | None = None
    below: Number = 250_000
    ordinary: Number = 300_000
    timed_calls: int = 3
    timed_pool: int = 16
    timed_share: Number = 0.01
    speed: Number = 1e10
    most_dim: int = 50
    advised: int = 5_000
    goal: Number = 10_000
    first: tuple[int, int] = (750, 75)
    first_share: Number = 0.25
    frame_draws: int = 2000
    widths: tuple[Number, ...] = (0.1, 0.3, 2.0, 4.0)
    width_share: Number = 0.4
    ascents: int = 16
    least_ascents: int = 48
    per_mode: int = 24
    rare: int = 2
    most_ascents: int = 256
    later_ascents: int = 32
    unseen: Number = 0.02
    ascent_share: Number = 0.35
    ascent_steps: int = 25
    ascent_rise: Number = 0.1
    probe: Number = 0.1
    probe_scale: Number = 0.5
    probe_least: Number = 1e-4
    trust: Number = 2.0
    trust_change: tuple[Number, Number] = (0.2, 2.0)
    tries: tuple[Number, ...] = (1.0, 0.4, 0.1)
    try_noise: Number = 0.03
    along: tuple[Number, ...] = (0.25, 0.5, 0.75)
    valley: Number = 1.0
    regressed_points: Number = 1.3
    regressed_radius: Number = 2.0
    regressed_rest: Number = 0.3
    regressed_least: Number = 0.01
    regressed_draws: Number = 0.75
    widest: Number = 2.0
    batch: tuple[int, int] = (500, 75)
    least_batch: Number = 0.5
    batch_growth: Number = 0.1
    effective: Number = 10.0
    negligible: Number = 1e-9
    whitened: int = 200
    held: Number = 0.25
    first_components: tuple[int, ...] = (1, 2, 4, 8)
    more: Number = 1.5
    most_components: int = 128
    lack: Number = 2.0
    points_per: Number = 4.0
    helps: Number = 1.02
    poor: Number = 0.3
    exploring: tuple[float, ...] = (0.5, 0.25, 0.15, 0.1)
    settled: tuple[float, ...] = (0.85, 0.1, 0.02, 0.03)
    gains: Number = 1.2
    scout_pool: int = 20
    below_level: Number = 0.999
    scouts: int = 8
    most_batches: int = 24
    patience: Number = 0.25
    unexplained: Number = 2.0
    later_places: int = 2
    later_shares: tuple[Number, Number] = (0.5, 0.5)
    searches: int = 3
    given_share: Number = 0.8
    trusted: Number = LEAST_ESS
    least_ess: Number = 0.1
    tails: tuple[Number, ...] = (0.0, 0.05, 0.15)
    stretches: tuple[Number, ...] = (3.0, 20.0)
    warmup: int = 10
    starts: int = 256
    start_width: Number = 0.1

    def __post_init__(self) -> None:
        check_not_negative(self)

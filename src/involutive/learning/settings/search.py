"""The search: draws of X, climbs, annealing, and the second search."""

from dataclasses import dataclass

from involutive.core.types import Number
from involutive.learning.settings.checks import check_not_negative


@dataclass(frozen=True)
class SearchSettings:
    """Sizes and thresholds of the search for modes.

    Args:
        initial_wider: sd of the normal X around given starting points, in sds of the points.
            [a guess]
        initial_least: minimum of that sd, as a share of 1 plus the largest size of the points.
            [a guess]
        attempts: maximum batches of X drawn until enough points have a finite density. [a guess]
        first_share: share of the stage's evaluations that the first draws of X take. [a guess]
        gradient_points: points at which gradients are tried. [a guess]
        gradient_finite: share of them at which gradients must be finite. [a guess]
        gradient_nonzero: share of the finite ones that must not be zero. [a guess]
        frugal_climb: evaluations left below which nothing climbs, as gradients are too expensive.
            [a guess]
        walk_dims: dimensions in which a random walk spreads as well as HMC, and compiles sooner.
            [a guess]
        parties: successive groups of climbers, between which time is checked. [a guess]
        start_tries: draws of X per climb at every width, so that enough are finite. [a guess]
        around: size of the box in which further climbs start, in widths of the reached region.
            [a guess]
        around_places: places drawn there per climber, so that enough are finite. [a guess]
        around_climbs: share of the climbers that climb from there. [a guess]
        extent: quantiles of every coordinate between which a region lies. [a guess]
        first_step: first step of an ascent along every coordinate. [a guess]
        step_bounds: smallest and largest step of an ascent. [a guess]
        step_growth: share by which a step grows while its gradient keeps its sign. [standard:
            Rprop]
        step_cut: share by which it shrinks when the sign changes. [standard: Rprop]
        check_every: number of ascent steps in which some point must rise by `rise`. [a guess]
        rise: nats that count as a rise. [a guess]
        newton_steps: maximum Newton steps after an ascent; one reaches the top of a normal.
            [a guess]
        same_top: local sds within which two tops are one mode. [a guess]
        most_tops: maximum number of distinct modes. [a guess]
        scale_bounds: bounds on the local scales that spreading uses. [a guess]
        top_scale_bounds: bounds on the scales of a mode's Laplace normal. [a guess]
        widest: maximum ratio of two axes of a mode's normal. [so that its covariance can be
            factorised]
        resolves: floating-point numbers per local scale below which rounding errors dominate.
            [a guess]
        path_points: places per climb that are examined on the way into a spike. [a guess]
        beside_nats: log mass below the total that such places may have. [a guess]
        lighter_nats: log mass below the total at which a mode still must be covered. [a guess]
        leaps: leapfrog steps per HMC move. [a guess]
        hmc_acceptance: acceptance rate that steps of HMC adapt to. [standard: near-optimal]
        walk_acceptance: the same for a random walk. [standard: near-optimal]
        spread_hmc: first and largest step of HMC over a mode, in local scales; the first times
            dim^(-1/4). [a guess]
        spread_walk: the same for a random walk; the first times dim^(-1/2). [a guess]
        spread_gain: change of log step per excess of the acceptance rate. [a guess]
        spread_least: smallest step over a mode, in local scales. [a guess]
        anneal_hmc: first step of HMC in annealing, in the particles' scales. [a guess]
        anneal_walk: the same for a random walk, times dim^(-1/2). [standard: 2.38/√d]
        anneal_most: largest step of either. [a guess]
        anneal_change: largest change of the log step per move. [a guess]
        usual_temperatures: temperatures that a budget of evaluations is divided by, where there
            are no gradients. [a guess]
        least_particles: minimum particles there. [a guess]
        dispersed: places kept for chains that start away from the proposal. [a guess]
        again_particles: minimum draws of X in a second search. [a guess]
        again_climbers: minimum climbers of a second search. [a guess]
        again_stretches: factors on the components' scales that its starting places are drawn at.
            [a guess]
        beyond_ends: how far lines between two components extend beyond them, as a share of their
            distance. [a guess]
        line_spread: sd around those lines, in whitened units. [a guess]
        given_share: maximum share of the evaluations left in which given points are looked at.
            [a guess]
        given_points: maximum points of given draws from which X is made. [a guess]
        given_lightest: minimum weight of a component of a given kernel that learning starts from.
            [a guess]
        given_least: minimum given points at which the density must be finite. [a guess]

    Raises:
        InputError: if a number is negative.

    Example:
        >>> import involutive as inv
        >>> search = inv.SearchSettings(newton_steps=8)
        >>> inv.LearnSettings(search=search).search.newton_steps
        8
    """

    initial_wider: Number = 2.0
    initial_least: Number = 1e-3
    attempts: int = 100
    first_share: Number = 0.25
    gradient_points: int = 64
    gradient_finite: Number = 0.8
    gradient_nonzero: Number = 0.5
    frugal_climb: Number = 150_000
    walk_dims: int = 3
    parties: int = 4
    start_tries: int = 4
    around: Number = 2.0
    around_places: int = 2
    around_climbs: Number = 0.5
    extent: tuple[Number, Number] = (0.002, 0.998)
    first_step: Number = 0.1
    step_bounds: tuple[Number, Number] = (1e-9, 1e3)
    step_growth: Number = 0.2
    step_cut: Number = 0.5
    check_every: int = 25
    rise: Number = 0.01
    newton_steps: int = 4
    same_top: Number = 1.0
    most_tops: int = 512
    scale_bounds: tuple[Number, Number] = (1e-6, 30.0)
    top_scale_bounds: tuple[Number, Number] = (1e-8, 1e5)
    widest: Number = 1e6
    resolves: Number = 8.0
    path_points: int = 4
    beside_nats: Number = 8.0
    lighter_nats: Number = 7.0
    leaps: int = 4
    hmc_acceptance: Number = 0.75
    walk_acceptance: Number = 0.3
    spread_hmc: tuple[Number, Number] = (0.5, 1.5)
    spread_walk: tuple[Number, Number] = (1.0, 3.0)
    spread_gain: Number = 0.3
    spread_least: Number = 1e-4
    anneal_hmc: Number = 0.5
    anneal_walk: Number = 2.38
    anneal_most: Number = 3.0
    anneal_change: Number = 0.5
    usual_temperatures: int = 15
    least_particles: int = 16
    dispersed: int = 256
    again_particles: int = 64
    again_climbers: int = 32
    again_stretches: tuple[Number, ...] = (2.0, 4.0)
    beyond_ends: Number = 0.5
    line_spread: Number = 0.1
    given_share: Number = 0.25
    given_points: int = 2000
    given_lightest: Number = 0.01
    given_least: int = 20

    def __post_init__(self) -> None:
        check_not_negative(self)

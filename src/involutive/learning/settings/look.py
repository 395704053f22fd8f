"""The final search: where p and q are compared, and how much mass may be missed."""

from dataclasses import dataclass

from involutive.core.types import Number
from involutive.diagnostics.search import MISSED
from involutive.learning.settings.checks import check_not_negative


@dataclass(frozen=True)
class LookSettings:
    """Sizes and thresholds of the final search for mass that proposal and chains have missed.

    Args:
        own_draws: draws of q; a point whose p/q exceeds their maximum is missed by q. [a guess]
        widths: multiples of X's width at which p and q are compared. [guesses]
        stretches: factors on the proposal's draws about their centre. [guesses]
        best: climbs from the highest p/q, per climb from q. [a guess]
        random: climbs from X, per climb from q. [a guess]
        scanned: maximum arithmetic operations of p and q at all places; about half a second.
            [a guess]
        place_draws: share of `search_draws` that bounds the places per group in two dimensions.
            [a guess]
        dimension_growth: factor on that bound per further dimension. [a guess]
        most_growth: maximum of these factors together, and the factor for places beyond the bulk
            in any dimension. [measured on a mode of sd 0.1 at 26 from X's centre in 3-D]
        bulk_growth: maximum of the factors for places spread about as wide as X or the proposal,
            where a narrow mode beside the bulk is seen. [a guess; in 12 dimensions one such place
            in 300 000 sees a mode of sd 0.5 at 8 from one of sd 2]
        narrowest_bulk: minimum width of X at which places count as such. [a guess]
        jitter: noise on stretched draws of q, in standard deviations of q. [a guess]
        at_once: places that are compared at once, which bounds memory. [a guess]
        place_share: share of the evaluations left that the places may take. [a guess]
        climb_share: share of the evaluations left that climbs may take. [a guess]
        climb_gradients: gradients of a typical climb; the maximum is a hundred. [a guess]
        climbers: climbers of the search from which the final search has all of its climbs.
            [the default]
        usual: minimum climbs if the budget has room for them. [a guess]
        fewest: climbs below which no final search is made. [a guess]
        least_seconds: seconds left below which no final search is made. [measured by `python -m
            involutive.bench.budgets`]
        largest: maximum share of the mass that may be missed. [a guess; the verdict on draws asks
            for the same]
        chains: chains that test whether the kernel visits the missed mass. [a guess]
        chain_tries: draws of q per chain to start. [a guess]
        steps: steps of those chains. [a guess]
        visited: share of their draws, per missed mass, that must lie there. [a guess]
        passes: how often modes that the final search finds go back to the fit. [a guess]
        climbs_back: climbs from the tops of what was found before it goes back. [a guess]

    Raises:
        InputError: if a number is negative.

    Example:
        >>> import involutive as inv
        >>> inv.LearnSettings(look=inv.LookSettings(largest=0.001)).look.largest
        0.001
    """

    own_draws: int = 2048
    widths: tuple[Number, ...] = (0.01, 0.03, 0.1, 0.3, 0.6, 1.0, 2.0, 4.0)
    stretches: tuple[Number, ...] = (1.0, 1.5, 2.0, 3.0)
    best: Number = 0.25
    random: Number = 0.5
    scanned: Number = 2.4e10
    place_draws: Number = 0.5
    dimension_growth: Number = 1.5
    most_growth: Number = 20.0
    bulk_growth: Number = 60.0
    narrowest_bulk: Number = 0.5
    jitter: Number = 0.3
    at_once: int = 65_536
    place_share: Number = 0.25
    climb_share: Number = 0.5
    climb_gradients: Number = 40
    climbers: int = 1024
    usual: int = 128
    fewest: int = 16
    least_seconds: Number = 3.0
    largest: Number = MISSED
    chains: int = 64
    chain_tries: int = 4
    steps: int = 200
    visited: Number = 1 / 3
    passes: int = 2
    climbs_back: int = 128

    def __post_init__(self) -> None:
        check_not_negative(self)

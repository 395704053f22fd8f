"""The fit: EM, importance weights, and training on draws."""

from dataclasses import dataclass

from involutive.core.types import Number
from involutive.learning.settings.checks import check_not_negative


@dataclass(frozen=True)
class FitSettings:
    """Sizes and thresholds of the fit of a proposal.

    Args:
        reaches: effective draws per draw of a mixture that repairs weights as it is. [a guess]
        searches: second searches, each after a refit with what the one before had found. [a guess]
        far_draws: draws of X that the wide component covers. [a guess]
        em_iterations: most iterations of EM from scratch. [a guess]
        em_rise: nats per point below which EM stops; the rest is left to tuning. [a guess]
        em_floor: variance added to every coordinate, in whitened units. [a guess]
        prior_points: points per dimension that a component counts as when it is fitted again.
            [a guess]
        lack: largest factor by which a lack of q at a point counts in seeding. [a guess]
        beyond: factor above the largest weight at which a point is not covered. [a guess]
        stretch: excess of the stretched covariances of the importance distribution, times
            dim^(-1/2). [a guess]
        wide_covariance: factor on the covariance of X and the points in the wide normal. [a guess]
        wide_clip: median deviations beyond which points are drawn in for it. [a guess]
        overlap: Bhattacharyya distance below which two components overlap. [a guess]
        light: weight of the components, in all, that lie between modes and link none. [a guess]
        least_share: of the mass of the heaviest mode, that a mode's component gets. [a guess]
        per_mode: components per mode in the first mixture. [a guess]
        most_modes: modes that the first mixture has components for. [a guess]
        first_fewer: factor by which the first mixture is smaller than EM affords. [a guess]
        first_components: bounds on the components of the first mixture. [a guess]
        second_components: bounds on the components of the second. [a guess]
        first_em: factor on `em_steps` in the fit to the points found. [a guess]
        tried: shares of `fit_draws` in the samples that a mixture is tried on; the last judges it.
            [a guess]
        judged_share: share of a sample's size that judges a mixture. [a guess]
        polish_share: share of `fit_draws` per batch where modes join a mixture or it is poor.
            [a guess]
        polish_bounds: the same bounds where a mixture is fitted to as many as EM affords. [a guess]
        em_points: points whose responsibilities EM computes in a fraction of a second: times the
            components, and times components and squared dimension. [a guess]
        found_share: share of the points found that seed components beside weighted draws; of a
            sample's size, that join the first. [a guess]
        helps: factor of effective draws that more components or draws must gain. [a guess]
        nearly: of `good_enough`, from which draws are lacking and not components. [a guess]
        settled: effective draws per draw from which only more draws help. [a guess]
        worth: factor of effective draws that another batch must promise. [a guess]
        together: batches that a mixture is fitted to together. [a guess]
        most_falls: batches without gain after which the fit ends. [a guess]
        keeps: share of its effective draws that a mixture must keep on new draws, or it is
            refitted. [a guess]
        training_looks: looks at the held-out draws in a training. [a guess]
        training_scorings: scorings of mixtures in a training, about. [a guess]
        tune_slower: factor between the rates at which couplings are trained and tuned. [a guess]
        patience: looks without improvement after which the training of a mixture ends. [a guess]
        tolerance: least improvement of the held-out objective that counts. [a guess]

    Raises:
        InputError: if a number is negative.

    Example:
        >>> import involutive as inv
        >>> inv.LearnSettings(fit=inv.FitSettings(searches=2)).fit.searches
        2
    """

    reaches: Number = 0.2
    searches: int = 4
    far_draws: int = 1000
    em_iterations: int = 60
    em_rise: Number = 1e-4
    em_floor: Number = 1e-7
    prior_points: Number = 2.0
    lack: Number = 8.0
    beyond: Number = 20.0
    stretch: Number = 2.0
    wide_covariance: Number = 2.0
    wide_clip: Number = 10.0
    overlap: Number = 3.0
    light: Number = 0.02
    least_share: Number = 1e-3
    per_mode: int = 2
    most_modes: int = 128
    first_fewer: Number = 4
    first_components: tuple[int, int] = (8, 32)
    second_components: tuple[int, int] = (8, 128)
    first_em: int = 3
    tried: tuple[Number, ...] = (0.125, 0.25, 0.25)
    judged_share: Number = 0.25
    polish_share: Number = 0.5
    polish_bounds: tuple[Number, Number] = (0.5, 4.0)
    em_points: tuple[Number, Number] = (1e7, 7e8)
    found_share: Number = 0.25
    helps: Number = 1.02
    nearly: Number = 0.93
    settled: Number = 0.8
    worth: Number = 1.06
    together: int = 2
    most_falls: int = 2
    keeps: Number = 0.9
    training_looks: int = 10
    training_scorings: int = 4
    tune_slower: Number = 4
    patience: int = 3
    tolerance: float = 1e-4

    def __post_init__(self) -> None:
        check_not_negative(self)

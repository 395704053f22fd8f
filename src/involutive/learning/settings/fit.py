"""The fit: EM, importance weights, and training on draws."""

from dataclasses import dataclass

from involutive.core.types import Number
from involutive.learning.settings.checks import check_not_negative


@dataclass(frozen=True)
class FitSettings:
    """Sizes and thresholds of the fit of a proposal.

    Args:
        reaches: effective draws per draw from which a mixture reaches the modes without training.
            [a guess]
        searches: maximum second searches, each after a refit with the modes of the previous one.
            [a guess]
        far_draws: draws of X that the wide component covers, and at most as many of the proposal or
            of the points found. [a guess]
        complete_turns: maximum number of times that weighted draws are searched for modes that the
            normals at the tops found do not explain. [a guess]
        complete_share: maximum share of the evaluations left that climbs from such draws take each
            time. [a guess]
        complete_above: acceptance rate of a proposal from those normals, below which p/q says
            nothing about missing modes. [a guess]
        em_iterations: maximum iterations of EM from scratch. [a guess]
        em_rise: rise of the mean log-likelihood, in nats, below which EM stops. [a guess]
        em_floor: variance added to every coordinate, in whitened units. [a guess]
        prior_points: pseudo-points per dimension by which a refit shrinks a component towards its
            previous value. [a guess]
        lack: maximum factor by which p/q at a point raises its chance to seed a component.
            [a guess]
        beyond: factor above the largest p/q of weighted draws from which a point is uncovered.
            [a guess]
        stretch: covariances are stretched by 1 + stretch·dim^(-1/2) in the importance distribution.
            [a guess]
        wide_covariance: factor on the covariance of X and the points in the wide normal. [a guess]
        wide_clip: median absolute deviations at which points are clipped for it. [a guess]
        overlap: Bhattacharyya distance below which two components overlap. [a guess]
        light: total weight of the lightest components, which do not link two modes. [a guess]
        least_share: minimum weight of a mode's component, relative to the heaviest mode's.
            [a guess]
        per_mode: components per mode in the first mixture. [a guess]
        most_modes: maximum modes that the first mixture has components for. [a guess]
        first_fewer: factor by which the first mixture is smaller than EM affords. [a guess]
        first_components: bounds on the components of the first mixture. [a guess]
        second_components: bounds on the components of the second. [a guess]
        first_em: factor on `em_steps` in the fit to the points found. [a guess]
        tried: sizes, as shares of `fit_draws`, of the samples that a mixture is tried on; the last
            one judges it. [a guess]
        judged_share: size of the sample that judges a mixture, per size that it is fitted to.
            [a guess]
        polish_share: batch size, as a share of `fit_draws`, if modes joined. [a guess]
        polish_bounds: bounds on that share if the batch has as many draws as EM can afford.
            [a guess]
        em_points: what EM computes in a fraction of a second: points times components, and points
            times components times squared dimension. [a guess]
        component_draws: draws per component that such a batch should have. [a guess]
        em_longer: maximum factor by which EM may take longer for it. [a guess]
        found_share: share of the points found that seed components beside weighted draws; also the
            number of points that join the first sample, as a share of its size. [a guess]
        helps: factor of effective draws that more components or draws must gain. [a guess]
        nearly: share of `good_enough` from which more components are not tried. [a guess]
        settled: effective draws per draw from which only more draws help. [a guess]
        worth: factor of effective draws that another batch must be expected to gain. [a guess]
        together: batches that a mixture is fitted to together. [a guess]
        most_falls: successive batches without gain after which the fit ends. [a guess]
        keeps: share of its effective draws that a mixture must keep on new draws, or it is
            refitted. [a guess]
        training_looks: evaluations on held-out draws in a training. [a guess]
        training_scorings: approximate number of mixtures scored in a training. [a guess]
        tune_slower: factor between the rates at which couplings are trained and tuned. [a guess]
        patience: held-out evaluations without improvement after which the training of a mixture
            ends. [a guess]
        tolerance: minimum improvement of the held-out objective that counts. [a guess]

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
    complete_turns: int = 6
    complete_share: Number = 0.1
    complete_above: Number = 0.4
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
    most_modes: int = 512
    first_fewer: Number = 4
    first_components: tuple[int, int] = (8, 32)
    second_components: tuple[int, int] = (8, 128)
    first_em: int = 3
    tried: tuple[Number, ...] = (0.125, 0.25, 0.25)
    judged_share: Number = 0.25
    polish_share: Number = 0.5
    polish_bounds: tuple[Number, Number] = (0.5, 4.0)
    em_points: tuple[Number, Number] = (1e7, 7e8)
    component_draws: int = 300
    em_longer: Number = 4.0
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

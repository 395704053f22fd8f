"""Structured proposals: products, hierarchies, symmetries, heavy tails."""

from dataclasses import dataclass

from involutive.core.types import Number
from involutive.learning.settings.checks import check_not_negative


@dataclass(frozen=True)
class StructureSettings:
    """Sizes and thresholds of structured proposals, tried where a mixture is not enough.

    Args:
        better: factor of effective draws that a candidate must gain over the mixture. [a guess]
        sample: draws that a candidate is judged on. [a guess]
        least_sample: fewer draws judge no candidate. [a guess]
        block_draws: weighted draws per fit of one block. [a guess]
        block_modes: assumed number of modes of a block. [a guess]
        interaction_points: points at which interactions of coordinates are measured. [a guess]
        top_points: points among which the highest one is chosen, at which other blocks are fixed.
            [a guess]
        symmetry_points: points at which symmetries are tried. [a guess]
        most_elements: maximum elements of a symmetry group that a proposal sums over. [a guess]
        tail_per_mode: Student-t components per mode. [a guess]
        tail_components: maximum Student-t components. [a guess]
        tail_degrees: median degrees of freedom of the components fitted to the points found from
            which tails count as normal. [a guess]
        tail_k: Pareto k of a structured proposal's importance weights from which Student-t
            components are tried beside it. [standard: finite variance, Vehtari et al. 2024]
        tail_rounds: batches that Student-t components are fitted to. [a guess]
        tail_draws: share of `fit_draws` in each. [a guess]
        tail_gain: nats per draw of a step of EM, below which it ends. [a guess]
        tail_longer: factor on the time per point of one batch that bounds the next one's. [a guess]
        hessian_points: points at which Hessians are compared, to find parents. [a guess]
        hessian_step: step of a coordinate, as a share of its spread. [a guess]
        changes: change of an entry, relative to the diagonal, that counts. [a guess]
        most_dim: maximum dimension in which Hessians at every step are affordable. [a guess]
        conditioned: points at which the children's precision is factorised. [a guess]
        conditioned_share: share of them at which it must be well conditioned. [a guess]
        digits: maximum relative error of that factorisation. [a guess]
        most_parents: maximum parents, for which a mixture can still be fitted well. [a guess]

    Raises:
        InputError: if a number is negative.

    Example:
        >>> import involutive as inv
        >>> structure = inv.StructureSettings(most_parents=3)
        >>> inv.LearnSettings(structure=structure).structure.most_parents
        3
    """

    better: Number = 1.1
    sample: int = 8192
    least_sample: int = 1024
    block_draws: int = 8192
    block_modes: int = 2
    interaction_points: int = 32
    top_points: int = 2000
    symmetry_points: int = 64
    most_elements: int = 256
    tail_per_mode: int = 2
    tail_components: int = 24
    tail_degrees: Number = 10.0
    tail_k: Number = 0.5
    tail_rounds: int = 3
    tail_draws: Number = 0.25
    tail_gain: Number = 1e-3
    tail_longer: Number = 3.0
    hessian_points: int = 6
    hessian_step: Number = 0.5
    changes: Number = 0.02
    most_dim: int = 64
    conditioned: int = 64
    conditioned_share: Number = 0.9
    digits: Number = 1e-3
    most_parents: int = 6

    def __post_init__(self) -> None:
        check_not_negative(self)

"""Proposals with structure: products, hierarchies, symmetries, heavy tails."""

from dataclasses import dataclass

from involutive.core.types import Number
from involutive.learning.settings.checks import check_not_negative


@dataclass(frozen=True)
class StructureSettings:
    """Sizes and thresholds of proposals with structure, tried where a mixture is not enough.

    Args:
        better: factor of effective draws that a candidate must gain over the mixture. [a guess]
        sample: draws that a candidate is judged on. [a guess]
        block_draws: weighted draws per fit of one block. [a guess]
        block_modes: modes that a block is taken to have. [a guess]
        interaction_points: points at which interactions of coordinates are measured. [a guess]
        top_points: points among which the highest is picked, at which other blocks are held.
            [a guess]
        symmetry_points: points at which symmetries are tried. [a guess]
        most_elements: elements of a symmetry group that a proposal sums over. [a guess]
        tail_per_mode: Student-t components per mode. [a guess]
        tail_components: most Student-t components. [a guess]
        tail_degrees: degrees of freedom, of the median component fitted to the points found, from
            which tails are taken for those of a normal. [a guess]
        tail_rounds: batches that Student-t components are fitted to. [a guess]
        tail_draws: share of `fit_draws` in each. [a guess]
        tail_longer: how much longer a batch may take per point than the batch before. [a guess]
        hessian_points: points at which Hessians are compared, to find parents. [a guess]
        hessian_step: of a coordinate's spread, by which it is moved. [a guess]
        changes: of the diagonal, from which an entry counts as changed. [a guess]
        most_dim: coordinates for which Hessians at every step are affordable. [a guess]
        conditioned: points at which the children's precision is factorised. [a guess]
        conditioned_share: share of them at which it must be well conditioned. [a guess]
        digits: relative error of that factorisation that is allowed. [a guess]
        most_parents: parents of which a mixture is still fitted well. [a guess]

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
    block_draws: int = 8192
    block_modes: int = 2
    interaction_points: int = 32
    top_points: int = 2000
    symmetry_points: int = 64
    most_elements: int = 256
    tail_per_mode: int = 2
    tail_components: int = 24
    tail_degrees: Number = 10.0
    tail_rounds: int = 3
    tail_draws: Number = 0.25
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

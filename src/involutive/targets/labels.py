"""Names of the axes of constrained variables, their values, and which variables are angles."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from involutive.core.errors import check
from involutive.core.types import Number
from involutive.targets.parameters import Parameters


class Labels:
    """Names of axes and their values for ArviZ; hashed by identity, so that it may be static.

    Attributes:
        periods: the ends of the circle of every variable that is an angle.
        declared: whether the variables are declared parameters, which are judged under their names.
    """

    def __init__(
        self,
        dims: Mapping[str, Sequence[str]] | None,
        coords: Mapping[str, Any] | None,
        periods: Mapping[str, tuple[Number, Number]] | None = None,
        declared: bool = False,
    ):
        self.dims, self.coords = dict(dims or {}), dict(coords or {})
        self.periods, self.declared = dict(periods or {}), declared


def labels_of(
    parameters: Parameters | None,
    dims: Mapping[str, Sequence[str]] | None,
    coords: Mapping[str, Any] | None,
    periods: Mapping[str, tuple[Number, Number]] | None,
) -> Labels:
    """The labels of a target: those of its parameters, where none are given in their place."""
    if parameters is not None:
        named = {**parameters.dims, **(dims or {})}
        places = {**parameters.coords, **(coords or {})}
        circles = parameters.periods if periods is None else periods
        return Labels(named, places, circles, declared=True)
    return Labels(dims, coords, periods) if dims or coords or periods else UNNAMED


def check_labels(labels: Labels, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise `InputError` if labels are of no variable, or do not fit the shape of theirs."""
    for option, named in (("dims", labels.dims), ("periods", labels.periods)):
        strange = [str(name) for name in named if name not in shapes]
        check(
            not strange,
            f"{option} must be of constrained variables, which are {', '.join(shapes)}, "
            f"got {', '.join(strange)}",
        )
    for name, axes in labels.dims.items():
        shape = shapes[name]
        check(
            not isinstance(axes, str) and len(axes) in (0, len(shape)),
            f"dims of {name} must name its {len(shape)} axes, as a list, got {axes!r}",
        )
        for axis, size in zip(axes, shape, strict=False):
            places = labels.coords.get(axis)
            check(
                places is None or len(places) == size,
                f"coords of {axis} must have {size} places, one along that axis of {name}, got "
                f"{0 if places is None else len(places)}",
            )
    for name, ends in labels.periods.items():
        check(
            len(ends) == 2 and math.isfinite(ends[1] - ends[0]) and ends[0] < ends[1],
            f"periods of {name} must be the two ends of its circle, such as (0, 6.28), got {ends}",
        )


UNNAMED = Labels(None, None)  # one, so that targets which differ in arrays only compile once

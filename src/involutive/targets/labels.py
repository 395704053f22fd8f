"""Names of the axes of constrained variables, their values, and which variables are angles."""

from collections.abc import Mapping, Sequence
from typing import Any

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
        periods: Mapping[str, tuple[float, float]] | None = None,
        declared: bool = False,
    ):
        self.dims, self.coords = dict(dims or {}), dict(coords or {})
        self.periods, self.declared = dict(periods or {}), declared


def labels_of(
    parameters: Parameters | None,
    dims: Mapping[str, Sequence[str]] | None,
    coords: Mapping[str, Any] | None,
    periods: Mapping[str, tuple[float, float]] | None,
) -> Labels:
    """The labels of a target: those of its parameters, where none are given in their place."""
    if parameters is not None:
        named = {**parameters.dims, **(dims or {})}
        places = {**parameters.coords, **(coords or {})}
        circles = parameters.periods if periods is None else periods
        return Labels(named, places, circles, declared=True)
    return Labels(dims, coords, periods) if dims or coords or periods else UNNAMED


UNNAMED = Labels(None, None)  # one, so that targets which differ in arrays only compile once

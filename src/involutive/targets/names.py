"""Names that parameters may have: tables and files of draws use a few themselves."""

from collections.abc import Iterable

from involutive.core.errors import check

TAKEN = ("chain", "draw", "lp")  # axes and a column of every table of draws


def check_names(names: Iterable[str], axes: Iterable[str] = ()) -> None:
    """Raise `InputError` if a name would be lost in a table of draws, or means two things."""
    found, along = list(names), list(axes)
    taken = [name for name in (*found, *along) if name in TAKEN]
    check(
        not taken,
        f"names of parameters and axes must differ from {', '.join(TAKEN)}, which tables of draws "
        f"use, got {', '.join(taken)}; rename it",
    )
    both = [axis for axis in along if axis in found]
    check(not both, f"an axis must not have the name of a parameter, got {', '.join(both)}")

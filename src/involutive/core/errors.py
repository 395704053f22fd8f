"""What a user can fix is an `InputError`: one line with the rule, the value found, the remedy."""


class InputError(ValueError):
    """A mistake in what was passed in. The command line prints it as one line and exits with 2.

    Example:
        >>> import involutive as inv
        >>> try:
        ...     inv.standard_normal(0)
        ... except inv.InputError as error:
        ...     print(error)
        dim must be at least 1, got 0
    """


class PrecisionWarning(UserWarning):
    """32 bits cannot resolve the log density where it is large: differences are lost in rounding.

    Example:
        >>> import warnings
        >>> import involutive as inv
        >>> warnings.simplefilter("error", inv.PrecisionWarning)
    """


def check(condition: object, message: str) -> None:
    """Raise `InputError(message)` unless `condition` holds."""
    if not condition:
        raise InputError(message)


def check_count(name: str, value: object, least: int = 1) -> int:
    """Return `value` as an int if it is a whole number of at least `least`."""
    whole = isinstance(value, int) or hasattr(value, "__index__")
    example = f"; pass for example {name}={max(least, 100)}" if name.isidentifier() else ""
    check(
        whole and not isinstance(value, bool),
        f"{name} must be a whole number, got {value!r}{example}",
    )
    number = int(value)  # type: ignore[arg-type]
    check(number >= least, f"{name} must be at least {least}, got {number}")
    return number

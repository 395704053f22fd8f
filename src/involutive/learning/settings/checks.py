"""The check of every group of settings: no number is negative."""

from dataclasses import fields, is_dataclass
from typing import Any

from involutive.core.errors import check


def check_not_negative(settings: Any) -> None:
    """Raise `InputError` if a number in a field of a settings dataclass is negative."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        if value is None or is_dataclass(value):
            continue
        numbers = value if isinstance(value, tuple) else (value,)
        check(
            all(number >= 0 for number in numbers),
            f"{field.name} of {type(settings).__name__} must not be negative, got {value}",
        )

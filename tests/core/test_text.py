"""Words of messages."""

import pytest

from involutive.core.text import first_line


@pytest.mark.parametrize(
    ("error", "named", "line"),
    [
        (ValueError("one\ntwo"), False, "one"),
        (ValueError("one\ntwo"), True, "ValueError: one"),
        (ValueError(), True, "ValueError"),
        (UserWarning(""), False, "UserWarning"),  # some libraries warn without a word
        ("one\ntwo", False, "one"),
    ],
)
def test_the_first_line_of_a_message_that_may_be_empty(error, named, line):
    assert first_line(error, named=named) == line

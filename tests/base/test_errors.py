import pytest

from dlscale.base.errors import LONGEST, UsageError


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("asked\r\n  found\u2028what to do", "asked found what to do"),
        ("a" * (LONGEST + 1), "a" * LONGEST + " ..."),
    ],
)
def test_a_message_is_one_line_of_a_bounded_length(message, line):
    assert str(UsageError(message)) == line


def test_it_can_be_raised_anew_from_its_message():
    # TensorFlow asks for this, and raises errors of its own, over many lines, where it is not so.
    assert UsageError.__init__ is Exception.__init__

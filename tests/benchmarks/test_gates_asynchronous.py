"""The gate of asynchronous training that needs no ranks."""

import math

import pytest

from dlscale.benchmarks.gates_asynchronous import falling_gate


class Ranks:
    """A control plane whose other rank has the same values times two."""

    def allgather(self, value):
        return [value, 2 * value]


@pytest.mark.parametrize(
    ("first", "last", "passed"),
    [
        ([2.0, 1.0], [0.5, 0.4], True),
        ([1.0], [1.0], False),
        ([1.0], [2.0], False),
        ([1.0], [math.nan], False),
    ],
)
def test_the_loss_must_fall(first, last, passed):
    assert falling_gate(first, last, control=Ranks()).passed == passed


def test_a_ratio_that_is_no_number_is_not_recorded_as_one():
    assert falling_gate([1.0], [math.nan], control=Ranks()).value is None

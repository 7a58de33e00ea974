"""Neighbours who are not there: everything is filled, on any rank of a replica, in arrays and in torch's tensors."""

import numpy as np
import pytest

from dlscale.collectives.neighbours import AbsentNeighbours

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("full", [np.full, lambda shape, value: torch.full(shape, float(value))])
def test_rows_of_others_are_zeros_and_sums_are_as_large_as_theirs_would_be(full):
    middle = AbsentNeighbours(index=1, split=3)
    from_up, from_down = full((2, 4), 7), full((1, 4), 7)
    middle.exchange(full((1, 4), 5), full((2, 4), 5), from_up, from_down)
    assert (float(from_up.sum()), float(from_down.sum())) == (0, 0)
    middle.exchange(full((1, 4), 5), None, None, None)
    values = full((4,), 2.0)
    middle.sum(values)
    assert values.tolist() == [6.0] * 4
    whole = full((6,), 9.0)
    middle.gather(full((2,), 4.0), whole, [3, 2, 1])
    assert whole.tolist() == [0, 0, 0, 4, 4, 0]

"""What a collective operation is given and must give: every part counts, and a library that forgets one is noticed."""

import numpy as np
import pytest

from dlscale.benchmarks.records.collective_operations import OPERATIONS, CollectiveOperation, given, part

EACH = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)


@EACH
def test_nothing_done_is_noticed(operation: CollectiveOperation):
    """On some rank: who sends has what it sends."""
    count = operation.num_elements(4096, 2)
    kept = [given(count, rank) for rank in range(2)]
    wanted = [operation.wanted(count, rank, 2) for rank in range(2)]
    if len(wanted[0]) < count:
        kept = [values[part(count, rank, 2)] for rank, values in enumerate(kept)]
    same = [np.array_equal(mine[: len(result)], result) for mine, result in zip(kept, wanted, strict=True)]
    assert same == ([True, False] if operation.name == "broadcast" else [False, False])


@EACH
def test_what_one_rank_sends_counts_from_the_first_start(operation: CollectiveOperation):
    """The second rank started late and had nothing to wait for; the root did not wait for it."""
    starts, seconds = np.array([[10.0, 20.0], [10.5, 20.0]]), np.array([[0.1, 0.1], [0.2, 0.3]])
    expected = [[0.1, 0.1], [0.7, 0.3]] if operation.name == "broadcast" else seconds
    np.testing.assert_allclose(operation.call_seconds(starts, seconds), expected)

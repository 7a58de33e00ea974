"""What a collective operation is given and must give: every part counts, and a library that forgets one is noticed."""

import numpy as np
import pytest

from dlscale.benchmarks.records.collective_operations import BY_NAME, OPERATIONS, CollectiveOperation, part

EACH = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
# By NumPy, of all ranks' inputs; [rank].
RESULTS = {
    "allreduce": lambda inputs: [np.sum(inputs, axis=0)] * len(inputs),
    "reduce_scatter": lambda inputs: np.split(np.sum(inputs, axis=0), len(inputs)),
    "allgather": lambda inputs: (
        [np.concatenate([own[part(len(own), rank, len(inputs))] for rank, own in enumerate(inputs)])]
        * len(inputs)
    ),
    "broadcast": lambda inputs: [inputs[0]] * len(inputs),
}


@EACH
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_what_is_wanted_is_what_the_operation_gives(operation: CollectiveOperation, size: int):
    if operation.name not in RESULTS:
        pytest.skip("not written in NumPy here")
    count = operation.num_elements(4 * 3001, size)
    results = RESULTS[operation.name]([operation.given(count, rank, size) for rank in range(size)])
    for rank in range(size):
        np.testing.assert_array_equal(results[rank], operation.wanted(count, rank, size))
        assert operation.wanted(count, rank, size).dtype == np.float32


@EACH
def test_nothing_done_is_noticed(operation: CollectiveOperation):
    """On some rank: who sends has what it sends."""
    count = operation.num_elements(4096, 2)
    kept = [operation.given(count, rank, 2) for rank in range(2)]
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


def test_parts_are_of_whole_elements():
    elements = {name: BY_NAME[name].num_elements(4096, 3) for name in RESULTS}
    whole = ("allreduce", "broadcast")
    assert elements == {name: 1024 if name in whole else 1023 for name in RESULTS}
    assert BY_NAME["allgather"].num_elements(8, 3) == 0

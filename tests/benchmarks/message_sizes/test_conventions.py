"""What a collective operation is given and must give: every part counts, and a library that forgets one is noticed."""

import numpy as np
import pytest

from dlscale.benchmarks.message_sizes.driver.conventions import counted, given, num_elements, part, wanted
from dlscale.benchmarks.message_sizes.driver.memory import HOST, Arena

COLLECTIVES = ("allreduce", "reduce_scatter", "allgather", "broadcast")


def result(collective: str, inputs: list[np.ndarray], rank: int) -> np.ndarray:
    """The operation by NumPy."""
    size, count = len(inputs), len(inputs[0])
    if collective == "broadcast":
        return inputs[0]
    if collective == "allgather":
        return np.concatenate([inputs[other][part(count, other, size)] for other in range(size)])
    total = np.sum(inputs, axis=0)
    return total[part(count, rank, size)] if collective == "reduce_scatter" else total


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_what_is_wanted_is_what_the_operation_gives(collective: str, size: int):
    count = num_elements(collective, 4 * 3001, size)
    inputs = [given(collective, count, rank, size) for rank in range(size)]
    for rank in range(size):
        np.testing.assert_array_equal(result(collective, inputs, rank), wanted(collective, count, rank, size))


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_nothing_done_is_noticed(collective: str):
    """On some rank: the root of a broadcast has what it sends."""
    count = num_elements(collective, 4096, 2)
    kept = [given(collective, count, rank, 2) for rank in range(2)]
    if collective == "reduce_scatter":
        kept = [values[part(count, rank, 2)] for rank, values in enumerate(kept)]
    same = [np.array_equal(kept[rank], wanted(collective, count, rank, 2)) for rank in range(2)]
    assert same == ([True, False] if collective == "broadcast" else [False, False])


def test_a_broadcast_counts_from_the_first_start():
    """The second rank started late and had nothing to wait for; the root did not wait for it."""
    starts, seconds = np.array([[10.0, 20.0], [10.5, 20.0]]), np.array([[0.1, 0.1], [0.2, 0.3]])
    np.testing.assert_allclose(counted("broadcast", starts, seconds), [[0.1, 0.1], [0.7, 0.3]])
    for collective in ("allreduce", "reduce_scatter", "allgather"):
        np.testing.assert_array_equal(counted(collective, starts, seconds), seconds)


def test_parts_are_of_whole_elements():
    assert num_elements("reduce_scatter", 4096, 3) == 1023
    assert num_elements("allgather", 8, 3) == 0
    assert num_elements("broadcast", 4096, 3) == num_elements("allreduce", 4096, 3) == 1024


def test_a_cold_message_comes_after_all_others():
    arena = Arena(HOST, np.zeros(4096, np.float32))
    begins = []
    for _ in range(5):
        message = arena.next("cold", 4 * 1000, 999)
        assert len(message) == 999
        begins.append(
            (message.__array_interface__["data"][0] - arena.next("hot", 4, 1).__array_interface__["data"][0])
            // 4
        )
    assert begins == [0, 1024, 2048, 3072, 0]

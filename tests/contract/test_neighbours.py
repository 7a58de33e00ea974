"""Rows of a sample between the ranks of a replica, over MPI and torch.distributed."""

import numpy as np
import pytest

from dlscale.collectives.neighbours import MPI, TORCH, Call, connect_neighbours

from .conftest import mark

pytestmark = pytest.mark.on_ranks(1, 2, 3, 4)

CARRIERS = [MPI, pytest.param(TORCH, marks=mark("gloo", "torch"))]
LARGE = 300_000  # elements: longer than what waits with a receiver, and sent by all at once


def splits(size):
    """All that divide the launch into replicas."""
    return [split for split in range(1, size + 1) if size % split == 0]


@pytest.fixture(params=CARRIERS)
def replicas(request, world, connected):
    """The replicas of this launch of every size; this rank's (rank, its neighbours)."""
    if request.param == TORCH:
        connected("gloo", "torch")
    found = [connect_neighbours(request.param, control=world, split=s) for s in splits(world.Get_size())]
    yield [(world.Get_rank(), neighbours) for neighbours in found]
    for neighbours in found:
        neighbours.close()
        neighbours.close()


def values(rank, count, dtype):
    """Different on every rank and place."""
    return (np.arange(count) * 7 + 1000 * rank).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
@pytest.mark.parametrize("count", [1, 1000, LARGE])
def test_rows_come_from_the_neighbours_of_the_replica(replicas, count, dtype):
    for rank, neighbours in replicas:
        above = neighbours.index > 0
        below = neighbours.index < neighbours.split - 1
        # More goes down than up, as of layers with even kernels.
        up, down = values(rank, count, dtype).reshape(1, -1), values(-rank, 2 * count, dtype)
        for _ in range(3):  # another round may not overtake
            from_up, from_down = np.full(2 * count, 5, dtype), np.full(count, 5, dtype)
            neighbours.exchange(up, down, from_up, from_down)
            expected = values(1 - rank, 2 * count, dtype) if above else np.full(2 * count, 5, dtype)
            np.testing.assert_array_equal(from_up, expected)
            expected = values(rank + 1, count, dtype) if below else np.full(count, 5, dtype)
            np.testing.assert_array_equal(from_down, expected)
        assert neighbours.index == rank % neighbours.split


def test_one_way_alone(replicas):
    """A pool that reads one row more above than below sends nothing up."""
    for rank, neighbours in replicas:
        nothing, from_up = np.empty(0, np.float32), np.zeros(5, np.float32)
        neighbours.exchange(nothing, values(rank, 5, "float32"), from_up, nothing)
        if neighbours.index:
            np.testing.assert_array_equal(from_up, values(rank - 1, 5, "float32"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sum_is_over_the_replica(replicas, dtype):
    for rank, neighbours in replicas:
        found = values(rank, 1001, dtype).reshape(7, 143)
        neighbours.sum(found)
        first = rank - neighbours.index
        expected = sum(values(first + place, 1001, dtype) for place in range(neighbours.split))
        np.testing.assert_array_equal(found.reshape(-1), expected)


def test_what_was_handed_over_is_counted(replicas):
    for _, neighbours in replicas:
        rows = np.zeros(10, np.float32)
        before = neighbours.seconds
        neighbours.exchange(rows, rows, rows.copy(), rows.copy())
        neighbours.sum(np.zeros(3))
        sent = (40 * (neighbours.index > 0), 40 * (neighbours.index < neighbours.split - 1))
        assert neighbours.last_calls() == [Call("exchange", sent), Call("sum", (24,))]
        assert (neighbours.num_calls, neighbours.bytes_sent) == (2, sum(sent) + 24)
        assert before < neighbours.seconds < before + 10

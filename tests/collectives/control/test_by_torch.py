"""The control plane under torchrun says what MPI says."""

import operator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.control import control_plane
from dlscale.collectives.control.by_torch import packed, unpacked

pytestmark = pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")


def planes(monkeypatch, folder, num_ranks):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, str(num_ranks))
    for rank in range(num_ranks):
        monkeypatch.setenv("RANK", str(rank))
        yield control_plane(folder)


def said(world):
    """What one rank hears of all operations."""
    rank, size = world.Get_rank(), world.Get_size()
    total, own = np.full((2, 2), float(rank)), np.full(3, rank, np.int16)
    world.Allreduce(None, total)
    world.Bcast(own, root=size - 1)
    world.Bcast(np.empty(0))
    world.Barrier()
    barrier = world.Ibarrier()
    while not barrier.Test():
        pass
    return [
        total.tolist(),
        own.tolist(),
        world.bcast({"of": rank}),
        world.gather((rank, "x" * rank)),
        world.allgather(np.arange(rank)),
        world.allreduce([rank], op=operator.add),
        world.allreduce(-rank, op=max),
    ]


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_every_operation(monkeypatch, tmp_path, num_ranks):
    ranks = list(planes(monkeypatch, tmp_path, num_ranks))
    assert [plane.rank for plane in ranks] == list(range(num_ranks))
    with ThreadPoolExecutor(num_ranks) as pool:
        heard = list(pool.map(lambda plane: said(plane.meet(num_ranks)), ranks))
    everyone = list(range(num_ranks))
    for rank, (total, own, first, gathered, arrays, joined, largest) in enumerate(heard):
        assert total == [[float(sum(everyone))] * 2] * 2
        assert own == [num_ranks - 1] * 3
        assert first == {"of": 0}
        assert gathered == (None if rank else [(other, "x" * other) for other in everyone])
        assert [array.tolist() for array in arrays] == [list(range(other)) for other in everyone]
        assert (joined, largest) == (everyone, 0)


def test_another_number_of_ranks_than_was_asked_for_and_a_variable_that_is_missing(monkeypatch, tmp_path):
    (plane,) = planes(monkeypatch, tmp_path, 1)
    with pytest.raises(UsageError, match="asked for 2 ranks, but torchrun started 1"):
        plane.meet(2)
    monkeypatch.delenv("RANK")
    with pytest.raises(UsageError, match="torchrun started this process, but RANK is 'not set'"):
        control_plane(tmp_path)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(2**40),
        0.1,
        "\u00e9",
        b"\0\xff",
        (1, ("a", None), []),
        [(0.5, {"x": 1}), {}],
        {"b"},
        {3: [1]},
    ],
)
def test_values_arrive_as_they_were(value):
    arrived = unpacked(packed(value))
    assert (arrived, type(arrived)) == (value, type(value))


@pytest.mark.parametrize(
    "array", [np.arange(6).reshape(2, 3).T, np.zeros((0, 4)), np.float64(0.1), np.array([1], np.uint16)]
)
def test_arrays_arrive_with_their_type_and_shape_and_can_be_written(array):
    ((arrived, _),) = unpacked(packed([(array, 1)]))
    assert (arrived.dtype, arrived.shape) == (array.dtype, array.shape)
    assert np.array_equal(arrived, array)
    assert arrived.ndim == 0 or arrived.flags.writeable


@pytest.mark.parametrize("value", [object(), [print], {"a": 1j}, np.array([object()])])
def test_nothing_else_travels(value):
    with pytest.raises((TypeError, ValueError)):
        unpacked(packed(value))

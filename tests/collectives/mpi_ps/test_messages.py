"""The cut of the weights into shards, and messages in memory."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.mpi_ps import messages
from dlscale.collectives.mpi_ps.messages import (
    FlatLayout,
    Kind,
    LostRankError,
    Mailbox,
    Message,
    shard_bounds,
)


@pytest.mark.parametrize(("num_elements", "num_servers"), [(1, 1), (7, 3), (4, 4), (1000, 7)])
def test_shards_cover_all_weights_once_and_none_is_empty(num_elements, num_servers):
    bounds = shard_bounds(num_elements, num_servers=num_servers)
    assert [start for start, _ in bounds] == [0, *(stop for _, stop in bounds[:-1])]
    assert bounds[-1][1] == num_elements
    assert all(stop > start for start, stop in bounds)


def test_more_servers_than_weights_are_refused_in_one_line():
    with pytest.raises(UsageError, match=r"5 servers for 4 weights; give at most"):
        shard_bounds(4, num_servers=5)


def test_tensors_come_back_from_the_flat_space():
    tensors = [np.arange(6, dtype=np.float32).reshape(2, 3), np.float32([[9]]), np.float32([7, 8])]
    layout = FlatLayout(tensors)
    flat = np.empty(layout.num_elements, np.float32)
    layout.pack(tensors, flat)
    assert flat.tolist() == [0, 1, 2, 3, 4, 5, 9, 7, 8]
    for found, expected in zip(layout.unpack(flat), tensors, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_other_types_than_float32_are_refused():
    with pytest.raises(UsageError, match="float32 weights, and one is float64"):
        FlatLayout([np.zeros(2)])


def test_a_message_is_a_header_and_its_elements():
    message = Message.of_floats(3).address(Kind.PUSH, session=4, step=5, count=6)
    message.values[:] = 1, 2, 3
    copy = Message.of_floats(3)
    copy.memory[:] = message.memory
    assert (copy.kind, copy.session, copy.step, copy.count) == (Kind.PUSH, 4, 5, 6)
    assert copy.values.tolist() == [1, 2, 3]
    assert Message.of_text('{"a": 1}').text == '{"a": 1}'


class MpiError(Exception):
    """MPI's own."""


@pytest.fixture
def mailbox(monkeypatch):
    """One that knows of ranks 0 and 1, of which 0 has died."""
    fake = SimpleNamespace(ANY_SOURCE=-1, Status=None, BYTE=None, Exception=MpiError)
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=fake))
    return Mailbox(None, SimpleNamespace(is_gone=lambda rank: rank == 0))


def test_an_error_of_mpi_is_that_of_a_rank_that_has_died(mailbox, monkeypatch):
    """MPICH's, which copies from the other process's memory: process_vm_readv failed."""

    def fails():
        raise MpiError("process_vm_readv failed")

    request = SimpleNamespace(Test=fails)
    for wait in (mailbox.wait, mailbox.is_moved):
        with pytest.raises(LostRankError) as lost:
            wait(request, 0)
        assert lost.value.rank == 0
    monkeypatch.setattr(messages, "LOOK_SECONDS", 0.01)
    with pytest.raises(MpiError, match="readv"):
        mailbox.wait(request, 1)

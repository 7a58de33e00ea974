"""The cut of the weights into shards, who sends to whom, and messages in memory."""

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.servers.messages import FlatLayout, Kind, Message, Ranks, shard_bounds


@pytest.mark.parametrize(("num_elements", "num_servers"), [(1, 1), (7, 3), (4, 4), (1000, 7)])
def test_shards_cover_all_weights_once_and_none_is_empty(num_elements, num_servers):
    bounds = shard_bounds(num_elements, num_servers=num_servers)
    assert [start for start, _ in bounds] == [0, *(stop for _, stop in bounds[:-1])]
    assert bounds[-1][1] == num_elements
    assert all(stop > start for start, stop in bounds)


def test_weights_that_cannot_be_served_are_refused():
    with pytest.raises(UsageError, match="5 servers for 4 weights"):
        shard_bounds(4, num_servers=5)
    with pytest.raises(UsageError, match="float64"):
        FlatLayout([np.zeros(2)])


def test_tensors_come_back_from_the_flat_space():
    tensors = [np.arange(6, dtype=np.float32).reshape(2, 3), np.float32([[9]]), np.float32([7, 8])]
    layout = FlatLayout(tensors)
    flat = np.empty(layout.num_elements, np.float32)
    layout.pack(tensors, flat)
    assert flat.tolist() == [0, 1, 2, 3, 4, 5, 9, 7, 8]
    for found, expected in zip(layout.unpack(flat), tensors, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_message_is_a_header_and_its_body():
    message = Message.of(Kind.PUSH, 4, step=5, count=6, body=np.float32([1, 2, 3]))
    copy = Message(message.memory.copy())
    assert (copy.kind, copy.session, copy.step, copy.count, copy.num_bytes) == (Kind.PUSH, 4, 5, 6, 12)
    assert copy.values.tolist() == [1, 2, 3]
    assert Message.of(Kind.COUNTS, body='{"a": 1}').text == '{"a": 1}'


@pytest.mark.parametrize(("num_workers", "num_masters"), [(2, 1), (3, 2), (7, 3), (3, 0)])
def test_every_worker_has_one_master_or_all_servers(num_workers, num_masters):
    ranks = Ranks(num_workers=num_workers, num_servers=num_masters + 1, num_masters=num_masters)
    masters = [num_workers + 1 + place for place in range(num_masters)] or [num_workers]
    assert sorted(worker for master in masters for worker in ranks.children(master)) == list(
        range(num_workers)
    )
    for worker in range(num_workers):
        (master,) = ranks.parents(worker)
        assert worker in ranks.children(master)
    if num_masters:
        assert ranks.children(num_workers) == set(masters)
        assert all(ranks.parents(master) == [num_workers] for master in masters)

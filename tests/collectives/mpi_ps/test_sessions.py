"""What servers do with messages, without MPI."""

import numpy as np
import pytest

from dlscale.collectives.mpi_ps.sessions import ElasticSession, SynchronousSession


class Replies(list):
    """(worker, step, values) of what a session sends."""

    def __call__(self, worker, values, step):
        self.append((worker, step, values.tolist()))


@pytest.fixture
def replies():
    return Replies()


def push(session, worker, *values, step=0, count=1):
    session.push(worker, np.float32(values), step=step, count=count)


def test_the_first_weights_wait_for_worker_0(replies):
    session = SynchronousSession(num_elements=2, num_workers=2, reply=replies)
    session.fetch(1)
    assert replies == []
    session.load(np.float32([1, 2]))
    session.fetch(0)
    assert replies == [(1, 0, [1, 2]), (0, 0, [1, 2])]


def test_a_mean_is_the_same_bits_whoever_comes_first(replies):
    given = np.float32([[0.1, 1e8], [0.2, 1], [0.3, -1e8]])
    expected = (given[0] + given[1] + given[2]) / np.float32(3)
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        session = SynchronousSession(num_elements=2, num_workers=3, reply=replies)
        for place, worker in enumerate(order):
            assert replies == [] or place == 0
            replies.clear()
            push(session, worker, *given[worker])
        assert replies == [(worker, 1, expected.tolist()) for worker in range(3)]
        assert session.counts() == {"applied": 3}


def test_a_worker_has_one_part_in_a_step(replies):
    session = SynchronousSession(num_elements=1, num_workers=2, reply=replies)
    push(session, 0, 1)
    with pytest.raises(ValueError, match="worker 0 sent gradients twice in step 0"):
        push(session, 0, 1)


def test_synchronous_training_does_not_go_on_without_a_worker(replies):
    session = SynchronousSession(num_elements=1, num_workers=2, reply=replies)
    session.load(np.float32([0]))
    assert not session.without(1)


def test_the_centre_moves_towards_whoever_comes(replies):
    session = ElasticSession(num_elements=1, reply=replies, share=0.25)
    session.load(np.float32([8]))
    push(session, 0, 4, step=0, count=5)  # to 8 + (4 - 8) / 4
    push(session, 1, 11, step=0, count=5)  # to 7 + (11 - 7) / 4
    push(session, 0, 8, step=1, count=5)
    assert replies == [(0, 1, [8]), (1, 2, [7]), (0, 3, [8])]
    assert session.counts() == {"applied": 15, "updates": 3, "staleness": {"0": 1, "1": 2}}

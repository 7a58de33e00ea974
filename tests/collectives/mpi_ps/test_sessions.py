"""What servers do with messages, without MPI."""

import numpy as np
import pytest

from dlscale.collectives.mpi_ps.sessions import MOST_AHEAD, ElasticSession, SynchronousSession


class Replies(list):
    """(worker, step, values) of what a session sends; `own`: how many of the worker's batches each has."""

    def __init__(self):
        super().__init__()
        self.own = []

    def __call__(self, worker, values, step, count):
        self.append((worker, step, values.tolist()))
        self.own.append(count)


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
        assert session.counts() == {"applied": 3, "dropped": 0}


def test_a_worker_has_one_part_in_a_step(replies):
    session = SynchronousSession(num_elements=1, num_workers=2, reply=replies)
    push(session, 0, 1)
    with pytest.raises(ValueError, match="worker 0 sent gradients twice in step 0"):
        push(session, 0, 1)


@pytest.fixture
def backed_up(replies):
    """Three workers, of which two make an update; all have the first weights."""
    session = SynchronousSession(num_elements=1, num_workers=3, num_backups=1, reply=replies)
    session.load(np.float32([0]))
    for worker in range(3):
        session.fetch(worker)
    replies.clear()
    replies.own.clear()
    return session


def test_who_awaits_the_first_weights_gets_no_mean_in_their_place(replies):
    session = SynchronousSession(num_elements=1, num_workers=2, num_backups=1, reply=replies)
    session.load(np.float32([5]))
    session.fetch(0)
    push(session, 0, 1)
    assert replies == [(0, 0, [5])]
    session.fetch(1)
    assert replies[1:] == [(1, 0, [5]), (0, 1, [1]), (1, 1, [1])]


def test_a_mean_is_that_of_the_first_to_come_and_later_gradients_are_dropped(backed_up, replies):
    push(backed_up, 2, 4)
    push(backed_up, 0, 2)
    assert replies == [(worker, 1, [3]) for worker in range(3)]
    assert replies.own == [1, 0, 1]
    push(backed_up, 1, 100, step=0)  # late
    push(backed_up, 1, 6, step=1)
    push(backed_up, 2, 8, step=1)
    push(backed_up, 0, 100, step=1)  # late
    assert replies[3:] == [(worker, 2, [7]) for worker in range(3)]
    assert replies.own[3:] == [0, 1, 1]
    assert backed_up.counts() == {"applied": 4, "dropped": 2}


def test_updates_wait_for_a_worker_that_has_too_many_to_take(backed_up, replies):
    for step in range(MOST_AHEAD):
        push(backed_up, 0, 1, step=step)
        push(backed_up, 1, 1, step=step)
    push(backed_up, 0, 2, step=MOST_AHEAD)
    push(backed_up, 1, 4, step=MOST_AHEAD)
    assert len(replies) == 3 * MOST_AHEAD
    push(backed_up, 2, 100, step=0)
    assert replies[-1] == (2, MOST_AHEAD + 1, [3])
    assert backed_up.counts() == {"applied": 2 * (MOST_AHEAD + 1), "dropped": 1}


def test_who_comes_while_an_update_is_held_back_is_late_too(backed_up, replies):
    backed_up.load(np.float32([0]))
    for step in range(MOST_AHEAD):
        push(backed_up, 0, 1, step=step)
        push(backed_up, 1, 1, step=step)
    push(backed_up, 1, 2, step=MOST_AHEAD)
    push(backed_up, 0, 4, step=MOST_AHEAD)
    assert backed_up.without(2, num_left=2)  # and nobody is sent what has died
    assert replies[-2:] == [(0, MOST_AHEAD + 1, [3]), (1, MOST_AHEAD + 1, [3])]
    assert not backed_up.without(1, num_left=1)


def test_the_centre_moves_towards_whoever_comes(replies):
    session = ElasticSession(num_elements=1, reply=replies, share=0.25)
    session.load(np.float32([8]))
    push(session, 0, 4, step=0, count=5)  # to 8 + (4 - 8) / 4
    push(session, 1, 11, step=0, count=5)  # to 7 + (11 - 7) / 4
    push(session, 0, 8, step=1, count=5)
    assert replies == [(0, 1, [8]), (1, 2, [7]), (0, 3, [8])]
    assert session.counts() == {"applied": 15, "updates": 3, "staleness": {"0": 1, "1": 2}}

"""Ranks as threads, with mpi4py's names for what they call together."""

import functools
import operator
import threading


class Meeting:
    """What all ranks hand over together; ranks that call different things are an error."""

    def __init__(self, num_ranks):
        self.num_ranks = num_ranks
        self.barrier = threading.Barrier(num_ranks, timeout=20)
        self.values = {}

    def exchange(self, rank, kind, value):
        self.values[rank] = (kind, value)
        self.barrier.wait()
        gathered = [self.values[rank] for rank in range(self.num_ranks)]
        self.barrier.wait()
        assert {kind for kind, _ in gathered} == {kind}
        return [value for _, value in gathered]


class Communicator:
    """One rank's side of a meeting: mpi4py's names, and those of a `CommunicatorControl`."""

    def __init__(self, meeting, rank):
        self.meeting, self.rank = meeting, rank

    def Get_size(self):  # noqa: N802
        return self.meeting.num_ranks

    def Get_rank(self):  # noqa: N802
        return self.rank

    def Barrier(self):  # noqa: N802
        self.meeting.exchange(self.rank, "Barrier", None)

    barrier = Barrier

    def allgather(self, value):
        return self.meeting.exchange(self.rank, "allgather", value)

    def allreduce(self, value, op=operator.add):
        return functools.reduce(op, self.meeting.exchange(self.rank, "allreduce", value))

    def maximum(self, value):
        return max(self.meeting.exchange(self.rank, "maximum", value))

    def bcast(self, value):
        return self.meeting.exchange(self.rank, "bcast", value)[0]

    def Bcast(self, buffer, root):  # noqa: N802
        buffer[...] = self.meeting.exchange(self.rank, "Bcast", buffer.copy())[root]

    def Allreduce(self, place, buffer):  # noqa: N802
        assert place is None
        buffer[...] = sum(self.meeting.exchange(self.rank, "Allreduce", buffer.copy()))


ALONE = Communicator(Meeting(1), 0)


def on_ranks(num_ranks, body, *barriers):
    """What `body(communicator)` returns on each rank.

    Any rank's error is raised, and ends the waiting of others, also at further `barriers`.
    """
    meeting = Meeting(num_ranks)
    results, errors = [None] * num_ranks, []

    def run(rank):
        try:
            results[rank] = body(Communicator(meeting, rank))
        except BaseException as error:
            errors.append(error)
            for barrier in (meeting.barrier, *barriers):
                barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results

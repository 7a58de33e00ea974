"""Communication threads: when ranks take them, the order of operations, and that nothing is lost at the end."""

import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.training import communication
from dlscale.collectives.training.communication import CommunicationThreads, Training, want_threads


class Log:
    """A collective that notes what was done on it, and by which thread."""

    rank, size = 0, 1

    def __init__(self):
        self.done = []

    def note(self, what):
        self.done.append((what, threading.current_thread().name))

    def settings(self):
        return {}


@pytest.fixture(autouse=True)
def _mpi_with_threads(monkeypatch):
    monkeypatch.setattr(communication, "threads_may_communicate", lambda: True)


@pytest.mark.parametrize("num_teams", [0, 1, 3])
def test_operations_go_round_the_teams_and_each_keeps_their_order(num_teams):
    logs = [Log() for _ in range(max(num_teams, 1))]
    threads = CommunicationThreads(logs, threads=num_teams > 0)
    assert threads.settings() == {"overlap": num_teams > 0, "teams": num_teams}
    for operation in [threads.submit(i, lambda log, i=i: log.note(i)) for i in range(20)]:
        operation.result(20)
    for team, log in enumerate(logs):
        assert [what for what, _ in log.done] == list(range(team, 20, max(num_teams, 1)))
        (name,) = {name for _, name in log.done}
        assert (name == threading.current_thread().name) == (num_teams == 0)
    threads.close()
    threads.close()


def test_threads_that_mpi_does_not_allow_are_refused_and_not_taken_by_themselves(monkeypatch):
    monkeypatch.setattr(communication, "threads_may_communicate", lambda: False)
    with pytest.raises(UsageError, match="MPI_THREAD_MULTIPLE"):
        want_threads(Log(), True, num_threads=1)
    monkeypatch.setattr(communication, "all_have_spare_cores", lambda _, **__: True)
    assert not want_threads(Log(), None, num_threads=1)


class Together:
    """Ranks of one process, each in its own thread."""

    def __init__(self, size):
        self.size, self._meeting = size, threading.Barrier(size)
        self._own, self._buffers = threading.local(), [None] * size

    @property
    def rank(self):
        return self._own.rank

    @rank.setter
    def rank(self, rank):
        self._own.rank = rank

    def allreduce(self, buffer, op="sum"):
        self._buffers[self._own.rank] = buffer.copy()
        self._meeting.wait(20)
        buffer[...] = getattr(np, op)(self._buffers, axis=0)
        self._meeting.wait(20)


@pytest.mark.parametrize(
    ("ranks", "spare"),  # of each rank: its CPUs, the threads that compute, its host
    [
        pytest.param([({0, 4000}, 1, 0)], True, id="one rank, two cores"),
        pytest.param([({0, 1}, 1, 0), ({2}, 1, 0)], False, id="one rank has no core to spare"),
        pytest.param([({0, 1}, 1, 0), ({0, 1}, 1, 0)], False, id="two ranks share two cores"),
        pytest.param([({0, 31, 32, 62}, 1, 0)] * 2, True, id="two ranks share four cores"),
        pytest.param([({0, 1}, 1, 0), ({0, 1}, 1, 1)], True, id="the other is on another host"),
        pytest.param([({0, 1}, 1, 0), ({1, 2}, 1, 0)], False, id="they share one of three"),
    ],
)
def test_threads_are_taken_where_every_rank_has_a_core_to_spare(monkeypatch, ranks, spare):
    together = Together(len(ranks))
    monkeypatch.setattr(communication.os, "sched_getaffinity", lambda _: ranks[together.rank][0])
    monkeypatch.setattr(communication, "_host", lambda: ranks[together.rank][2])

    def decide(rank):
        together.rank = rank
        return want_threads(together, None, num_threads=ranks[rank][1])

    with ThreadPoolExecutor(len(ranks)) as pool:
        assert set(pool.map(decide, range(len(ranks)))) == {spare}


def test_a_cool_down_of_nothing_is_refused():
    with pytest.raises(UsageError):
        Training(pipelined_until_step=5)


def test_what_is_under_way_when_the_program_ends_is_finished_before_mpi_is():
    """Without a close: the interpreter joins the threads before anything that was registered with atexit."""
    program = """
        import atexit, time
        from mpi4py import MPI
        from dlscale.collectives.training.communication import CommunicationThreads
        atexit.register(lambda: print("finalized", MPI.Is_finalized(), "at exit", flush=True))
        def late(_):
            time.sleep(0.3)
            print("finalized", MPI.Is_finalized(), "in the thread", flush=True)
        CommunicationThreads([None], threads=True).submit(0, late)
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert found.stdout.splitlines() == ["finalized False in the thread", "finalized False at exit"]

"""Communication threads: order, errors, and that nothing is lost at the end."""

import subprocess
import sys
import textwrap
import threading
import time

import pytest

from dlscale.base.errors import UsageError
from dlscale.collectives.training import communication as module
from dlscale.collectives.training.communication import Teams, want_threads


class Log:
    """A collective that notes what was done on it, and by whom."""

    rank, size = 0, 1

    def __init__(self):
        self.done = []

    def note(self, what):
        time.sleep(0.001)
        self.done.append((what, threading.current_thread().name))


@pytest.fixture(autouse=True)
def _mpi_with_threads(monkeypatch):
    monkeypatch.setattr(module, "threads_may_communicate", lambda: True)


@pytest.mark.parametrize("num_teams", [1, 2, 3])
def test_operations_go_round_the_teams_and_each_keeps_their_order(num_teams):
    logs = [Log() for _ in range(num_teams)]
    teams = Teams(logs, threads=True)
    assert teams.num_threads == num_teams
    pending = [teams.submit(i, lambda log, i=i: log.note(i)) for i in range(20)]
    for operation in pending:
        operation.result(20)
    for team, log in enumerate(logs):
        assert [what for what, _ in log.done] == list(range(team, 20, num_teams))
        assert {name for _, name in log.done} == {log.done[0][1]} != {threading.current_thread().name}
    teams.close()
    teams.close()


def test_without_threads_an_operation_is_done_on_return():
    logs = [Log(), Log()]
    teams = Teams(logs, threads=False)
    assert teams.num_threads == 0
    for i in range(4):
        assert teams.submit(i, lambda log, i=i: log.note(i)).done()
    assert [what for what, _ in logs[0].done] == [0, 1, 2, 3]
    assert {name for _, name in logs[0].done} == {threading.current_thread().name}
    assert logs[1].done == []


def fail(_):
    raise RuntimeError("rank 1 is dead")


def test_what_a_thread_raises_is_raised_where_it_is_waited_for_and_the_next_goes_on():
    teams = Teams([Log()], threads=True)
    broken, next_one = teams.submit(0, fail), teams.submit(1, lambda _: 7)
    with pytest.raises(RuntimeError, match="rank 1 is dead"):
        broken.result(20)
    assert next_one.result(20) == 7
    teams.close()


def test_in_line_it_is_raised_at_once():
    with pytest.raises(RuntimeError, match="rank 1 is dead"):
        Teams([Log()], threads=False).submit(0, fail)


def test_threads_that_mpi_does_not_allow_are_refused(monkeypatch):
    monkeypatch.setattr(module, "threads_may_communicate", lambda: False)
    with pytest.raises(UsageError, match="MPI_THREAD_MULTIPLE"):
        Teams([Log()], threads=True)


@pytest.mark.parametrize("may", [False, True])
@pytest.mark.parametrize("spare", [False, True])
def test_unless_told_threads_are_taken_where_they_have_a_core_and_may_communicate(monkeypatch, may, spare):
    monkeypatch.setattr(module, "has_spare_core", lambda _, *, num_threads: spare and num_threads == 1)
    monkeypatch.setattr(module, "threads_may_communicate", lambda: may)
    assert want_threads(Log(), None, num_threads=1) is (spare and may)
    assert want_threads(Log(), True, num_threads=1)
    assert not want_threads(Log(), False, num_threads=1)


def test_what_is_under_way_when_the_program_ends_is_finished_before_mpi_is():
    """Without a close: the interpreter joins the threads before anything that was registered with atexit."""
    program = """
        import atexit, time
        from mpi4py import MPI
        from dlscale.collectives.training.communication import Teams
        atexit.register(lambda: print("finalized", MPI.Is_finalized(), "at exit", flush=True))
        def late(_):
            time.sleep(0.3)
            print("finalized", MPI.Is_finalized(), "in the thread", flush=True)
        Teams([None], threads=True).submit(0, late)
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert found.stdout.splitlines() == ["finalized False in the thread", "finalized False at exit"]

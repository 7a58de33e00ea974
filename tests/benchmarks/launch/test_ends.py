"""Which of a launch's processes ended first, and which are stopped."""

import os
import select
import signal
import subprocess
from contextlib import ExitStack

import pytest

from dlscale.benchmarks.launch import supervisor
from dlscale.benchmarks.launch.supervisor import LocalRanks, PreparedLaunch
from dlscale.benchmarks.records.spool import RankError, SpoolWriter, boot_id
from tests.benchmarks.spools import launch_spec, metadata_of, rank_info


@pytest.fixture
def children():
    """8 processes that sleep."""
    started = [subprocess.Popen(["/bin/sleep", "600"]) for _ in range(8)]
    yield started
    for child in started:
        child.kill()
        child.wait()


@pytest.fixture
def launch(tmp_path, make_record):
    """launch(events): a launch whose ranks have written one event each."""

    def make(events):
        for rank, event in enumerate(events):
            spool = SpoolWriter(tmp_path, rank)
            spool.write(event)
            spool.close()
        record = make_record()
        cell = record.case.cell.model_copy(update={"num_ranks": len(events)})
        spec = launch_spec(record.case.model_copy(update={"cell": cell}))
        return PreparedLaunch(spec=spec, metadata=metadata_of(record), spool=tmp_path, environment={})

    return make


@pytest.fixture
def ranks():
    with ExitStack() as stack:
        yield LocalRanks(stack, stack.enter_context(select.epoll()))


def here(children):
    return [rank_info(rank, pid=child.pid, boot_id=boot_id()) for rank, child in enumerate(children)]


def dead(child):
    """Ended, and its status not read: as a launcher finds it."""
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5, 6, 7), (3, 0, 6, 1, 7, 4, 2, 5)])
def test_ends_come_in_their_order_however_late_one_looks(launch, ranks, children, order):
    prepared = launch(here(children))
    ranks.look(prepared)
    assert ranks.ends == {}
    for rank in order[:6]:
        dead(children[rank])
    ranks.look(prepared)
    dead(children[order[6]])
    ranks.look(prepared)
    assert [*ranks.ends] == [*order[:7]]


def test_a_process_of_another_machine_is_not_watched(launch, ranks, children):
    children[1].kill()
    children[1].wait()
    far, gone, _ = here(children[:3])
    early = RankError(time=0.0, message="before it knew its rank", traceback="")
    prepared = launch([far.model_copy(update={"boot_id": "b"}), gone, early])
    ranks.look(prepared)
    dead(children[0])
    ranks.look(prepared)
    assert ranks.ends == {}


def test_a_rank_that_is_stopped_when_another_ends_is_known(launch, ranks, children, monkeypatch):
    monkeypatch.setattr(supervisor, "STATE_SECONDS", 0.0)
    prepared = launch(here(children[:3]))
    ranks.look(prepared)
    assert ranks.stopped == []
    children[1].send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, children[1].pid, os.WSTOPPED | os.WNOWAIT)
    ranks.look(prepared)
    assert ranks.stopped == [1]
    dead(children[0])
    ranks.look(prepared)
    dead(children[1])
    ranks.look(prepared)
    assert ranks.stopped == [1]

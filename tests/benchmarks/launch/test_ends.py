"""Which of several processes ended first, and for how long all have been silent."""

import os
import signal
import subprocess
import sys
import time

import pytest

from dlscale.benchmarks.launch import supervisor
from dlscale.benchmarks.launch.supervisor import EndWatch, Watchdog, last_heartbeat
from dlscale.benchmarks.records.spool import RankError, SpoolWriter
from tests.benchmarks.spools import rank_info

SLEEPER = "import sys, time; print(flush=True); time.sleep(600)"


@pytest.fixture
def start(tmp_path):
    """Starts a sleeping process with the spool's folder on its command line, as a launcher does with a rank."""
    children = []

    def one(*words):
        child = subprocess.Popen([sys.executable, "-c", SLEEPER, *words], stdout=subprocess.PIPE)
        children.append(child)
        child.stdout.readline()
        return child

    yield one
    for child in children:
        child.kill()
        child.wait()
        child.stdout.close()


def write(folder, rank, event):
    spool = SpoolWriter(folder, rank)
    spool.write(event)
    spool.close()


def dead(child):
    """Ended, and its status not read: as a launcher finds it."""
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.parametrize(
    "order", [(0, 1, 2, 3, 4, 5, 6, 7), (7, 6, 5, 4, 3, 2, 1, 0), (3, 0, 6, 1, 7, 4, 2, 5)]
)
def test_ends_come_in_their_order_however_late_one_looks(start, tmp_path, order):
    children = [start(str(tmp_path)) for _ in range(8)]
    for rank, child in enumerate(children):
        write(tmp_path, rank, rank_info(rank, pid=child.pid))
    with EndWatch(tmp_path) as watch:
        assert watch.look() == []
        for rank in order[:6]:
            dead(children[rank])
        assert [end.rank for end in watch.look()] == [*order[:6]]
        dead(children[order[6]])
        assert [end.rank for end in watch.look()] == [*order[:7]]
        assert [end.rank for end in watch.look()] == [*order[:7]], "an end is one end"


def test_a_process_of_another_launch_or_machine_is_not_watched(start, tmp_path):
    stranger = start("another/spool")
    write(tmp_path, 0, rank_info(0, pid=stranger.pid))
    write(tmp_path, 1, RankError(time=0.0, message="before it knew its rank", traceback=""))
    with EndWatch(tmp_path) as watch:
        watch.look()
        dead(stranger)
        assert watch.look() == []


def test_a_first_line_that_is_half_written_counts_once_it_is_whole(start, tmp_path):
    child = start(str(tmp_path))
    path = tmp_path / "rank-00000.jsonl"
    write(tmp_path, 0, rank_info(0, pid=child.pid))
    line = path.read_text()
    with EndWatch(tmp_path) as watch:
        path.write_text(line[:20])
        assert watch.look() == []
        path.write_text(line)
        watch.look()
        dead(child)
        assert [end.rank for end in watch.look()] == [0]


def test_nothing_stays_open(start, tmp_path):
    child = start(str(tmp_path))
    write(tmp_path, 0, rank_info(0, pid=child.pid))
    before = len(os.listdir("/proc/self/fd"))
    with EndWatch(tmp_path) as watch:
        watch.look()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_rank_that_is_stopped_when_another_ends_is_known(start, tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "STATE_SECONDS", 0.0)
    children = [start(str(tmp_path)) for _ in range(3)]
    for rank, child in enumerate(children):
        write(tmp_path, rank, rank_info(rank, pid=child.pid))
    with EndWatch(tmp_path) as watch:
        watch.look()
        assert watch.stopped == []
        children[1].send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, children[1].pid, os.WSTOPPED | os.WNOWAIT)
        watch.look()
        assert watch.stopped == [1]
        dead(children[0])
        watch.look()
        dead(children[1])
        watch.look()
        assert watch.stopped == [1]


@pytest.mark.parametrize("jump", [-86400.0, 86400.0])
def test_a_clock_that_jumps_makes_no_silence(tmp_path, jump):
    """File times follow the clock that people set; the silence does not."""
    path = tmp_path / "rank-00000.jsonl"
    path.write_text("{}\n")
    silence = Watchdog()
    silence.seconds(last_heartbeat(tmp_path))
    now = time.time() + jump
    os.utime(path, (now, now))
    assert silence.seconds(last_heartbeat(tmp_path)) < 1.0
    time.sleep(0.05)
    assert 0.05 <= silence.seconds(last_heartbeat(tmp_path)) < 1.0


def test_without_any_rank_it_counts_from_the_beginning(tmp_path):
    silence = Watchdog()
    time.sleep(0.05)
    assert 0.05 <= silence.seconds(last_heartbeat(tmp_path)) < 1.0

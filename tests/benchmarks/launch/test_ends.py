"""Who of several processes ended first."""

import json
import os
import subprocess
import sys

import pytest

from dlscale.benchmarks.launch.causes import EndWatch

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


def says(folder, number, **values):
    with (folder / f"rank-{number:05d}.jsonl").open("a") as file:
        file.write(json.dumps(values) + "\n")


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
        says(tmp_path, rank, event="hello", rank=rank, pid=child.pid)
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
    says(tmp_path, 0, event="hello", rank=0, pid=stranger.pid)
    says(tmp_path, 1, event="error", message="no hello before it")
    with EndWatch(tmp_path) as watch:
        watch.look()
        dead(stranger)
        assert watch.look() == []


def test_a_hello_that_is_half_written_counts_once_it_is_whole(start, tmp_path):
    child = start(str(tmp_path))
    path = tmp_path / "rank-00000.jsonl"
    line = json.dumps({"event": "hello", "rank": 0, "pid": child.pid}) + "\n"
    with EndWatch(tmp_path) as watch:
        path.write_text(line[:20])
        assert watch.look() == []
        path.write_text(line)
        watch.look()
        dead(child)
        assert [end.rank for end in watch.look()] == [0]


def test_nothing_stays_open(start, tmp_path):
    child = start(str(tmp_path))
    says(tmp_path, 0, event="hello", rank=0, pid=child.pid)
    before = len(os.listdir("/proc/self/fd"))
    with EndWatch(tmp_path) as watch:
        watch.look()
    assert len(os.listdir("/proc/self/fd")) == before

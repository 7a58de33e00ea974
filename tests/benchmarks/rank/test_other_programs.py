"""CPU time that other programs take, from made-up readings of the kernel, and from a real one."""

import os
import subprocess
import sys
import time

import pytest

from dlscale.benchmarks.rank import other_programs
from dlscale.benchmarks.rank.other_programs import OtherPrograms, watch_other_programs
from dlscale.benchmarks.rank.process import boot_id

LINE = "cpu{core} {user} {nice} {system} 900 80 70 60 {steal} 50 40\n"


@pytest.fixture
def cores(tmp_path, monkeypatch):
    """cores({0: (user, nice, system, steal), ...}) sets what the kernel counted, in ticks; the clocks stand still."""
    path = tmp_path / "stat"
    now = [100.0]
    monkeypatch.setattr(other_programs, "STAT", path)
    monkeypatch.setattr(other_programs, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(other_programs, "_clock_of", lambda pid: pid)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    own = {7: 1.0, 8: 1.0}
    monkeypatch.setattr(time, "clock_gettime", own.__getitem__)

    def write(ticks, *, seconds=0.0, of=None):
        names = ("user", "nice", "system", "steal")
        lines = [
            LINE.format(core=core, **dict(zip(names, columns, strict=True)))
            for core, columns in ticks.items()
        ]
        path.write_text("cpu 9 9 9 9 9 9 9 9 9 9\n" + "".join(lines) + "intr 12345\n")
        now[0] += seconds
        for pid, more in (of or {}).items():
            own[pid] += more

    return write


def test_what_the_cores_did_and_our_processes_did_not(cores):
    cores({0: (0, 0, 0, 0), 1: (0, 0, 0, 0), 2: (0, 0, 0, 0)})
    others = OtherPrograms([0, 1], [7, 8])
    cores({0: (40, 10, 5, 5), 1: (20, 0, 0, 0), 2: (99, 0, 0, 0)}, seconds=1.0, of={7: 0.25, 8: 0.05})
    assert others.share() == pytest.approx((0.8 - 0.3) / 2)
    cores({0: (50, 10, 5, 5), 1: (20, 0, 0, 0)}, seconds=0.5, of={7: 0.1})
    assert others.share() == pytest.approx(0)


def test_a_coarse_clock_may_say_less_than_nothing(cores):
    cores({0: (0, 0, 0, 0)})
    others = OtherPrograms([0], [7])
    cores({0: (9, 0, 0, 0)}, seconds=0.1, of={7: 0.1})
    assert others.share() == pytest.approx(-0.1)


def test_without_a_kernel_that_tells_nothing_is_known(cores, tmp_path, monkeypatch):
    cores({0: (0, 0, 0, 0)})
    others = OtherPrograms([0], [7])
    monkeypatch.setattr(other_programs, "STAT", tmp_path / "missing")
    assert others.share() is None


class World:
    """The communicator of rank `rank`, whose `others` say what they are asked to."""

    def __init__(self, rank, others):
        self._rank, self._others = rank, others

    def Get_rank(self):  # noqa: N802
        return self._rank

    def allgather(self, mine):
        return sorted([mine, *self._others], key=lambda told: told[2] if told[1] is None else told[1])


def test_the_first_rank_of_a_machine_that_measures_reads():
    place = boot_id()
    namespace = os.readlink("/proc/self/ns/pid")
    worker = ((place, namespace), 0, os.getpid(), [0])
    assert watch_other_programs(World(0, []), cores=[0], reads=True)
    assert watch_other_programs(World(1, [worker]), cores=[0], reads=True) is None
    server = ((place, namespace), None, os.getpid(), [0])
    assert watch_other_programs(World(1, [server]), cores=[0], reads=True)
    elsewhere = ((place, "pid:[1]"), 1, os.getpid(), [0])
    assert watch_other_programs(World(0, [elsewhere]), cores=[0], reads=True) is None, (
        "its numbers mean others"
    )


def test_a_program_beside_us_is_seen():
    core = min(os.sched_getaffinity(0))
    script = (
        f"import os, time\nos.sched_setaffinity(0, [{core}])\nprint(flush=True)\nend = time.time() + 20\n"
    )
    script += "while time.time() < end: pass"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout
            other.stdout.readline()
            others = OtherPrograms([core], [os.getpid()])
            time.sleep(0.5)
            assert others.share() > 0.3
        finally:
            other.kill()

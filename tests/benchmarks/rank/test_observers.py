"""What is seen between windows: memory, other programs and counters, with a made-up allocator and kernel."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pynvml
import pytest

from dlscale.benchmarks.rank import observers
from dlscale.benchmarks.rank.observers import (
    EnergyMeter,
    GpuMemoryMeter,
    HaloMeter,
    OtherPrograms,
    StepMeter,
    read_joules,
    watch_other_programs,
)
from dlscale.benchmarks.records.assemble import assemble
from dlscale.benchmarks.records.record import GpuMemory, StateBytes
from dlscale.benchmarks.records.spool import CaseEnd, MeasuredWindow, SpoolWriter, boot_id, read_spools
from dlscale.collectives.neighbours import CarriedNeighbours
from tests.benchmarks.records.test_assemble import CASE, METADATA
from tests.benchmarks.spools import rank_info


class Allocator:
    """A framework's: tensors that stay and the most that there was."""

    def __init__(self):
        self.now = self.most = 0

    def take(self, num_bytes):
        """For a moment, besides what is there."""
        self.most = max(self.most, self.now + num_bytes)

    def peak_memory(self):
        return {"allocated_bytes": self.most, "reserved_bytes": 2 * self.most, "total_bytes": 1000}

    def forget_peak_memory(self):
        self.most = self.now


def test_the_most_that_windows_took_without_gates_and_audits():
    gpu = Allocator()
    meter = GpuMemoryMeter(gpu)
    with meter.paused():
        gpu.take(900)  # the gates
    gpu.now = 100
    gpu.take(50)
    with meter.paused():
        gpu.take(700)  # an audit
    gpu.take(30)
    assert meter.end() == [GpuMemory(allocated_bytes=150, reserved_bytes=300, total_bytes=1000)]
    gpu.take(10)
    assert meter.end()[0].allocated_bytes == 110, "the next case of the launch has its own"


def test_each_rank_of_a_record_has_its_own(tmp_path):
    most = GpuMemory(allocated_bytes=150, reserved_bytes=300, total_bytes=1000)
    held = StateBytes(parameters=4, gradients=None, optimizer=8)
    for rank in range(2):
        spool = SpoolWriter(tmp_path, rank)
        spool.write(rank_info(rank))
        if rank == 0:
            spool.write(most, case=0)
            spool.write(held, case=0)
        spool.write(CaseEnd(peak_rss_bytes=1, load=None), case=0)
        spool.close()
    record = assemble(CASE, 0, read_spools(tmp_path, 2), attempt=1, metadata=METADATA, failure=None)
    assert [rank.gpu_memory for rank in record.ranks] == [most, None]
    assert [rank.state_bytes for rank in record.ranks] == [held, None]


def window(phase, num_steps):
    return MeasuredWindow(phase=phase, num_steps=num_steps, start=0.0, seconds=1.0)


def test_gathers_of_timed_windows_alone_count():
    seconds = [0.0]
    meter = StepMeter(["gather_seconds"], seconds.copy)
    seconds[0] = 5.0
    meter.after(window("warmup", 3))
    seconds[0] = 6.0
    meter.after(window("steady", 4))
    with meter.paused():
        seconds[0] = 60.0
    seconds[0] = 63.0
    meter.after(window("steady", 4))
    assert meter.fields() == {"gather_seconds": (1 + 3) / 8}
    assert meter.fields() == {}, "the next case has no windows yet"
    seconds[0] = None
    meter.after(window("steady", 4))
    assert meter.fields() == {}, "nobody knows it of a GPU"


class Halving(CarriedNeighbours):
    """Nothing moves, and nothing is added."""

    _move = _add = Mock()


def test_halos_of_timed_windows_alone_count_and_one_step_is_told():
    neighbours = Halving(SimpleNamespace(Get_rank=lambda: 0), 2)
    meter = HaloMeter(neighbours)
    rows = np.zeros(4, np.float32)

    def steps(count, calls=2):
        for _ in range(count):
            neighbours.sum(rows[:1])
            for _ in range(calls - 1):
                neighbours.exchange(rows, rows, rows, rows)

    steps(3, calls=5)
    meter.after(window("warmup", 3))
    steps(4)
    meter.after(window("steady", 4))
    with meter.paused():
        steps(7, calls=9)  # a gate
    before = neighbours.seconds
    steps(1)
    found = meter.fields()
    assert (found["halo_bytes"], found["halo_calls"]) == (20.0, ["sum 4", "exchange 0 16"])
    assert 0 < found["halo_seconds"] < before
    assert meter.fields() == {}


LINE = "cpu{core} {user} {nice} {system} 900 80 70 60 {steal} 50 40\n"


@pytest.fixture
def cores(tmp_path, monkeypatch):
    """cores({0: (user, nice, system, steal), ...}) sets what the kernel counted, in ticks; the clocks stand still."""
    path = tmp_path / "stat"
    now = [100.0]
    monkeypatch.setattr(observers, "STAT", path)
    monkeypatch.setattr(observers, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    own = {7: 1.0, 8: 1.0}
    monkeypatch.setattr(time, "clock_gettime", lambda clock: own[~(clock >> 3)])

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


def test_without_a_kernel_that_tells_nothing_is_known(cores, tmp_path, monkeypatch):
    cores({0: (0, 0, 0, 0)})
    others = OtherPrograms([0], [7])
    monkeypatch.setattr(observers, "STAT", tmp_path / "missing")
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
    elsewhere = ((place, "pid:[1]"), 0, 2**22, [0])  # its numbers mean others
    assert watch_other_programs(World(1, [elsewhere]), cores=[0], reads=True)


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


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def write_zone(top, place, name, joules, *, limit=262_143.0):
    folder = top / place
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in (("name", name), ("energy_uj", joules * 10**6), ("max_energy_range_uj", limit * 1e6)):
        (folder / file).write_text(f"{text if file == 'name' else round(text)}\n")


def test_packages_and_their_memory_count_once(tmp_path, monkeypatch):
    monkeypatch.setattr(observers, "ZONES", tmp_path)
    for place, name in (
        ("intel-rapl:0", "package-0"),
        ("intel-rapl:0:0", "dram"),
        ("intel-rapl:0:1", "core"),
        ("intel-rapl:1", "psys"),
        ("intel-rapl-mmio:0", "package-0"),
    ):
        write_zone(tmp_path, place, name, 10)
    assert read_joules("rapl") == [(10.0, 262_143.0)] * 2


def test_windows_after_the_warm_up_count_and_audits_do_not(clock, monkeypatch):
    joules = [100.0]
    monkeypatch.setattr(observers, "read_joules", lambda _: [(joules[0], 1000.0)])
    meter = EnergyMeter("rapl")

    def pass_by(seconds, used):
        clock[0] += seconds
        joules[0] = (joules[0] + used) % 1000  # the counter begins again

    pass_by(5, 50)
    meter.after(window("warmup", 1))
    pass_by(10, 700)
    meter.after(window("steady", 1))
    with meter.paused():
        pass_by(3, 400)
    pass_by(10, 600)
    meter.after(window("steady", 1))
    (reading,) = meter.end()
    assert (reading.joules, reading.seconds, reading.reason) == (1300.0, 20.0, None)


def gpus(monkeypatch, count):
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: count)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", lambda gpu: 1000 * (gpu + 1))


def test_why_there_is_no_number(clock, tmp_path, monkeypatch):
    def reason(source, seconds=10.0):
        meter = EnergyMeter(source)
        meter.after(window("warmup", 1))
        clock[0] += seconds
        return meter.end()[0].reason

    monkeypatch.setattr(observers, "ZONES", tmp_path)
    assert "no package" in reason("rapl")
    write_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    (tmp_path / "intel-rapl:0/energy_uj").unlink()
    assert "No such file or directory" in reason("rapl")
    gpus(monkeypatch, 1)
    assert "too short" in reason("nvml", seconds=1.0)
    gpus(monkeypatch, 0)
    assert reason("nvml") == "no GPU"


def test_every_gpu_counts_in_joules(monkeypatch):
    gpus(monkeypatch, 2)
    assert read_joules("nvml") == [(1.0, 0.0), (2.0, 0.0)]

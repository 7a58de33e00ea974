"""Joules between two moments, on a made-up /sys, a made-up driver's library, and made-up counters."""

import errno
import time
from pathlib import Path

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.benchmarks.rank.energy import REREAD_SECONDS, EnergyMeter, Part, node_meters
from dlscale.benchmarks.records.nodes import NodeEnergy
from dlscale.benchmarks.records.spool import MeasuredWindow

WARM_UP, STEADY = (
    MeasuredWindow(phase=phase, num_steps=1, start=0.0, seconds=1.0) for phase in ("warmup", "steady")
)

NOW = [0.0]


@pytest.fixture(autouse=True, scope="module")
def clock():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: NOW[0])
        yield


@pytest.fixture
def zone(tmp_path):
    """Writes a powercap zone."""

    def write(place, name, joules, *, limit=262_143.3):
        folder = tmp_path / "sys/class/powercap" / place
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "energy_uj").write_text(f"{round(joules * 1e6)}\n")
        (folder / "max_energy_range_uj").write_text(f"{round(limit * 1e6)}\n")

    return write


@pytest.fixture
def read(tmp_path):
    """read(change): the first source's reading over a window in which `change` happens and 50 s go by."""

    def over(change=lambda: None, *, source="rapl", device="cpu"):
        meters = node_meters(device=device, top=tmp_path)
        for meter in meters:
            meter.after(WARM_UP)
        change()
        NOW[0] += 50.0
        readings = [reading for meter in meters for reading in meter.end()]
        for reading in readings:
            NodeEnergy(rank=0, node="n", **dict(reading))
        (found,) = [reading for reading in readings if reading.source == source]
        return found

    return over


def test_packages_and_their_memory_count_once(zone, read):
    def counted(more):
        for package in (0, 1):
            zone(f"intel-rapl:{package}", f"package-{package}", 100.0 + more)
            zone(f"intel-rapl:{package}:0", "core", 60.0 + more)
            zone(f"intel-rapl:{package}:1", "uncore", 5.0 + more)
            zone(f"intel-rapl:{package}:2", "dram", 10.0 + more / 2, limit=65_712.9)
            zone(f"intel-rapl-mmio:{package}", f"package-{package}", 100.0 + more)
        zone("intel-rapl:2", "psys", 400.0 + more)

    counted(0.0)
    reading = read(lambda: counted(20.0))
    assert (reading.parts, reading.joules, reading.seconds) == (
        "2 x package, 2 x dram",
        pytest.approx(60.0),
        50.0,
    )


def test_an_amd_processor_of_several_dies_has_packages_only(zone, read):
    for die in range(2):
        zone(f"intel-rapl:{die}", f"package-0-die-{die}", 7.0)
        zone(f"intel-rapl:{die}:0", "core", 3.0)
    assert read().parts == "2 x package"


def test_a_range_of_0_is_none(zone, read):
    zone("intel-rapl:0", "package-0", 5.0, limit=0)
    assert read(lambda: zone("intel-rapl:0", "package-0", 1.0, limit=0)).reason == "the counter went back"


def test_a_machine_without_counters_says_what_it_lacks(read):
    assert "no package in /sys/class/powercap" in read().reason
    assert "sys/cray/pm_counters/energy: No such file" in read(source="pm_counters").reason


def test_a_counter_that_only_root_may_read(zone, read, monkeypatch):
    open_text = Path.read_text

    def forbidden(path, **named):
        if path.name == "energy_uj":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open_text(path, **named)

    zone("intel-rapl:0", "package-0", 1.0)
    monkeypatch.setattr(Path, "read_text", forbidden)
    assert read().reason.endswith("intel-rapl:0/energy_uj: Permission denied")


@pytest.mark.parametrize("content", ["", "\n", None])
def test_a_part_whose_file_is_gone_or_empty_makes_all_of_it_unreadable(zone, read, tmp_path, content):
    zone("intel-rapl:0", "package-0", 1.0)
    zone("intel-rapl:1", "package-1", 1.0)
    path = tmp_path / "sys/class/powercap/intel-rapl:1/energy_uj"

    def spoil():
        path.unlink() if content is None else path.write_text(content)

    for reading in (read(spoil), read()):
        assert "intel-rapl:1/energy_uj" in reading.reason
        assert reading.joules is None


def test_a_cray_s_node_is_counted_in_joules(tmp_path, read):
    path = tmp_path / "sys/cray/pm_counters/energy"
    path.parent.mkdir(parents=True)
    path.write_text("123456 J 1700000000123456 us\n")
    reading = read(lambda: path.write_text("125456 J\n"), source="pm_counters")
    assert (reading.parts, reading.joules) == ("1 x node", 2000.0)


@pytest.fixture
def nvml(monkeypatch):
    """NVML lists GPUs with these millijoules; the function that `fails` raises its error."""

    def listed(millijoules, fails=None):
        functions = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetCount": lambda: len(millijoules),
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetTotalEnergyConsumption": lambda index: millijoules[index],
        }

        def refuse(*_):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

        for name, function in functions.items():
            monkeypatch.setattr(pynvml, name, refuse if name == fails else function)

    return listed


def test_every_gpu_counts_in_joules(nvml, read):
    millijoules = [5000, 7500]
    nvml(millijoules)
    reading = read(lambda: millijoules.__setitem__(0, 9000), source="nvml", device="gpu")
    assert (reading.parts, reading.joules) == ("2 x GPU", 4.0)


@pytest.mark.parametrize(
    ("millijoules", "fails", "why"),
    [
        ([5000], "nvmlDeviceGetTotalEnergyConsumption", "Not Supported"),
        ([5000], "nvmlInit", "Not Supported"),
        ([], None, "NVML shows no GPU"),
    ],
)
def test_why_gpus_do_not_count(nvml, read, millijoules, fails, why):
    nvml(millijoules, fails)
    assert read(source="nvml", device="gpu").reason == why


class Machine:
    """Parts that take so many watts each; a part's counter begins again at `limit` joules."""

    def __init__(self, watts=(100.0, 50.0), *, limit=0.0, begin=0.0, source="rapl"):
        self.num_reads, self.broken = 0, False
        self.watts, self.limit = watts, limit
        self.joules = [begin] * len(watts)
        self.meter = EnergyMeter(source, self.read)

    def run(self, seconds):
        NOW[0] += seconds
        self.joules = [
            joules + watts * seconds for joules, watts in zip(self.joules, self.watts, strict=True)
        ]

    def read(self):
        self.num_reads += 1
        if self.broken:
            raise OSError(BROKEN)
        return [
            Part("package", joules % self.limit if self.limit else joules, self.limit)
            for joules in self.joules
        ]

    def play(self, *script):
        """What the meter read: the machine runs for seconds between windows, a warm-up's or steady ones, or pauses."""
        for what, seconds in script:
            if what in ("broken", "mended"):
                self.broken = what == "broken"
            elif what == "pause":
                with self.meter.paused():
                    self.run(seconds)
            else:
                self.run(seconds)
                self.meter.after(what)
        return self.meter.end()[0]


BROKEN = "energy_uj: Input/output error"


@pytest.mark.parametrize(
    ("machine", "script", "joules", "seconds", "reason"),
    [
        # The warm-up is forgotten, and windows are counted.
        ({}, [(WARM_UP, 1.0)] * 10 + [(STEADY, 0.2)] * 20, 150 * 4, 4, None),
        ({}, [(WARM_UP, 0.0), (STEADY, 2.0), ("pause", 30.0), ("pause", 30.0), (STEADY, 1.0)], 450, 3, None),
        # A counter may have begun again twice, went back without a range, or is too slow.
        (
            {"limit": 65_536.0}, [(WARM_UP, 0.0), (STEADY, 70.0), (STEADY, 1.0)], None, None,
            "unread for 70 s, in which it may have begun at 0 more than once",
        ),
        ({"watts": (-0.5,)}, [(WARM_UP, 0.0), (STEADY, 10.0)], None, 10, "the counter went back"),
        (
            {"source": "nvml"}, [(WARM_UP, 0.0), (STEADY, 1.5)], None, 1.5,
            "1.5 s of windows are too short for a counter that moves every 0.1 s",
        ),
        ({"source": "nvml"}, [(WARM_UP, 0.0), (STEADY, 4.5)], 150 * 4.5, 4.5, None),
        ({}, [(WARM_UP, 0.0), ("broken", 0), (STEADY, 20.0)], None, None, BROKEN),
        ({}, [(WARM_UP, 0.0), (STEADY, 2.0), ("broken", 0), ("pause", 1.0), ("mended", 0), (STEADY, 1.0)], None, None,
         BROKEN),
        # The next case of a launch in which a counter could be read no more.
        ({}, [("broken", 0), (WARM_UP, 0.0), ("mended", 0), (WARM_UP, 0.0), (STEADY, 1.0)], 150, 1, None),
    ],
)  # fmt: skip
def test_what_is_counted_and_why_not(machine, script, joules, seconds, reason):
    reading = Machine(**machine).play(*script)
    assert reading.joules == (None if joules is None else pytest.approx(joules))
    assert seconds is None or reading.seconds == pytest.approx(seconds)
    assert reading.reason == reason
    NodeEnergy(rank=0, node="n", **dict(reading))


def test_a_counter_is_read_seldom():
    machine = Machine()
    machine.play((WARM_UP, 0.0), *[(STEADY, 0.15)] * 1000)
    assert machine.num_reads <= 4 + 150 / REREAD_SECONDS


@given(st.floats(1, 1000), st.floats(0, 70_000), st.lists(st.floats(0.01, 30), min_size=1, max_size=30))
def test_a_counter_that_begins_again_loses_nothing(watts, begin, windows):
    """At most 30 s + REREAD_SECONDS between two readings: 40 kJ at most, and the counter holds 65.5 kJ."""
    machine = Machine((watts,), limit=65_536.0, begin=begin)
    reading = machine.play((WARM_UP, 0.0), *[(STEADY, seconds) for seconds in windows])
    if reading.seconds > 0.04:
        assert reading.joules == pytest.approx(watts * sum(windows), rel=1e-6)

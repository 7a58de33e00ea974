"""Joules between two moments."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.benchmarks.rank.energy import MOST_WATTS, REREAD_SECONDS, Meter, UnreadableError, node_meter
from dlscale.benchmarks.records.record import NodeEnergy
from dlscale.benchmarks.records.spool import MeasuredWindow

WARM_UP, STEADY = (MeasuredWindow(phase, 1, 0.0, 1.0) for phase in ("warmup", "steady"))


class Machine:
    """A clock, and parts that take so many watts each; a part's counter begins again at `limit` joules."""

    source, parts = "rapl", "2 packages"

    def __init__(self, watts=(100.0, 50.0), *, limit=None, begin=0.0, period=0.001):
        self.now = 0.0
        self.watts, self.period = watts, period
        self.joules = [begin] * len(watts)
        self.ranges = [limit] * len(watts)
        self.num_reads = 0
        self.broken = False

    def run(self, seconds):
        self.now += seconds
        self.joules = [one + watts * seconds for one, watts in zip(self.joules, self.watts, strict=True)]

    def read(self):
        self.num_reads += 1
        if self.broken:
            raise UnreadableError("energy_uj: Input/output error")
        return [
            one if limit is None else one % limit for one, limit in zip(self.joules, self.ranges, strict=True)
        ]

    def meter(self):
        return Meter([self], clock=lambda: self.now)


def test_warm_up_is_forgotten_and_windows_are_counted():
    machine = Machine()
    meter = machine.meter()
    for _ in range(10):
        machine.run(1.0)
        meter.after(WARM_UP)
    for _ in range(20):
        machine.run(0.2)
        meter.after(STEADY)
    (reading,) = meter.end()
    assert reading.joules == pytest.approx(150 * 4)
    assert reading.seconds == pytest.approx(4)
    assert reading.reason is None
    NodeEnergy(rank=0, node="n", **dict(reading))


def test_between_begin_and_end_a_counter_is_read_seldom():
    machine = Machine()
    meter = machine.meter()
    meter.after(WARM_UP)
    for _ in range(1000):
        machine.run(0.15)
        meter.after(STEADY)
    meter.end()
    assert machine.num_reads <= 2 + 150 / REREAD_SECONDS


@given(
    st.floats(1, MOST_WATTS),
    st.floats(0, 70_000),
    st.lists(st.floats(0.01, 30), min_size=1, max_size=30),
)
def test_a_counter_that_begins_again_loses_nothing(watts, begin, windows):
    """At most 30 s + REREAD_SECONDS between two readings: 40 kJ at most, and the counter holds 65.5 kJ."""
    machine = Machine((watts,), limit=65_536.0, begin=begin)
    meter = machine.meter()
    meter.after(WARM_UP)
    for seconds in windows:
        machine.run(seconds)
        meter.after(STEADY)
    (reading,) = meter.end()
    if reading.seconds > 0.04:
        assert reading.joules == pytest.approx(watts * sum(windows), rel=1e-6)


def test_a_window_so_long_that_it_may_have_begun_again_twice_is_no_number():
    machine = Machine(limit=65_536.0)
    meter = machine.meter()
    meter.after(WARM_UP)
    machine.run(70.0)
    meter.after(STEADY)
    machine.run(1.0)
    (reading,) = meter.end()
    assert reading.joules is None
    assert "unread for 70 s" in reading.reason


def test_a_counter_without_range_that_goes_back_is_no_number():
    machine = Machine((10.0,))
    meter = machine.meter()
    machine.run(100.0)
    meter.after(WARM_UP)
    machine.joules = [5.0]
    machine.now += 10
    (reading,) = meter.end()
    assert (reading.joules, reading.reason) == (None, "the counter went back")


def test_windows_too_short_for_a_slow_counter_are_no_number():
    for seconds, known in ((1.5, False), (4.5, True)):
        machine = Machine(period=0.1)
        meter = machine.meter()
        meter.after(WARM_UP)
        machine.run(seconds)
        (reading,) = meter.end()
        assert (reading.joules is not None) == known
        assert (
            known or "1.5 s of windows are too short for a counter that moves every 0.1 s" in reading.reason
        )


def test_what_cannot_be_read_any_more_is_told_and_stops_nothing():
    machine = Machine()
    meter = machine.meter()
    meter.after(WARM_UP)
    machine.broken = True
    machine.run(20.0)
    meter.after(STEADY)
    (reading,) = meter.end()
    assert (reading.joules, reading.reason) == (None, "energy_uj: Input/output error")
    machine.broken = False
    meter.after(WARM_UP)
    machine.run(1.0)
    assert meter.end()[0].joules == pytest.approx(150)  # the next case of the launch


def test_a_machine_without_counters_says_what_it_lacks(tmp_path):
    readings = node_meter(device="cpu", top=tmp_path).end()
    assert [reading.source for reading in readings] == ["rapl", "pm_counters"]
    for reading in readings:
        energy = NodeEnergy(rank=0, node="n", **dict(reading))
        assert energy.joules is None
        assert energy.reason.startswith("no ")


def test_a_machine_with_counters_is_read(tmp_path):
    folder = tmp_path / "sys/class/powercap/intel-rapl:0"
    folder.mkdir(parents=True)
    (folder / "name").write_text("package-0\n")
    (folder / "max_energy_range_uj").write_text("262143328850\n")
    (folder / "energy_uj").write_text("262143000000\n")
    meter = node_meter(device="cpu", top=tmp_path)
    meter.after(WARM_UP)
    (folder / "energy_uj").write_text("1000000\n")
    time.sleep(0.05)
    reading = meter.end()[0]
    assert reading.parts == "1 package"
    assert reading.joules == pytest.approx(1.32885, abs=1e-6)


def test_gpus_are_asked_for_only_where_ranks_train_on_them(tmp_path):
    assert "nvml" in [reading.source for reading in node_meter(device="gpu", top=tmp_path).end()]


def test_what_happens_in_a_pause_is_not_counted():
    machine = Machine()
    meter = machine.meter()
    meter.after(WARM_UP)
    machine.run(2.0)
    for _ in range(2):
        with meter.paused():
            machine.run(30.0)
    machine.run(1.0)
    (reading,) = meter.end()
    assert reading.joules == pytest.approx(150 * 3)
    assert reading.seconds == pytest.approx(3)


def test_a_counter_that_breaks_in_a_pause_gives_its_reason():
    machine = Machine()
    meter = machine.meter()
    meter.after(WARM_UP)
    machine.run(2.0)
    with meter.paused():
        machine.broken = True
    machine.run(1.0)
    (reading,) = meter.end()
    assert reading.joules is None
    assert "Input/output error" in reading.reason

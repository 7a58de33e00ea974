"""Joules between two moments."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlscale.benchmarks.rank.energy import MOST_WATTS, REREAD_SECONDS, Meter, UnreadableError, node_meter
from dlscale.benchmarks.records.nodes import NodeEnergy
from dlscale.benchmarks.records.spool import MeasuredWindow

WARM_UP, STEADY = (
    MeasuredWindow(phase=phase, num_steps=1, start=0.0, seconds=1.0) for phase in ("warmup", "steady")
)


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


def played(machine, *script):
    """What a meter read of a machine: it runs for seconds between windows, a warm-up's or steady ones, or pauses."""
    meter = machine.meter()
    for what, seconds in script:
        if what in ("broken", "mended"):
            machine.broken = what == "broken"
        elif what == "pause":
            with meter.paused():
                machine.run(seconds)
        else:
            machine.run(seconds)
            meter.after(what)
    return meter.end()[0]


BROKEN = "energy_uj: Input/output error"


@pytest.mark.parametrize(
    ("machine", "script", "joules", "seconds", "reason"),
    [
        # The warm-up is forgotten, and windows are counted.
        ({}, [(WARM_UP, 1.0)] * 10 + [(STEADY, 0.2)] * 20, 150 * 4, 4, None),
        ({}, [(WARM_UP, 0.0), (STEADY, 2.0), ("pause", 30.0), ("pause", 30.0), (STEADY, 1.0)], 450, 3, None),
        # A counter may have begun again twice, went back without a range, or is too slow.
        ({"limit": 65_536.0}, [(WARM_UP, 0.0), (STEADY, 70.0), (STEADY, 1.0)], None, None, "unread for 70 s"),
        ({"watts": (-0.5,)}, [(WARM_UP, 0.0), (STEADY, 10.0)], None, 10, "the counter went back"),
        (
            {"period": 0.1}, [(WARM_UP, 0.0), (STEADY, 1.5)], None, 1.5,
            "1.5 s of windows are too short for a counter that moves every 0.1 s",
        ),
        ({"period": 0.1}, [(WARM_UP, 0.0), (STEADY, 4.5)], 150 * 4.5, 4.5, None),
        ({}, [(WARM_UP, 0.0), ("broken", 0), (STEADY, 20.0)], None, None, BROKEN),
        ({}, [(WARM_UP, 0.0), (STEADY, 2.0), ("broken", 0), ("pause", 1.0), (STEADY, 1.0)], None, None, BROKEN),
        # The next case of a launch in which a counter could be read no more.
        ({}, [("broken", 0), (WARM_UP, 0.0), ("mended", 0), (WARM_UP, 0.0), (STEADY, 1.0)], 150, 1, None),
    ],
)  # fmt: skip
def test_what_is_counted_and_why_not(machine, script, joules, seconds, reason):
    reading = played(Machine(**machine), *script)
    assert reading.joules == (None if joules is None else pytest.approx(joules))
    assert seconds is None or reading.seconds == pytest.approx(seconds)
    assert (reading.reason is None) == (reason is None)
    assert reason is None or reason in reading.reason
    NodeEnergy(rank=0, node="n", **dict(reading))


def test_a_counter_is_read_seldom():
    machine = Machine()
    played(machine, (WARM_UP, 0.0), *[(STEADY, 0.15)] * 1000)
    assert machine.num_reads <= 2 + 150 / REREAD_SECONDS


@given(st.floats(1, MOST_WATTS), st.floats(0, 70_000), st.lists(st.floats(0.01, 30), min_size=1, max_size=30))
def test_a_counter_that_begins_again_loses_nothing(watts, begin, windows):
    """At most 30 s + REREAD_SECONDS between two readings: 40 kJ at most, and the counter holds 65.5 kJ."""
    machine = Machine((watts,), limit=65_536.0, begin=begin)
    reading = played(machine, (WARM_UP, 0.0), *[(STEADY, seconds) for seconds in windows])
    if reading.seconds > 0.04:
        assert reading.joules == pytest.approx(watts * sum(windows), rel=1e-6)


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

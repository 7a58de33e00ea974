"""Joules between two moments, on a made-up /sys, a made-up driver's library, and made-up counters."""

import time

import pynvml
import pytest

from dlscale.benchmarks.rank import energy
from dlscale.benchmarks.rank.energy import EnergyMeter
from dlscale.benchmarks.records.spool import MeasuredWindow

WARM_UP, STEADY = (
    MeasuredWindow(phase=phase, num_steps=1, start=0.0, seconds=1.0) for phase in ("warmup", "steady")
)


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


def test_packages_and_their_memory_count_once(tmp_path):
    for place, name in (
        ("intel-rapl:0", "package-0"),
        ("intel-rapl:0:0", "dram"),
        ("intel-rapl:0:1", "core"),
        ("intel-rapl:1", "psys"),
        ("intel-rapl-mmio:0", "package-0"),
    ):
        write_zone(tmp_path, place, name, 10)
    assert energy.rapl(tmp_path) == [(10.0, 262_143.0)] * 2


def test_windows_after_the_warm_up_count_and_audits_do_not(clock):
    joules = [100.0]
    meter = EnergyMeter("rapl", lambda: [(joules[0], 1000.0)])

    def pass_by(seconds, used):
        clock[0] += seconds
        joules[0] = (joules[0] + used) % 1000  # the counter begins again

    pass_by(5, 50)
    meter.after(WARM_UP)
    pass_by(10, 700)
    meter.after(STEADY)
    with meter.paused():
        pass_by(3, 400)
    pass_by(10, 600)
    meter.after(STEADY)
    (reading,) = meter.end()
    assert (reading.joules, reading.seconds, reading.reason) == (1300.0, 20.0, None)


def test_why_there_is_no_number(clock, tmp_path, monkeypatch):
    def reading(source, read, seconds=10.0):
        meter = EnergyMeter(source, read)
        meter.after(WARM_UP)
        clock[0] += seconds
        return meter.end()[0]

    assert "no package" in reading("rapl", lambda: energy.rapl(tmp_path)).reason
    write_zone(tmp_path, "intel-rapl:0", "package-0", 1)
    (tmp_path / "intel-rapl:0/energy_uj").unlink()
    assert reading("rapl", lambda: energy.rapl(tmp_path)).reason.endswith("No such file or directory")
    assert "too short" in reading("nvml", lambda: [(1.0, 0.0)], seconds=1.0).reason
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 0)
    assert reading("nvml", energy.nvml).reason == "NVML shows no GPU"


def test_every_gpu_counts_in_joules(monkeypatch):
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEnergyConsumption", lambda gpu: 1000 * (gpu + 1))
    assert energy.nvml() == [(1.0, 0.0), (2.0, 0.0)]

"""Energy counters on a made-up /sys, and a made-up driver's library."""

import errno
import os
import sys
from types import SimpleNamespace

import pynvml
import pytest

from dlscale.benchmarks.rank.energy import Amdsmi, Nvml, UnreadableError, node_meter, pm_counters, rapl


@pytest.fixture
def zone(tmp_path):
    """Writes a powercap zone."""

    def write(place, name, joules, *, limit=262_143.3):
        folder = tmp_path / "sys/class/powercap" / place
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "energy_uj").write_text(f"{round(joules * 1e6)}\n")
        if limit:
            (folder / "max_energy_range_uj").write_text(f"{round(limit * 1e6)}\n")

    return write


def test_packages_and_their_memory_count_once(zone, tmp_path):
    for package in (0, 1):
        zone(f"intel-rapl:{package}", f"package-{package}", 100.0 + package)
        zone(f"intel-rapl:{package}:0", "core", 60.0)
        zone(f"intel-rapl:{package}:1", "uncore", 5.0)
        zone(f"intel-rapl:{package}:2", "dram", 10.0 + package, limit=65_712.9)
        zone(f"intel-rapl-mmio:{package}", f"package-{package}", 100.0)
    zone("intel-rapl:2", "psys", 400.0)
    found = rapl(tmp_path)
    assert found.parts == "2 packages, 2 dram"
    assert sorted(found.read()) == [10.0, 11.0, 100.0, 101.0]
    assert sorted(found.ranges) == pytest.approx([65_712.9, 65_712.9, 262_143.3, 262_143.3])


def test_an_amd_processor_of_several_dies_has_packages_only(zone, tmp_path):
    for die in range(2):
        zone(f"intel-rapl:{die}", f"package-0-die-{die}", 7.0)
        zone(f"intel-rapl:{die}:0", "core", 3.0)
    found = rapl(tmp_path)
    assert (found.parts, found.read()) == ("2 packages", [7.0, 7.0])


def test_a_counter_moves_on_while_its_file_stays_open(zone, tmp_path):
    zone("intel-rapl:0", "package-0", 100.0)
    found = rapl(tmp_path)
    zone("intel-rapl:0", "package-0", 250.25)
    assert found.read() == [250.25]


def test_no_range_is_no_range_and_not_0(zone, tmp_path):
    zone("intel-rapl:0", "package-0", 1.0, limit=None)
    zone("intel-rapl:1", "package-1", 1.0)
    (tmp_path / "sys/class/powercap/intel-rapl:1/max_energy_range_uj").write_text("0\n")
    assert rapl(tmp_path).ranges == [None, None]


def test_why_there_is_none(zone, tmp_path):
    with pytest.raises(UnreadableError, match="no package in /sys/class/powercap"):
        rapl(tmp_path)
    zone("intel-rapl:0", "dram", 1.0)
    with pytest.raises(UnreadableError, match="no package"):
        rapl(tmp_path)
    with pytest.raises(UnreadableError, match="no /sys/cray/pm_counters/energy"):
        pm_counters(tmp_path)


def test_a_counter_that_only_root_may_read(zone, tmp_path, monkeypatch):
    def forbidden(path, flags):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    zone("intel-rapl:0", "package-0", 1.0)
    monkeypatch.setattr(os, "open", forbidden)
    with pytest.raises(UnreadableError, match=r"intel-rapl:0/energy_uj: Permission denied"):
        rapl(tmp_path)


@pytest.mark.parametrize("content", ["", "\n", None])
def test_a_part_whose_file_is_gone_or_empty_makes_all_of_it_unreadable(zone, tmp_path, content):
    zone("intel-rapl:0", "package-0", 1.0)
    zone("intel-rapl:1", "package-1", 1.0)
    path = tmp_path / "sys/class/powercap/intel-rapl:1/energy_uj"
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(UnreadableError, match=r"intel-rapl:1/energy_uj(: No such file| holds no number)"):
        rapl(tmp_path)


@pytest.mark.parametrize("text", ["123456 J 1700000000123456 us\n", "123456 J\n"])
def test_a_cray_s_node_is_counted_in_joules(tmp_path, text):
    path = tmp_path / "sys/cray/pm_counters/energy"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    found = pm_counters(tmp_path)
    assert (found.parts, found.read(), found.ranges) == ("node", [123456.0], [None])


@pytest.fixture
def nvml(monkeypatch):
    """NVML lists GPUs with these millijoules; the function that `fails` raises its error."""

    def listed(*millijoules, fails=None):
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


def test_every_gpu_counts_in_joules(nvml):
    nvml(5000, 7500)
    counter = Nvml()
    assert (counter.parts, counter.read(), counter.ranges) == ("2 GPUs", [5.0, 7.5], [None, None])


@pytest.mark.parametrize(
    ("millijoules", "fails", "why"),
    [
        ([5000], "nvmlDeviceGetTotalEnergyConsumption", "energy counter: Not Supported"),
        ([5000], "nvmlInit", "NVML: Not Supported"),
        ([], None, "NVML shows no GPU"),
    ],
)
def test_why_gpus_do_not_count(nvml, millijoules, fails, why):
    nvml(*millijoules, fails=fails)
    with pytest.raises(UnreadableError, match=why):
        Nvml()


class RocmError(Exception):
    """The base of amdsmi's."""


def amd_gpus(*counts, initialised=None):
    """Such an amdsmi; a count that is an exception is raised."""

    def count(index):
        if isinstance(counts[index], Exception):
            raise counts[index]
        return counts[index]

    def start():
        if initialised:
            raise initialised

    return SimpleNamespace(
        AmdSmiException=RocmError,
        amdsmi_init=start,
        amdsmi_get_processor_handles=lambda: list(range(len(counts))),
        amdsmi_get_energy_count=count,
    )


def ticks(number):
    return {"energy_accumulator": number, "counter_resolution": 15.3, "timestamp": 1}


def test_amd_gpus_count_ticks_of_their_resolution(monkeypatch):
    monkeypatch.setitem(sys.modules, "amdsmi", amd_gpus(ticks(1_000_000), ticks(0)))
    counter = Amdsmi()
    assert (counter.parts, counter.ranges) == ("2 GPUs", [None, None])
    assert counter.read() == pytest.approx([15.3, 0.0])


@pytest.mark.parametrize(
    ("library", "why"),
    [
        (None, "comes with ROCm, cannot be imported"),
        (amd_gpus(), "shows no GPU"),
        (amd_gpus(ticks(1), initialised=RocmError("driver not loaded")), "amdsmi: driver not loaded"),
        (amd_gpus(RocmError("not supported")), "counter: not supported"),
        (amd_gpus({"power": 1}), "energy_accumulator"),
    ],
)
def test_why_amd_gpus_do_not_count(library, why, monkeypatch):
    monkeypatch.setitem(sys.modules, "amdsmi", library)
    with pytest.raises(UnreadableError, match=why):
        Amdsmi()


@pytest.mark.parametrize(
    ("drivers", "sources"),
    [
        ([], ["nvml"]),
        (["nvidiactl"], ["nvml"]),
        (["kfd"], ["amdsmi"]),
        (["kfd", "nvidiactl"], ["amdsmi", "nvml"]),
    ],
)
def test_gpus_are_read_by_the_libraries_of_the_drivers_that_are_there(
    drivers, sources, tmp_path, monkeypatch, nvml
):
    nvml()
    monkeypatch.setitem(sys.modules, "amdsmi", amd_gpus())
    (tmp_path / "dev").mkdir()
    for driver in drivers:
        (tmp_path / "dev" / driver).touch()
    meter = node_meter(device="gpu", top=tmp_path)
    assert [
        reading.source for reading in meter.end() if reading.source not in ("rapl", "pm_counters")
    ] == sources

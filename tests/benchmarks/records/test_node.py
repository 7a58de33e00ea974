"""What a node says of itself, from folders that look like its /proc and /sys."""

from pathlib import Path

import pytest

from dlscale.benchmarks.records.nodes import NodeFacts, filesystem_type, node_facts

MOUNTS = """\
/dev/sda1 / ext4 rw,relatime 0 0
10.0.0.1@o2ib:/jane {top}/scratch lustre rw 0 0
server:/export/jane {top}/scratch\\040two nfs4 rw 0 0
tmpfs {top}/scratch/tmp tmpfs rw 0 0
/dev/sdb {top}/scratch/tmp xfs rw 0 0
"""
# The first line of NVIDIA's open driver, and of the closed one.
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder@U16)\n"
)
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024\n"


@pytest.fixture
def top(tmp_path):
    """A machine of 4 CPUs, 2 NUMA domains and 2 GPUs."""
    files = {
        "proc/loadavg": "0.75 0.50 0.25 1/200 4711\n",
        "proc/self/mounts": MOUNTS.format(top=tmp_path),
        "proc/driver/nvidia/version": OPEN + "GCC version: gcc version 12\n",
        "sys/devices/system/cpu/intel_pstate/no_turbo": "0\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
    }
    for number in range(4):
        governor = "performance" if number else "powersave"
        files[f"sys/devices/system/cpu/cpufreq/policy{number}/scaling_governor"] = governor + "\n"
        for index, (level, size, sharing) in enumerate(
            [
                (1, "32K", str(number)),
                (2, "1024K", str(number)),
                (3, "16384K", "0-1" if number < 2 else "2-3"),
            ]
        ):
            cache = f"sys/devices/system/cpu/cpu{number}/cache/index{index}"
            files |= {f"{cache}/level": f"{level}\n", f"{cache}/size": f"{size}\n"}
            files[f"{cache}/shared_cpu_list"] = f"{sharing}\n"
    for number in range(2):
        files[f"sys/devices/system/node/node{number}/cpulist"] = "0-1\n"
        model = f"Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t {number}\n"
        files[f"proc/driver/nvidia/gpus/0000:0{number}:00.0/information"] = model
    files |= {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.stat": "nr_periods 9\nnr_throttled 3\n"}
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def look(top, **variables):
    return node_facts(results=top / "scratch/results", data=None, top=top, variables=variables)


def test_everything_that_a_node_says(top):
    info = look(top, SLURM_TOPOLOGY_ADDR="s0.s1.nid00001", SHIFTER_IMAGE="sha:12")
    assert dict(info) | {"num_cpus": 4, "memory_bytes": 1} == {
        "num_cpus": 4,
        "memory_bytes": 1,
        "cache_bytes": (4 << 20) + (32 << 20),
        "numa_domains": 2,
        "cpu_governor": "performance, powersave",
        "cpu_boost": True,
        "transparent_huge_pages": "madvise",
        "clock_source": "tsc",
        "device_driver": "nvidia 570.86.15",
        "devices": "2 x NVIDIA A100-SXM4-40GB",
        "container": "sha:12",
        "switch_path": "s0.s1.nid00001",
        "results_filesystem": "lustre",
        "data_filesystem": None,
        "load_before": 0.75,
        "throttled_before": 3,
    }
    assert NodeFacts(rank=0, node="n", load_after=None, throttled_after=5, **dict(info)).num_throttled == 2


def test_other_drivers(top):
    (top / "proc/driver/nvidia/version").write_text(CLOSED)
    boost = top / "sys/devices/system/cpu/cpufreq/boost"
    boost.write_text("0\n")
    info = look(top)
    assert (info.device_driver, info.cpu_boost) == ("nvidia 550.54.14", False)
    (top / "proc/driver/nvidia/version").unlink()
    boost.unlink()
    (top / "sys/devices/system/cpu/intel_pstate/no_turbo").write_text("1\n")
    (top / "sys/module/amdgpu").mkdir(parents=True)
    (top / "sys/module/amdgpu/version").write_text("6.7.0\n")
    info = look(top)
    assert (info.device_driver, info.cpu_boost) == ("amdgpu 6.7.0", False)


def test_a_node_that_says_nothing(tmp_path):
    (tmp_path / "sys/devices/system/cpu/cpufreq/boost").mkdir(parents=True)  # unreadable: a folder
    info = look(tmp_path)
    assert {name for name, value in dict(info).items() if value} == {"num_cpus", "memory_bytes"}
    NodeFacts(rank=0, node="n", load_after=None, **dict(info))


def test_the_file_system_is_that_of_the_innermost_mount(top):
    assert filesystem_type(top / "scratch/tmp/x", top) == "xfs"  # the later one hides the other
    assert filesystem_type(top / "scratch two/x", top) == "nfs4"
    assert filesystem_type(top / "scratchy", top) == "ext4"  # not inside scratch
    (top / "link").symlink_to(top / "scratch")
    assert filesystem_type(top / "link/results", top) == "lustre"


def test_this_machine_answers():
    look_here = dict(results=Path("/tmp"), data=Path("/"))  # noqa: C408, S108
    info = node_facts(**look_here)
    assert info.load_before >= 0
    assert info.results_filesystem

"""What a node says of itself, read from /proc and /sys in a few milliseconds and without root.

Every rank imports this: nothing heavy belongs here, and nothing that waits for a device.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dlscale.benchmarks.provenance.filesystem import filesystem_type

Found = str | int | float | bool | None

# Variables by which container runtimes, or their users, name the image. Paths are not among them.
CONTAINER_VARIABLES = (
    *("DLSCALE_CONTAINER", "CONTAINER_DIGEST", "IMAGE_DIGEST", "SHIFTER_IMAGE", "SHIFTER_IMAGEREQUEST"),
    *("APPTAINER_NAME", "SINGULARITY_NAME"),
)


def node_facts(
    *,
    results: Path,
    data: Path | None,
    top: Path = Path("/"),
    variables: Mapping[str, str] = os.environ,
) -> dict[str, Found]:
    """The fields of `NodeFacts` that the node itself knows. `top` is where its /proc and /sys are."""
    sys_cpu = top / "sys/devices/system/cpu"
    return {
        "num_cpus": os.cpu_count() or 1,
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "cache_bytes": _cache_bytes(sys_cpu),
        "numa_domains": len(list((top / "sys/devices/system/node").glob("node[0-9]*"))) or None,
        "cpu_governor": _each(sys_cpu / "cpufreq", "policy*/scaling_governor"),
        "cpu_boost": _boost(sys_cpu),
        "transparent_huge_pages": _chosen(top / "sys/kernel/mm/transparent_hugepage/enabled"),
        "clock_source": _line(top / "sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "device_driver": _device_driver(top),
        "devices": _devices(top),
        "container": next((variables[name] for name in CONTAINER_VARIABLES if variables.get(name)), None),
        "switch_path": variables.get("SLURM_TOPOLOGY_ADDR"),
        "results_filesystem": filesystem_type(results, top),
        "data_filesystem": filesystem_type(data, top) if data else None,
        "load_before": load(top),
    }


def load(top: Path = Path("/")) -> float | None:
    """Processes that ran or wanted to, mean over the last minute."""
    text = _line(top / "proc/loadavg")
    return float(text.split()[0]) if text else None


def _cache_bytes(sys_cpu: Path) -> int | None:
    """Of all caches from the second level on, each one that some CPUs share counted once."""
    sizes: dict[tuple[str, str], int] = {}
    for folder in sys_cpu.glob("cpu[0-9]*/cache/index[0-9]*"):
        level, size = _line(folder / "level"), _line(folder / "size")
        shared = _line(folder / "shared_cpu_list")
        if level and level != "1" and size and size.removesuffix("K").isdigit() and shared:
            sizes[level, shared] = int(size.removesuffix("K")) * 1024
    return sum(sizes.values()) or None


def _line(path: Path) -> str | None:
    """The first line of a file; None if there is none, or it may not be read."""
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8").strip().partition("\n")[0] or None
    return None


def _each(folder: Path, pattern: str) -> str | None:
    """What the files say, each answer once."""
    found = {_line(path) for path in folder.glob(pattern)} - {None}
    return ", ".join(sorted(str(one) for one in found)) or None


def _boost(sys_cpu: Path) -> bool | None:
    """Whether cores may run faster than their nominal clock. Intel's own driver says it the other way round."""
    if (text := _line(sys_cpu / "cpufreq/boost")) is not None:
        return text == "1"
    if (text := _line(sys_cpu / "intel_pstate/no_turbo")) is not None:
        return text == "0"
    return None


def _chosen(path: Path) -> str | None:
    """The word in brackets: "always [madvise] never"."""
    found = re.search(r"\[(\w+)\]", _line(path) or "")
    return found[1] if found else None


def _device_driver(top: Path) -> str | None:
    """Name and version of the GPUs' kernel driver."""
    found = re.search(r"Module.*?\s(\d+\.[\d.]+)\s", _line(top / "proc/driver/nvidia/version") or "")
    if found:
        return f"nvidia {found[1]}"
    version = _line(top / "sys/module/amdgpu/version")
    return f"amdgpu {version}" if version else None


def _devices(top: Path) -> str | None:
    """The models of NVIDIA's GPUs, "4 x NVIDIA A100-SXM4-40GB"; others' are not told by their drivers."""
    models = []
    for path in sorted((top / "proc/driver/nvidia/gpus").glob("*/information")):
        with suppress(OSError, UnicodeDecodeError):
            if found := re.search(r"^Model:\s*(.+?)\s*$", path.read_text(encoding="utf-8"), re.MULTILINE):
                models.append(found[1])
    return ", ".join(f"{models.count(one)} x {one}" for one in sorted(set(models))) or None

"""Facts about a measurement's environment: the node's settings, its file system, and the batch job.

`node_facts` reads /proc and /sys in a few milliseconds and without root. Every rank imports this module, so it must
stay light and never wait for a device. Only the environment variables named here are read: others contain user names,
home folders and project codes. So do mount points and servers, which are not recorded either.
`analysis/comparison/fields.toml` says which of these facts blocks a comparison.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dlscale.base.batch import load_all
from dlscale.benchmarks.records.nodes import Allocation, NodeSettings

# Variables in which container runtimes, or their users, name the image. Paths are excluded.
CONTAINER_VARIABLES = (
    *("DLSCALE_CONTAINER", "CONTAINER_DIGEST", "IMAGE_DIGEST", "SHIFTER_IMAGE", "SHIFTER_IMAGEREQUEST"),
    *("APPTAINER_NAME", "SINGULARITY_NAME"),
)


# The path from the root of the network's tree to the node.
_SWITCHES = [known.variables.switches for known in load_all() if known.variables.switches]


def node_facts(
    *, results: Path, data: Path | None, top: Path = Path("/"), variables: Mapping[str, str] = os.environ
) -> NodeSettings:
    """The facts of this node. `top` is the folder of /proc and /sys."""
    sys_cpu = top / "sys/devices/system/cpu"
    return NodeSettings(
        num_cpus=os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        cache_bytes=_cache_bytes(sys_cpu),
        numa_domains=len(list((top / "sys/devices/system/node").glob("node[0-9]*"))) or None,
        cpu_governor=_each(sys_cpu / "cpufreq", "policy*/scaling_governor"),
        cpu_boost=_boost(sys_cpu),
        transparent_huge_pages=_chosen(top / "sys/kernel/mm/transparent_hugepage/enabled"),
        clock_source=_line(top / "sys/devices/system/clocksource/clocksource0/current_clocksource"),
        device_driver=_device_driver(top),
        devices=_devices(top),
        container=next((variables[name] for name in CONTAINER_VARIABLES if variables.get(name)), None),
        switch_path=next((variables[name] for name in _SWITCHES if name in variables), None),
        results_filesystem=filesystem_type(results, top),
        data_filesystem=filesystem_type(data, top) if data else None,
        load_before=load_average(top),
    )


def load_average(top: Path = Path("/")) -> float | None:
    """Mean number of running and runnable processes over the last minute."""
    match = re.match(r"[0-9]{1,9}\.[0-9]{1,9}\s", _line(top / "proc/loadavg") or "")
    return float(match[0]) if match else None


def _cache_bytes(sys_cpu: Path) -> int | None:
    """Total size of all caches above level 1; a shared cache counts once."""
    sizes: dict[tuple[str, str], int] = {}
    for folder in sys_cpu.glob("cpu[0-9]*/cache/index[0-9]*"):
        level, size = _line(folder / "level"), _line(folder / "size")
        shared = _line(folder / "shared_cpu_list")
        kib = re.fullmatch(r"([0-9]{1,9})K?", size or "")
        if level and level != "1" and kib and shared:
            sizes[level, shared] = int(kib[1]) * 1024
    return sum(sizes.values()) or None


def _line(path: Path) -> str | None:
    """The first line of a file; None if it is missing or unreadable."""
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8").strip().partition("\n")[0] or None
    return None


def _each(folder: Path, pattern: str) -> str | None:
    """The distinct first lines of the files, sorted."""
    lines = {_line(path) for path in folder.glob(pattern)} - {None}
    return ", ".join(sorted(str(line) for line in lines)) or None


def _boost(sys_cpu: Path) -> bool | None:
    """Whether cores may exceed their nominal clock. Intel's own driver has the inverse flag."""
    if (text := _line(sys_cpu / "cpufreq/boost")) is not None:
        return text == "1"
    if (text := _line(sys_cpu / "intel_pstate/no_turbo")) is not None:
        return text == "0"
    return None


def _chosen(path: Path) -> str | None:
    """The word in brackets, as in "always [madvise] never"."""
    match = re.search(r"\[(\w+)\]", _line(path) or "")
    return match[1] if match else None


def _device_driver(top: Path) -> str | None:
    """Name and version of the GPUs' kernel driver."""
    match = re.search(r"Module.*?\s(\d+\.[\d.]+)\s", _line(top / "proc/driver/nvidia/version") or "")
    if match:
        return f"nvidia {match[1]}"
    version = _line(top / "sys/module/amdgpu/version")
    return f"amdgpu {version}" if version else None


def _devices(top: Path) -> str | None:
    """The models of NVIDIA's GPUs, "4 x NVIDIA A100-SXM4-40GB"; other drivers do not report theirs."""
    models = []
    for path in sorted((top / "proc/driver/nvidia/gpus").glob("*/information")):
        with suppress(OSError, UnicodeDecodeError):
            if match := re.search(r"^Model:\s*(.+?)\s*$", path.read_text(encoding="utf-8"), re.MULTILINE):
                models.append(match[1])
    return ", ".join(f"{models.count(model)} x {model}" for model in sorted(set(models))) or None


def filesystem_type(path: Path, top: Path = Path("/")) -> str | None:
    """lustre, nfs4, ext4, overlay ...; None if unknown to the kernel. `top` is the folder of /proc."""
    try:
        text = (top / "proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    wanted = os.path.realpath(path)
    best, filesystem = -1, None
    for line in text.splitlines():
        place, _, rest = line.partition(" - ")
        words = place.split(" ")
        if len(words) < 5 or not rest:
            continue
        mount = _plain(words[4])
        inside = wanted == mount or wanted.startswith(mount.rstrip("/") + "/")
        # The last file system on a mount point hides the earlier ones.
        if inside and len(mount) >= best:
            best, filesystem = len(mount), rest.split(" ")[0]
    return filesystem


def _plain(name: str) -> str:
    r"""A mount point with its escapes decoded: the kernel writes a blank as \040."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), name)


MAX_LIST = 200  # characters of a node list; a longer one is replaced by its digest


def batch_job(variables: Mapping[str, str]) -> Allocation | None:
    """The batch job that these variables describe; None outside one."""
    for scheduler in load_all():
        names = scheduler.variables
        if job_id := variables.get(names.job_id):
            hosts = _hosts(variables.get(names.hosts, ""))
            number = variables.get(names.num_nodes, "")
            return Allocation(
                scheduler=scheduler.name,
                job_id=job_id,
                partition=variables.get(names.partition) or None,
                num_nodes=int(number) if number.isdecimal() and int(number) else len(hosts) or None,
                nodes=_short(variables.get(names.listed) or ",".join(hosts)),
            )
    return None


def _hosts(path: str) -> list[str]:
    """The distinct hosts in a file of slots, in order; none if it cannot be read."""
    with suppress(OSError, UnicodeDecodeError):
        if path:
            return list(dict.fromkeys(Path(path).read_text(encoding="utf-8").split()))
    return []


def _short(nodes: str) -> str | None:
    if len(nodes) > MAX_LIST:
        return f"sha256:{hashlib.sha256(nodes.encode()).hexdigest()[:16]}"
    return nodes or None

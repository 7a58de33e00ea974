"""The machine around a case: its nodes and how they are read, their energy, and the batch job.

`node_facts` reads /proc and /sys in a few milliseconds and without root, and never waits for a device. Only the
environment variables named here are read: others contain user names, home folders and project codes. So do mount points
and servers, which are not recorded either. `analysis/record_fields.toml` says which of these facts block a comparison.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from dlscale.base.batch import load_all
from dlscale.base.definitions import Frozen, where_given
from dlscale.base.strings import Name, Text
from dlscale.benchmarks.systems.limits import read_limits

Source = Literal["rapl", "pm_counters", "nvml"]
# Variables in which container runtimes, or their users, name the image. Paths are excluded.
CONTAINER_VARIABLES = (
    *("DLSCALE_CONTAINER", "CONTAINER_DIGEST", "IMAGE_DIGEST", "SHIFTER_IMAGE", "SHIFTER_IMAGEREQUEST"),
    *("APPTAINER_NAME", "SINGULARITY_NAME"),
)
MAX_LIST = 200  # characters of a node list; a longer one is replaced by its digest


class OnNode(Frozen):
    """Where something was read."""

    rank: NonNegativeInt  # that read it
    node: Text


class EnergyReading(Frozen):
    """One counter of a node, over the windows after the warm-up and the time between them.

    `joules` is None if the counter could not be read, and `reason` says why. It covers the whole counted part of the
    machine, including other users' load.
    """

    source: Source | None  # None: no counter on that node could be read
    parts: Text = ""  # counted parts: "2 x package, 2 x dram"; empty if it could not be read
    joules: NonNegativeFloat | None = None
    seconds: NonNegativeFloat | None = None  # from the first reading to the last, on the node's clock
    reason: Text | None = None


class NodeEnergy(EnergyReading, OnNode):
    """A reading, and where it was taken."""


class Allocation(Frozen):
    """The batch job that a launch ran in."""

    scheduler: Name
    job_id: Text
    partition: Text | None
    num_nodes: PositiveInt | None
    nodes: Text | None  # the scheduler's list, "sha256:..." if it is long


class NodeSettings(Frozen):
    """Facts about a node, read by the first rank on it."""

    num_cpus: PositiveInt  # online hardware threads
    memory_bytes: PositiveInt
    cache_bytes: PositiveInt | None  # of all caches above level 1
    numa_domains: PositiveInt | None
    cpu_governor: Text | None
    cpu_boost: bool | None  # whether cores may exceed their nominal clock
    transparent_huge_pages: Text | None
    clock_source: Text | None
    device_driver: Text | None  # name and version of the GPUs' kernel driver
    devices: Text | None  # "4 x NVIDIA A100-SXM4-40GB"; other drivers do not report theirs
    container: Text | None  # digest or name of the image
    switch_path: Text | None  # from the root of the fabric's tree to the node, from Slurm
    results_filesystem: Text | None  # its type: lustre, nfs4, ext4 ...
    data_filesystem: Text | None  # of the data that the launch reads; None also without data
    load_before: NonNegativeFloat | None  # over the minute before the backend was connected
    # How often the kernel had stopped the control group's processes, whose quota of CPU time was used up.
    throttled_before: NonNegativeInt = where_given(0)


class NodeFacts(NodeSettings, OnNode):
    """A node of a case."""

    load_after: NonNegativeFloat | None  # over the case's last minute, its own ranks included
    throttled_after: NonNegativeInt = where_given(0)

    @property
    def num_throttled(self) -> int:
        """How often it stopped them from the launch's begin to the case's end."""
        return max(0, self.throttled_after - self.throttled_before)


def node_facts(
    *, results: Path, data: Path | None, top: Path = Path("/"), variables: Mapping[str, str] = os.environ
) -> NodeSettings:
    """The facts of this node. `top` is the folder of /proc and /sys."""
    system, cpus, driver = top / "sys/devices/system", top / "sys/devices/system/cpu", top / "proc/driver"
    boost = _match(cpus / "cpufreq/boost", "([01])")
    no_turbo = _match(cpus / "intel_pstate/no_turbo", "([01])")  # Intel's own driver has the inverse flag
    nvidia = _match(driver / "nvidia/version", r"Module.*?\s(\d+\.[\d.]+)\s")
    amdgpu = _match(top / "sys/module/amdgpu/version", r"(\S+)")
    governors = _matches(cpus.glob("cpufreq/policy*/scaling_governor"), "(.+)")
    models = _matches((driver / "nvidia/gpus").glob("*/information"), r"(?m)^Model:\s*(.+?)\s*$")
    switches = [known.variables.switches for known in load_all()]
    return NodeSettings(
        num_cpus=os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        cache_bytes=_cache_bytes(cpus),
        numa_domains=len(list((system / "node").glob("node[0-9]*"))) or None,
        cpu_governor=", ".join(sorted({*governors})) or None,
        cpu_boost=boost == "1" if boost else {"0": True, "1": False}.get(no_turbo or ""),
        transparent_huge_pages=_match(top / "sys/kernel/mm/transparent_hugepage/enabled", r"\[(\w+)\]"),
        clock_source=_match(system / "clocksource/clocksource0/current_clocksource", "(.+)"),
        device_driver=f"nvidia {nvidia}" if nvidia else f"amdgpu {amdgpu}" if amdgpu else None,
        devices=", ".join(f"{models.count(model)} x {model}" for model in sorted({*models})) or None,
        container=next((variables[name] for name in CONTAINER_VARIABLES if variables.get(name)), None),
        switch_path=next((variables[name] for name in switches if name and name in variables), None),
        results_filesystem=filesystem_type(results, top),
        data_filesystem=filesystem_type(data, top) if data else None,
        load_before=load_average(top),
        throttled_before=read_limits(top).num_throttled,
    )


def load_average(top: Path = Path("/")) -> float | None:
    """Mean number of running and runnable processes over the last minute."""
    load = _match(top / "proc/loadavg", r"^([0-9]{1,9}\.[0-9]{1,9})\s")
    return float(load) if load else None


def filesystem_type(path: Path, top: Path = Path("/")) -> str | None:
    """lustre, nfs4, ext4, overlay ...; None if unknown to the kernel. `top` is the folder of /proc."""
    try:
        lines = (top / "proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    wanted, longest, filesystem = Path(os.path.realpath(path)), 0, None
    for words in (line.split(" ") for line in lines):
        # The kernel writes a blank as \040.
        mount = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), "".join(words[1:2]))
        # The last file system on a mount point hides the earlier ones.
        if len(words) > 2 and len(mount) >= longest and wanted.is_relative_to(mount):
            longest, filesystem = len(mount), words[2]
    return filesystem


def _match(path: Path, pattern: str) -> str | None:
    """The group of the pattern's first match in a file; None without one, and if the file is unreadable."""
    with suppress(OSError, UnicodeDecodeError):
        match = re.search(pattern, path.read_text(encoding="utf-8"))
        return match[1].strip() or None if match else None
    return None


def _matches(paths: Iterable[Path], pattern: str) -> list[str]:
    return [match for path in paths if (match := _match(path, pattern))]


def _cache_bytes(cpus: Path) -> int | None:
    """Total size of all caches above level 1; a shared cache counts once."""
    sizes: dict[tuple[str, str], int] = {}
    for folder in cpus.glob("cpu[0-9]*/cache/index[0-9]*"):
        level, shared = _match(folder / "level", "(.+)"), _match(folder / "shared_cpu_list", "(.+)")
        kib = _match(folder / "size", r"^([0-9]{1,9})K?$")
        if level and level != "1" and kib and shared:
            sizes[level, shared] = int(kib) * 1024
    return sum(sizes.values()) or None


def batch_job(variables: Mapping[str, str]) -> Allocation | None:
    """The batch job that these variables describe; None outside one."""
    for scheduler in load_all():
        names = scheduler.variables
        if job_id := variables.get(names.job_id):
            hosts: list[str] = []
            if path := variables.get(names.hosts):
                with suppress(OSError, UnicodeDecodeError):  # a file of slots
                    hosts = list(dict.fromkeys(Path(path).read_text(encoding="utf-8").split()))
            number = variables.get(names.num_nodes, "")
            nodes = variables.get(names.listed) or ",".join(hosts)
            if len(nodes) > MAX_LIST:
                nodes = f"sha256:{hashlib.sha256(nodes.encode()).hexdigest()[:16]}"
            return Allocation(
                scheduler=scheduler.name,
                job_id=job_id,
                partition=variables.get(names.partition) or None,
                num_nodes=int(number) if number.isdecimal() and int(number) else len(hosts) or None,
                nodes=nodes or None,
            )
    return None

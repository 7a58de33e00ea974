"""The machine around a case: its nodes and how they are read, their energy, and the batch job.

`node_facts` reads /proc without root, and never waits for a device. Only the environment variables named here are read:
others contain user names, home folders and project codes. `analysis/record_fields.toml` says which of these facts block
a comparison. Facts that earlier versions wrote are ignored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from dlscale.base.definitions import Frozen, where_given
from dlscale.base.schedulers import SCHEDULERS
from dlscale.base.strings import Name, Text
from dlscale.benchmarks.systems.limits import read_limits

Source = Literal["rapl", "pm_counters", "nvml"]
# Variables in which container runtimes, or their users, name the image. Paths are excluded.
CONTAINER_VARIABLES = (
    *("DLSCALE_CONTAINER", "CONTAINER_DIGEST", "IMAGE_DIGEST", "SHIFTER_IMAGE", "SHIFTER_IMAGEREQUEST"),
    *("APPTAINER_NAME", "SINGULARITY_NAME"),
)


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


class NodeEnergy(EnergyReading):
    """A reading, and where it was taken."""

    rank: NonNegativeInt  # that read it
    node: Text


class Allocation(Frozen, extra="ignore"):
    """The batch job that a launch ran in."""

    scheduler: Name
    job_id: Text
    partition: Text | None


class NodeSettings(Frozen):
    """Facts about a node, read by the first rank on it."""

    num_cpus: PositiveInt  # online hardware threads
    memory_bytes: PositiveInt
    cpu_governor: Text | None
    device_driver: Text | None  # name and version of the GPUs' kernel driver
    devices: Text | None  # "4 x NVIDIA A100-SXM4-40GB"; other drivers do not report theirs
    container: Text | None  # digest or name of the image
    load_before: NonNegativeFloat | None  # over the minute before the backend was connected
    # How often the kernel had stopped the control group's processes, whose quota of CPU time was used up.
    throttled_before: NonNegativeInt = where_given(0)


class NodeFacts(NodeSettings, extra="ignore"):
    """A node of a case."""

    rank: NonNegativeInt  # that read them
    node: Text
    load_after: NonNegativeFloat | None  # over the case's last minute, its own ranks included
    throttled_after: NonNegativeInt = where_given(0)

    @property
    def num_throttled(self) -> int:
        """How often it stopped them from the launch's begin to the case's end."""
        return max(0, self.throttled_after - self.throttled_before)


def node_facts(*, top: Path = Path("/"), variables: Mapping[str, str] = os.environ) -> NodeSettings:
    """The facts of this node. `top` is the folder of /proc and /sys."""
    driver = top / "proc/driver/nvidia"
    nvidia = _matches([driver / "version"], r"Module.*?\s(\d+\.[\d.]+)\s")
    amdgpu = _matches([top / "sys/module/amdgpu/version"], r"(\S+)")
    governors = _matches((top / "sys/devices/system/cpu").glob("cpufreq/policy*/scaling_governor"), r"(\S.*)")
    models = _matches((driver / "gpus").glob("*/information"), r"(?m)^Model:\s*(\S.*?)\s*$")
    return NodeSettings(
        num_cpus=os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        cpu_governor=", ".join(sorted({*governors})) or None,
        device_driver=f"nvidia {nvidia[0]}" if nvidia else f"amdgpu {amdgpu[0]}" if amdgpu else None,
        devices=", ".join(f"{models.count(model)} x {model}" for model in sorted({*models})) or None,
        container=next((variables[name] for name in CONTAINER_VARIABLES if variables.get(name)), None),
        load_before=load_average(top),
        throttled_before=read_limits(top).num_throttled,
    )


def load_average(top: Path = Path("/")) -> float | None:
    """Mean number of running and runnable processes over the last minute."""
    loads = _matches([top / "proc/loadavg"], r"^([0-9]{1,9}\.[0-9]{1,9})\s")
    return float(loads[0]) if loads else None


def _matches(paths: Iterable[Path], pattern: str) -> list[str]:
    """The group of the pattern's first match in each file that has one and can be read."""
    found = []
    for path in paths:
        with suppress(OSError, UnicodeDecodeError):
            if match := re.search(pattern, path.read_text(encoding="utf-8")):
                found.append(match[1])
    return found


def batch_job(variables: Mapping[str, str]) -> Allocation | None:
    """The batch job that these variables describe; None outside one."""
    for scheduler in SCHEDULERS.values():
        if job_id := variables.get(scheduler.id_variable):
            partition = variables.get(scheduler.queue_variable) or None
            return Allocation(scheduler=scheduler.name, job_id=job_id, partition=partition)
    return None

"""The machine around a case: its nodes and how they are read, their energy, and the batch job.

`node_facts` reads /proc and /sys without root, and never waits for a device. `analysis/record_fields.toml` says which
facts block a comparison. Those that earlier versions wrote are ignored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from dlscale.base.definitions import Frozen, where_given
from dlscale.base.schedulers import SCHEDULERS
from dlscale.base.strings import Text
from dlscale.benchmarks.systems.limits import read_limits

Source = Literal["rapl", "pm_counters", "nvml"]


class EnergyReading(Frozen):
    """One counter of a node, over the windows after the warm-up and the time between them.

    `joules` is None if the counter could not be read, and `reason` says why. It covers the whole counted part of the
    machine, including other users' load.
    """

    source: Source | None  # None: no counter on that node could be read
    joules: NonNegativeFloat | None = None
    seconds: NonNegativeFloat | None = None  # from the first reading to the last, on the node's clock
    reason: Text | None = None


class NodeEnergy(EnergyReading, extra="ignore"):
    """A reading, and where it was taken. Fields of earlier versions are ignored."""

    rank: NonNegativeInt  # that read it
    node: Text


class NodeSettings(Frozen):
    """Facts about a node, read by the first rank on it."""

    num_cpus: PositiveInt  # online hardware threads
    memory_bytes: PositiveInt
    cpu_governor: Text | None
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


def node_facts(*, top: Path = Path("/")) -> NodeSettings:
    """The facts of this node. `top` is the folder of /proc and /sys."""
    governors = set()
    for path in (top / "sys/devices/system/cpu").glob("cpufreq/policy*/scaling_governor"):
        with suppress(OSError):
            governors.add(path.read_text(errors="replace").strip())
    return NodeSettings(
        num_cpus=os.cpu_count() or 1,
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        cpu_governor=", ".join(sorted(governors)) or None,
        load_before=load_average(top),
        throttled_before=read_limits(top).num_throttled,
    )


def load_average(top: Path = Path("/")) -> float | None:
    """Mean number of running and runnable processes over the last minute."""
    with suppress(OSError):
        if match := re.match(r"[0-9]{1,9}\.[0-9]{1,9}\s", (top / "proc/loadavg").read_text(errors="replace")):
            return float(match[0])
    return None


def batch_job(variables: Mapping[str, str]) -> str | None:
    """Scheduler and id of the batch job that these variables describe; None outside one."""
    ids = {name: variables.get(scheduler.id_variable) for name, scheduler in SCHEDULERS.items()}
    return next((f"{name} {job_id}" for name, job_id in ids.items() if job_id), None)

"""What a record keeps of the machine around a case: its nodes, their energy, and the batch job."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt

from dlscale.base.definitions import Frozen
from dlscale.base.strings import Name, Text

Source = Literal["rapl", "pm_counters", "nvml", "amdsmi"]


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
    parts: Text = ""  # counted parts: "2 packages, 2 dram"; empty if it could not be read
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
    cpu_boost: bool | None
    transparent_huge_pages: Text | None
    clock_source: Text | None
    device_driver: Text | None
    devices: Text | None  # models, as named by the driver
    container: Text | None  # digest or name of the image
    switch_path: Text | None  # from the root of the fabric's tree to the node, from Slurm
    results_filesystem: Text | None  # its type: lustre, nfs4, ext4 ...
    data_filesystem: Text | None  # of the data that the launch reads; None also without data
    load_before: NonNegativeFloat | None  # over the minute before the backend was connected


class NodeFacts(NodeSettings, OnNode):
    """A node of a case."""

    load_after: NonNegativeFloat | None  # over the case's last minute, its own ranks included

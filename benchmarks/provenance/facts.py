"""What records keep of configuration, batch job and nodes. None: whoever was asked does not say."""

from __future__ import annotations

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from dlscale.benchmarks.frozen import Frozen

Setting = str | int | float | bool


class Configuration(Frozen):
    """What was asked for beyond the cell, after defaults, files and the command line; study.json has it whole."""

    study_digest: str  # of the resolved study
    system_digest: str  # of the system's file as it was understood
    skip_bad: bool
    budget_seconds: PositiveFloat
    rules: dict[str, Setting]  # how long to warm up and to measure
    fabric: dict[str, Setting]  # as the system's file states it, in base units; empty where it states none


class Allocation(Frozen):
    """The batch job that a launch ran in."""

    scheduler: str
    job_id: str
    partition: str | None
    num_nodes: PositiveInt | None
    nodes: str | None  # as the scheduler lists them, "sha256:..." where that is long


class NodeFacts(Frozen):
    """A node as the first rank on it found it."""

    rank: NonNegativeInt  # who looked
    node: str
    num_cpus: PositiveInt  # hardware threads that are online
    memory_bytes: PositiveInt
    cache_bytes: PositiveInt | None  # of all caches from the second level on
    numa_domains: PositiveInt | None
    cpu_governor: str | None
    cpu_boost: bool | None
    transparent_huge_pages: str | None
    clock_source: str | None
    device_driver: str | None
    devices: str | None  # their models, as the driver names them
    container: str | None  # digest or name of its image
    switch_path: str | None  # from the top of the fabric's tree to the node, as Slurm knows it
    results_filesystem: str | None  # its type: lustre, nfs4, ext4 ...
    data_filesystem: str | None  # of what the launch reads; None also where that is nothing
    load_before: NonNegativeFloat | None  # over the minute before the backend was connected
    load_after: NonNegativeFloat | None  # over the case's last minute, its own ranks included

"""A machine as its TOML file describes it, with its software environments.

A file has nodes, devices, network, file system, partitions, placement, and named environments; every number has a
source.
"""

from __future__ import annotations

import fnmatch
import os
import platform
import re
from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationInfo,
    field_validator,
)

from dlscale.base import definitions
from dlscale.base.definitions import Frozen, where_given
from dlscale.base.launchers import LAUNCHERS, Flavour
from dlscale.base.quantities import Bandwidth, Bytes, Count, Fact, Flops, Frequency, Seconds, TextFact
from dlscale.base.schedulers import SCHEDULERS
from dlscale.base.strings import Name, Text
from dlscale.collectives.capabilities import with_capability


def _one_of(*names: str) -> Any:
    return Field(pattern=f"^({'|'.join(names)})$")


Scheduler = Annotated[str, _one_of("none", *SCHEDULERS)]
DETECT = "detect"  # mpiexec where the environment has MPI, else torchrun
Launcher = Annotated[str, _one_of(*LAUNCHERS, DETECT)]
BETWEEN_GPUS = with_capability("between_gpus")
GPU_BACKEND = BETWEEN_GPUS[0]  # where nothing says which
DataType = Annotated[str, _one_of("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")]
# Options that scripts get from the study; the short ones mean the same to Slurm, Cobalt and Flux.
OF_SCRIPTS = re.compile(r"\s*(#|(--(nodes|time|account|ntasks|output|job-name)|-[NtAnoJ])([ =]|$))")


def _check_directive(text: str) -> str:
    if OF_SCRIPTS.match(text):
        raise ValueError(f"{text!r} is for the script or the study to say (--nodes, --walltime ...)")
    return text


Directive = Annotated[Text, AfterValidator(_check_directive)]


class Recognised(Frozen):
    """What identifies a system: any entry is enough. Host names may have * and ?."""

    hostnames: list[Text] = []
    variables: dict[Text, Text] = {}


class Node(Frozen):
    """One node. Peaks are per node.

    `threads_per_core` are the hardware threads that the launcher counts per core; None: one.
    """

    cores: Count | Literal["detect"]
    threads_per_core: Count | None = None
    cpu_model: TextFact | None = None
    cpu_frequency: Frequency | None = None
    numa_domains: Count | None = None
    memory: Bytes | None = None
    memory_bandwidth: Bandwidth | None = None
    peak: dict[DataType, Flops] = {}


class Devices(Frozen):
    """A node's accelerators, as frameworks count them; memory and peaks are of one, `link` what it sends to others.

    `backend` exchanges between them, where a study names none.
    """

    per_node: Count
    model: TextFact
    backend: Annotated[str, _one_of(*BETWEEN_GPUS)] = where_given(GPU_BACKEND)
    memory: Bytes | None = None
    memory_bandwidth: Bandwidth | None = None
    link: Bandwidth | None = where_given(None)
    peak: dict[DataType, Flops] = {}


class Fabric(Frozen):
    """The network between nodes. Bandwidth is a node's injection per direction, latency a small message's."""

    name: TextFact
    topology: TextFact | None = None
    bandwidth: Bandwidth | None = None
    latency: Seconds | None = None
    nics_per_node: Count | None = None
    nodes_per_router: Count | None = None
    nodes_per_group: Count | None = None
    groups: Count | None = None
    bisection: Bandwidth | None = None


class Filesystem(Frozen):
    """The folder for studies' records, a path that may contain $VARIABLES, and its bandwidth."""

    results: Text
    bandwidth: Bandwidth | None = None


class Partition(Frozen):
    """Nodes that the scheduler allocates together.

    `directives` are scheduler options, one per line of a script, without the marker; `launch_options` are the
    launcher's. The partition's name is dlscale's own: a directive requests the queue.
    """

    num_nodes: Count
    min_nodes: Count | None = None  # per job; smaller jobs are refused or billed as if they had as many
    max_nodes: Count | None = None  # per job; None: all
    max_walltime: Seconds | None = None  # None: unknown, and --walltime is required
    directives: list[Directive] = []
    launch_options: list[Text] = []


class Placement(Frozen):
    """The placement of ranks on a node.

    The launcher gets each rank's number of hardware threads: cores / ranks per node, rounded down, times threads per
    core. `reserved_cores` are left to the operating system.
    """

    ranks_per_node: PositiveInt
    reserved_cores: NonNegativeInt = 0
    launch_options: list[Text] = []
    variables: dict[Text, Text] = {}


class Defaults(Frozen):
    """What a study does here where neither the user nor a study file of the user's says; `reason` has the source.

    Without `device` it is the node's devices where there are any. `preset`, `local_batch` (of weak scaling) and `data`
    belong together: a user who names another preset gets none of the three.
    """

    device: Literal["cpu", "gpu"] | None = None
    frameworks: list[Text] | None = None
    preset: Text | None = None
    local_batch: PositiveInt | None = None
    data: Literal["synthetic"] | None = None
    reason: Text


class Environment(Frozen):
    """A Python environment with its MPI. `prefix = "current"` is the one that dlscale runs in.

    On systems with a scheduler, job scripts contain `directives` after the partition's, load `modules` and run
    `commands` first; `python` is then the interpreter's name or path.
    """

    prefix: Text  # a path that may name $VARIABLES
    python: Text | None = None  # default: bin/python in the prefix
    mpi: Flavour | Literal["detect"] = "detect"
    mpiexec: Text | None = None  # default: the one in the environment, for "current" else the one on PATH
    variables: dict[Text, Text] = {}  # {prefix} in a value is the environment's absolute folder
    directives: list[Text] = []
    modules: list[Text] = []  # names, or another verb of `module` with its arguments: "unload darshan"
    commands: list[Text] = []
    setup: Text  # the command that makes it


_NEEDED = {  # of every system; the other ones where there is a scheduler
    "environments": "[environments.current] with prefix and setup",
    "filesystem": '[filesystem] with results = "$SCRATCH/dlscale"',
    "partitions": "[partitions.main] with num_nodes, max_walltime and directives",
    "placement": "[placement] with ranks_per_node = 1, or as many as a node has GPUs",
}


class System(Frozen):
    """A machine: its hardware, the source of each number, and how programs are started on it."""

    model_config = ConfigDict(validate_default=True)

    name: Name
    title: Text
    sources: dict[Text, Text] = {}
    state: Literal["in service", "retired", "example"] = "in service"
    retired: TextFact | None = where_given(None)  # what became of it, after "was": switched off in May 2023
    scheduler: Scheduler
    launcher: Launcher
    recognised: Recognised = Recognised()
    num_nodes: Count | None = None
    node: Node
    devices: Devices | None = None
    fabric: Fabric | None = None
    filesystem: Filesystem | None = None
    partitions: dict[Text, Partition] = {}
    partition: Text | None = None  # the default one
    needs_account: bool = False
    placement: Placement | None = None  # None: --ranks says how many ranks share the only node
    open_ports: bool = False  # dlscale collectives may measure libraries with unauthenticated sockets
    defaults: Defaults | None = None
    # Workload -> a node's time per sample, as published, at the published size.
    sample_times: dict[Text, Seconds] = where_given({})
    environments: dict[Text, Environment]

    @field_validator("*")
    @classmethod
    def _check(cls, value: Any, info: ValidationInfo) -> Any:
        """Rules that join fields, each at the last field that it needs: so pydantic lists all mistakes at once."""
        field, known = str(info.field_name), info.data
        scheduler, partitions = known.get("scheduler", "none"), known.get("partitions", {})
        if field == "partition" and value is None and len(partitions) == 1:
            return next(iter(partitions))
        problems = [
            f"{place} names source {fact.source!r}, which [sources] does not have".strip()
            for place, fact in facts(value)
            if fact.source not in known.get("sources", {fact.source})
        ]
        if field in _NEEDED and not value and (scheduler != "none" or field == "environments"):
            problems.append(f"it is missing; add {_NEEDED[field]}")
        elif field == "launcher":
            row = LAUNCHERS.get(value)  # none where it is detected, which is done without a scheduler
            jobs = {"none"} if not row else {*row.schedulers} or {*SCHEDULERS}
            jobs |= {"none"} if row and not row.needs_job else set()
            if scheduler not in jobs:
                problems.append(f"{value} starts no programs where scheduler is {scheduler}")
        elif field == "node" and value.cores == "detect" and scheduler != "none":
            problems.append("cores must be a number on a system with a scheduler")
        elif field == "partition" and partitions and value not in partitions:
            problems.append(f"{value!r} is not one of: {', '.join(partitions)}")
        if problems:
            raise ValueError("; ".join(problems))
        return value

    @property
    def has_jobs(self) -> bool:
        """Whether a scheduler runs what is measured here; else it runs at once, on this machine."""
        return self.scheduler != "none"

    def num_cores(self) -> int:
        """Cores per node that a study may use: as stated, or those this process may run on."""
        if self.node.cores == "detect":
            return len(os.sched_getaffinity(0))
        return self.node.cores.value - (self.placement.reserved_cores if self.placement else 0)

    def has_spare_core(self, ranks_per_node: int) -> bool:
        """Whether a rank's cores have room for a thread beside those that its placement computes with."""
        cores = self.num_cores() // ranks_per_node
        stated = self.placement.variables.get("OMP_NUM_THREADS", "") if self.placement else ""
        return cores > (int(stated) if stated.isdigit() else cores)

    @property
    def default_device(self) -> Literal["cpu", "gpu"]:
        """What ranks compute on unless they are told otherwise: what the nodes are paid for."""
        stated = self.defaults.device if self.defaults else None
        return stated or ("gpu" if self.devices else "cpu")

    def is_here(self) -> bool:
        """Whether studies are measured on the system from here; never where it is retired, always without jobs."""
        return not self.has_jobs or (self.state != "retired" and self.recognises())

    @property
    def elsewhere(self) -> str:
        """Why studies on the system are only rehearsed where it is not here."""
        if self.state == "retired":
            return f"{self.name} {f'was {self.retired.value}' if self.retired else 'is retired'}"
        named = self.recognised.hostnames or self.recognised.variables
        return f"this machine is not {self.name}" + ("" if named else ", whose file has no [recognised]")

    def recognises(self, hostname: str | None = None, variables: Mapping[str, str] = os.environ) -> bool:
        """Whether a host of that name, with these variables, is one of the system's; without a name: this one."""
        host = hostname or platform.node()
        return any(fnmatch.fnmatchcase(host, pattern) for pattern in self.recognised.hostnames) or any(
            fnmatch.fnmatchcase(variables.get(name, ""), value)
            for name, value in self.recognised.variables.items()
        )


def load_system(name: str) -> System:
    """The system of that name, or in that TOML file. Raises UsageError."""
    return definitions.load(System, name) if name.endswith(".toml") else _shipped(name)


# Files of dlscale's do not change while a program runs; claims load some of them a hundred times.
_shipped = cache(partial(definitions.load, System, folder="systems"))


def facts(value: object, place: str = "") -> Iterator[tuple[str, Fact]]:
    """Every fact in a system or a part of it, with its place in the file: ("node.memory", ...)."""
    if isinstance(value, Fact):
        yield place, value
    elif isinstance(value, BaseModel | dict):
        items = value if isinstance(value, dict) else {n: getattr(value, n) for n in type(value).model_fields}
        for name, item in items.items():
            yield from facts(item, f"{place}.{name}" if place else name)

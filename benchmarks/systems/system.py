"""A machine as its TOML file describes it, with its software environments.

A file has nodes, devices, network, file system, partitions, placement, policy, and named environments; every number
has a source.
"""

from __future__ import annotations

import fnmatch
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, NonNegativeInt, PositiveInt, model_validator

from dlscale.base import definitions
from dlscale.base.batch import NAMES as SCHEDULERS
from dlscale.base.definitions import Frozen, where_given
from dlscale.base.errors import UsageError, did_you_mean
from dlscale.base.launchers import LAUNCHERS, Flavour
from dlscale.base.quantities import Bandwidth, Bytes, Count, Fact, Flops, Frequency, Seconds, TextFact
from dlscale.base.strings import Name, Text
from dlscale.collectives.capabilities import with_capability


def _among(*names: str) -> AfterValidator:
    def check(name: str) -> str:
        if name not in names:
            raise ValueError(f"{name!r} is not one of: {', '.join(names)}")
        return name

    return AfterValidator(check)


Scheduler = Annotated[str, _among("none", *SCHEDULERS)]
DETECT = "detect"  # mpiexec where the environment has MPI, else torchrun
Launcher = Annotated[str, _among(*LAUNCHERS, DETECT)]
GPU_BACKEND = "nccl"  # where nothing says which
DataType = Annotated[str, _among("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")]
# Options that scripts get from the study; the short ones mean the same to Slurm, Cobalt and Flux.
OF_SCRIPTS = frozenset({
    *("--nodes", "--time", "--account", "--ntasks", "--output", "--job-name"),
    *("-N", "-t", "-A", "-n", "-o", "-J"),
})  # fmt: skip


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
    backend: Annotated[str, _among(*with_capability("between_gpus"))] = where_given(GPU_BACKEND)
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
    directives: list[Text] = []
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


class Policy(Frozen):
    """How a study is divided into jobs.

    `shared`: one job runs several node counts on nested subsets of its nodes, at most `max_sizes` of them within a
    factor of `max_factor`, and neighbouring jobs share one size. `chained`: one job per node count, the largest first,
    each after the one before.
    """

    jobs: Literal["shared", "chained"] = "shared"
    max_sizes: PositiveInt = 4
    max_factor: PositiveInt = 8
    margin: float = 1.25  # a job's wall time / its estimate


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
    `commands` first; `python` is then the interpreter's name or path. `stage` are files and folders that every node
    copies to `stage_folder`, so that thousands of ranks do not import from one file system.
    """

    prefix: Text  # a path that may name $VARIABLES
    python: Text | None = None  # default: bin/python in the prefix
    mpi: Flavour | Literal["detect"] = "detect"
    mpiexec: Text | None = None  # default: the one in the environment, for "current" else the one on PATH
    variables: dict[Text, Text] = {}  # {prefix} in a value is the environment's absolute folder
    directives: list[Text] = []
    modules: list[Text] = []  # names, or another verb of `module` with its arguments: "unload darshan"
    commands: list[Text] = []
    stage: list[Text] = []
    stage_folder: Text = "/dev/shm"  # noqa: S108 - on compute nodes, named in the system's file
    setup: Text  # the command that makes it


class System(Frozen):
    """A machine: its hardware, the source of each number, and how programs are started on it."""

    name: Name
    aliases: list[Text] = []
    title: Text
    state: Literal["in service", "retired", "example"] = "in service"
    retired: TextFact | None = where_given(None)  # what became of it, after "was": switched off in May 2023
    scheduler: Scheduler
    launcher: Launcher
    recognised: Recognised = Recognised()
    sources: dict[Text, Text] = {}
    num_nodes: Count | None = None
    node: Node
    devices: Devices | None = None
    fabric: Fabric | None = None
    filesystem: Filesystem | None = None
    partitions: dict[Text, Partition] = {}
    partition: Text | None = None  # the default one
    needs_account: bool = False
    placement: Placement | None = None  # None: --ranks says how many ranks share the only node
    policy: Policy = Policy()
    defaults: Defaults | None = None
    # Workload -> a node's time per sample, as published, at the published size.
    sample_times: dict[Text, Seconds] = where_given({})
    environments: dict[Text, Environment]

    @model_validator(mode="before")
    @classmethod
    def _take_only_partition(cls, content: Any) -> Any:
        """The default partition is the only one where there is one."""
        if isinstance(content, dict) and isinstance(content.get("partitions"), dict):
            only = list(content["partitions"])
            return {"partition": only[0]} | content if len(only) == 1 else content
        return content

    @model_validator(mode="after")
    def _check(self) -> System:
        if problems := list(self._problems()):
            raise ValueError("; ".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        for place, fact in facts(self):
            if fact.source not in self.sources:
                yield f"{place} names source {fact.source!r}, which [sources] does not have"
        if (self.state == "retired") != (self.retired is not None):
            given = "with" if self.retired else "without"
            yield f"state {self.state!r} {given} retired, which says when it was switched off"
        if not self.environments:
            yield "no environment; add [environments.current] with prefix and setup"
        if self.scheduler != "none":
            yield from self._problems_of_jobs()
            for name, partition in self.partitions.items():
                yield from self._problems_of_partition(f"partitions.{name}", partition)

    def _problems_of_jobs(self) -> Iterator[str]:
        fitting = () if self.launcher == DETECT else LAUNCHERS[self.launcher].schedulers
        if self.launcher == DETECT:
            yield (
                f"launcher {DETECT} with scheduler {self.scheduler}; name the one that its centre documents"
            )
        elif fitting and self.scheduler not in fitting:
            yield f"launcher {self.launcher} does not start programs in jobs of {self.scheduler}"
        if not self.partitions:
            yield "no partition; add [partitions.main] with num_nodes, max_walltime and directives"
        elif self.partition is None:
            yield f"no default partition; add partition = {next(iter(self.partitions))!r} above the sections"
        elif self.partition not in self.partitions:
            yield f"partition {self.partition!r} is not one of: {', '.join(self.partitions)}"
        if not self.placement:
            yield "no [placement]; add it with ranks_per_node = 1, or as many as a node has GPUs"
        if not self.filesystem:
            yield 'no [filesystem]; add it with results = "$SCRATCH/dlscale"'
        if self.node.cores == "detect":
            yield "node.cores must be a number on a system with a scheduler"
        elif self.placement and self.placement.ranks_per_node > self.num_cores():
            yield (
                f"placement.ranks_per_node is {self.placement.ranks_per_node}, but a node has {self.num_cores()} "
                "cores for them"
            )

    def _problems_of_partition(self, place: str, partition: Partition) -> Iterator[str]:
        nodes = partition.num_nodes.value
        most = partition.max_nodes.value if partition.max_nodes else nodes
        if self.num_nodes and nodes > self.num_nodes.value:
            yield f"{place}.num_nodes is {nodes}, but the machine has {self.num_nodes.value}"
        if most > nodes:
            yield f"{place}.max_nodes is {most}, but the partition has {nodes} nodes"
        if partition.min_nodes and partition.min_nodes.value > most:
            yield f"{place}.min_nodes is {partition.min_nodes.value}, but a job may have {most} nodes"
        for directive in partition.directives:
            if directive.startswith("#"):
                yield f"{place}.directives: {directive!r} has the scheduler's marker, which the script adds"
            elif re.split(r"[ =]", directive.strip())[0] in OF_SCRIPTS:
                yield f"{place}.directives: {directive!r} is for the study to say (--nodes, --walltime ...)"

    @property
    def has_jobs(self) -> bool:
        """Whether a scheduler runs what is measured here; else it runs at once, on this machine."""
        return self.scheduler != "none"

    @property
    def sample_seconds(self) -> dict[str, float]:
        """Workload -> published seconds per sample of a node at the published size, where there is such a number."""
        return {workload: fact.number for workload, fact in self.sample_times.items()}

    @property
    def link_rate(self) -> float | None:
        """Bytes per second of a node in each direction, where they are stated."""
        stated = self.fabric and self.fabric.bandwidth
        return stated.number if stated else None

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """An environment on this machine: the paths of its folder, Python, and mpiexec or other launcher.

    Where nothing says that there must be an mpiexec, there may be none at that path.
    """

    name: str
    prefix: Path
    python: Path
    mpiexec: Path
    mpi: Flavour | Literal["detect"]
    variables: dict[str, str]


def load_system(name: str) -> System:
    """The system of that name or alias, or in that TOML file. Raises UsageError."""
    if name.endswith(".toml"):
        return definitions.load(System, name, folder="systems")
    if name in definitions.names("systems"):
        return _shipped(name)
    known = [_shipped(other) for other in definitions.names("systems")]
    for system in known:
        if name in system.aliases:
            return system
    names = [
        f"{system.name} ({', '.join(system.aliases)})" if system.aliases else system.name for system in known
    ]
    hint = did_you_mean(name, (each for system in known for each in (system.name, *system.aliases)))
    raise UsageError(
        f"no system {name!r}{hint}; choose one of: {', '.join(names)}, or give the path of a .toml file"
    )


@cache
def _shipped(name: str) -> System:
    """Of our own files, which nobody writes while a program runs; claims ask for some of them a hundred times."""
    return definitions.load(System, name, folder="systems")


def facts(part: BaseModel, place: str = "") -> Iterator[tuple[str, Fact]]:
    """Every fact in a system or a part of it, with its place in the file: ("node.memory", ...)."""
    for name in type(part).model_fields:
        yield from _facts_in(getattr(part, name), f"{place}.{name}" if place else name)


def _facts_in(value: object, place: str) -> Iterator[tuple[str, Fact]]:
    if isinstance(value, Fact):
        yield place, value
    elif isinstance(value, BaseModel):
        yield from facts(value, place)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _facts_in(item, f"{place}.{name}")


def default_environment(system: System) -> str:
    """The environment that dlscale runs in if the system lists it, else the first."""
    for name, environment in system.environments.items():
        if environment.prefix != "current" and _folder(environment) == Path(sys.prefix):
            return name
    if "current" in system.environments and not system.has_jobs:
        return "current"
    return next(iter(system.environments))


def _folder(environment: Environment) -> Path:
    """The absolute path of its folder. That beside dlscale's code is the same, whatever the working folder is."""
    path = Path(os.path.expandvars(environment.prefix))
    own = Path(__file__).resolve().parents[2] / path
    return own if own == Path(sys.prefix) else path.absolute()


def find_installation(system: System, name: str) -> Installation:
    """The paths of an environment. Raises UsageError if it is unknown or not set up.

    Python is the one the file names, if this node has it, else the one in the environment's folder.
    """
    definitions.one_of(f"environment on {system.name}", name, system.environments)
    environment = system.environments[name]
    current = environment.prefix == "current"
    prefix = Path(sys.prefix) if current else _folder(environment)
    named = shutil.which(os.path.expandvars(environment.python)) if environment.python else None
    python = Path(sys.executable) if current else Path(named or prefix / "bin" / "python").absolute()
    if not python.exists():
        unset = re.findall(r"\$\{?(\w+)", os.path.expandvars(environment.prefix))
        raise UsageError(
            f"environment {name} of {system.name} has no Python at {environment.prefix}/bin/python"
            f"{f' (${unset[0]} is not set)' if unset else ''}; set it up with: {environment.setup}"
        )
    wanted = environment.mpiexec or str(prefix / "bin" / "mpiexec")
    launcher = shutil.which(wanted) or (
        shutil.which("mpiexec") if current and not environment.mpiexec else None
    )
    if system.launcher == "mpiexec":
        launcher = launcher or (shutil.which("mpiexec") if system.has_jobs else None)  # the modules'
    elif system.has_jobs:
        command, *_ = LAUNCHERS[system.launcher].per_node(1)
        launcher = shutil.which(command) or command
    else:
        launcher = launcher or wanted
    if not launcher:
        raise UsageError(
            f"environment {name} of {system.name} has no mpiexec at {environment.mpiexec or 'bin/mpiexec'}; "
            f"set it up with: {environment.setup}"
        )
    return Installation(
        name=name,
        prefix=prefix,
        python=python,
        mpiexec=Path(launcher).absolute(),
        mpi=environment.mpi,
        variables={k: v.replace("{prefix}", str(prefix)) for k, v in environment.variables.items()},
    )

"""Slurm's partitions, nodes and limits: `scontrol show config|partition|node`, one line each (-o)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from dlscale.base.launchers import Flavour

# Plugins of srun that each MPI understands, where Slurm's default starts unconnected processes.
UNSET_MEMORY = 1  # slurm.conf: what RealMemory is where a site does not set it; Slurm's megabytes are MiB
MOST_DIGITS = 18  # of a number of cores, megabytes or GPUs
_PLUGINS = {"mpich": ("pmi2", "cray_shasta"), "intelmpi": ("pmi2",), "openmpi": ("pmix",)}
_LIMITS = "Limits of QOS and accounts were not read (sacctmgr show qos, sacctmgr show assoc)."


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """Nodes that are alike. None: unknown."""

    cores: int
    threads_per_core: int | None = None
    sockets: int
    memory_gib: float | None = None
    num_gpus: int = 0
    gpu_model: str | None = None
    reserved_cores: int = 0

    def __str__(self) -> str:
        parts = [f"{self.cores} cores", f"{self.memory_gib:.1f} GiB" if self.memory_gib else ""]
        parts.append(f"{self.num_gpus} {self.gpu_model or 'GPUs'}" if self.num_gpus else "")
        return ", ".join(filter(None, parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmPartition:
    """A partition that is up. `kinds` of its nodes, the most frequent first; None: no limit."""

    name: str
    num_nodes: int
    max_nodes: int | None = None
    max_seconds: int | None = None
    default_seconds: int | None = None
    kinds: tuple[NodeKind, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Slurm:
    """Slurm's configuration. `default` is the partition of jobs that name none."""

    version: str
    cluster: str | None
    partitions: tuple[SlurmPartition, ...]
    default: str | None
    launch_options: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def partition(self) -> SlurmPartition:
        """The default partition, or the largest one where there is no default."""
        named = [partition for partition in self.partitions if partition.name == self.default]
        return named[0] if named else max(self.partitions, key=lambda partition: partition.num_nodes)

    @property
    def kind(self) -> NodeKind | None:
        """The nodes that most jobs get; None if Slurm does not describe them."""
        return self.partition.kinds[0] if self.partition.kinds else None


def read_slurm(run: Callable[..., str], flavour: Flavour | None) -> Slurm | None:
    """Slurm's partitions; None if there is no Slurm, or its controller does not answer.

    `run(program, *arguments)` is what a command prints, empty if it fails.
    """
    config = parse_config(run("scontrol", "show", "config"))
    output = run("scontrol", "show", "partition", "-o") if config else ""
    nodes = parse_nodes(run("scontrol", "show", "node", "-o")) if output else []
    partitions = parse_partitions(output, nodes)
    if not partitions:
        return None
    options, remark = mpi_options(config, run("srun", "--mpi=list"), flavour)
    return Slurm(
        version=config.get("SLURM_VERSION", ""),
        cluster=config.get("ClusterName"),
        partitions=tuple(partitions),
        default=default_partition(output),
        launch_options=options,
        remarks=(remark, _LIMITS),
    )


def parse_config(output: str) -> dict[str, str]:
    """Name and value of the lines "ClusterName             = cori"; values that are not set are left out."""
    pairs = re.findall(r"^(\w+)\s+= (.*)$", output, re.MULTILINE)
    return {name: text.strip() for name, text in pairs if text.strip() not in ("", "(null)")}


def parse_nodes(output: str) -> list[tuple[list[str], NodeKind]]:
    """The partitions and the kind of each node."""
    nodes = []
    for fields in map(_fields, output.splitlines()):
        sockets, per_socket = _number(fields.get("Sockets")), _number(fields.get("CoresPerSocket"))
        if not sockets or not per_socket:
            continue
        num_gpus, model = parse_gres(fields.get("Gres", ""))
        memory = _number(fields.get("RealMemory"))
        kind = NodeKind(
            cores=sockets * per_socket,
            threads_per_core=_number(fields.get("ThreadsPerCore")),
            sockets=sockets,
            memory_gib=None if memory in (None, UNSET_MEMORY) else memory / 1024,
            num_gpus=num_gpus,
            gpu_model=model,
            reserved_cores=_number(fields.get("CoreSpecCount")) or 0,
        )
        nodes.append((fields.get("Partitions", "").split(","), kind))
    return nodes


def parse_partitions(output: str, nodes: list[tuple[list[str], NodeKind]]) -> list[SlurmPartition]:
    """The partitions that are up and have nodes, each once."""
    partitions: dict[str, SlurmPartition] = {}
    for fields in map(_fields, output.splitlines()):
        name = fields.get("PartitionName")
        kinds = Counter(kind for names, kind in nodes if name in names)
        # Slurm's total counts nodes that will come later (State=FUTURE); they are not among those described.
        num_nodes = kinds.total() or _number(fields.get("TotalNodes"))
        if name and num_nodes and fields.get("State") == "UP":
            partitions[name] = SlurmPartition(
                name=name,
                num_nodes=num_nodes,
                max_nodes=_number(fields.get("MaxNodes")),
                max_seconds=parse_clock(fields.get("MaxTime", "")),
                default_seconds=parse_clock(fields.get("DefaultTime", "")),
                kinds=tuple(kind for kind, _ in kinds.most_common()),
            )
    return list(partitions.values())


def default_partition(output: str) -> str | None:
    """The partition of jobs that name none."""
    rows = map(_fields, output.splitlines())
    return next((fields.get("PartitionName") for fields in rows if fields.get("Default") == "YES"), None)


def parse_gres(text: str) -> tuple[int, str | None]:
    """Number and type of GPUs in "gpu:a100:4(S:0-3),craynetwork:4"; None where the type is not given."""
    counts: Counter[str | None] = Counter()
    for word in re.sub(r"\([^)]*\)", "", text).split(","):
        kind, *rest = word.split(":")
        if kind == "gpu":
            count = int(rest.pop()) if rest and _number(rest[-1]) is not None else 1
            counts[rest[0] if rest else None] += count
    return counts.total(), max(counts, key=lambda model: counts[model], default=None)


def parse_clock(text: str) -> int | None:
    """Seconds of [days-]hours:minutes:seconds; None for UNLIMITED, NONE and whatever else it may be."""
    clock = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", text.strip())
    if not clock:
        return None
    days, hours, minutes, seconds = (int(word or 0) for word in clock.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds or None


def mpi_options(config: dict[str, str], plugins: str, flavour: Flavour | None) -> tuple[tuple[str, ...], str]:
    """Options of srun for that MPI, and a remark: srun connects ranks by MpiDefault unless --mpi says how."""
    default = config.get("MpiDefault", "none")
    if default != "none":
        return (), f"srun connects ranks by {default} (MpiDefault); srun --mpi=list shows what else it knows."
    for plugin in _PLUGINS[flavour] if flavour else ():
        if plugin in plugins.split():
            return (f"--mpi={plugin}",), f"srun has no MpiDefault; {flavour} understands {plugin}."
    return (), "srun has no MpiDefault: ranks start unconnected unless launch_options has --mpi=."


def _fields(line: str) -> dict[str, str]:
    """The first value of each Name=value; OS and Reason, which come later and have blanks, lose their tails."""
    fields: dict[str, str] = {}
    for name, text in re.findall(r"\b(\w+)=(\S*)", line):
        fields.setdefault(name, text)
    return fields


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) <= MOST_DIGITS else None

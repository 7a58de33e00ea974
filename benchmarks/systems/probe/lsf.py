"""LSF: `lsid`, `bparams`, `bqueues -l` and `lshosts -w`."""

from __future__ import annotations

import re

from dlscale.benchmarks.systems.probe.batch import Batch, NodeKind, Queue, by_frequency
from dlscale.benchmarks.systems.probe.node import Host

_MEMORY = {"M": 2**10, "G": 1, "T": 1 / 2**10}  # how many there are in a GiB
_REMARKS = (
    "All hosts that run jobs were counted for every queue: take off those for log-in and launching.",
    "LSF's ncpus may be processors, cores or threads (EGO_DEFINE_NCPUS): compare node.cores with lscpu there.",
)


def read_lsf(host: Host) -> Batch | None:
    """LSF's queues; None if there is no LSF, or it does not answer."""
    said = host.run("lsid") or ""
    cluster = re.search(r"My cluster name is (\S+)", said)
    if not cluster:
        return None
    kinds = parse_hosts(host.run("lshosts", "-w") or "")
    queues = parse_queues(host.run("bqueues", "-l") or "", kinds)
    if not queues:
        return None
    version = re.search(r"LSF.*?(\d+\.[\d.]*\d)", said)
    return Batch(
        scheduler="lsf",
        launcher="jsrun" if host.find("jsrun") else "mpiexec",
        told_by=f"lsid, bparams, bqueues -l and lshosts -w of LSF {version[1] if version else ''}".strip(),
        queues=tuple(queues),
        default=default_queue(host.run("bparams") or ""),
        cluster=cluster[1],
        remarks=_REMARKS,
    )


def parse_hosts(output: str) -> list[NodeKind]:
    """The hosts that run jobs: HOST_NAME type model cpuf ncpus maxmem maxswp server RESOURCES."""
    found = []
    for line in output.splitlines()[1:]:
        words = line.split()
        if len(words) > 7 and words[4].isdigit() and int(words[4]) and words[7] != "No":
            memory = re.fullmatch(r"([\d.]+)([MGT])", words[5])
            size = float(memory[1]) / _MEMORY[memory[2]] if memory else None
            found.append(NodeKind(cores=int(words[4]), memory_gib=size))
    return found


def parse_queues(output: str, kinds: list[NodeKind]) -> list[Queue]:
    """The queues that are open and active, with the limits on their run time (in minutes)."""
    found = []
    for block in re.split(r"^QUEUE: ", output, flags=re.MULTILINE)[1:]:
        name = block.split(maxsplit=1)[0]
        if "Open:Active" not in block:
            continue
        defaults, _, maxima = block.rpartition("MAXIMUM LIMITS:")
        found.append(
            Queue(
                name=name,
                num_nodes=len(kinds) or None,
                max_seconds=_run_limit(maxima),
                default_seconds=_run_limit(defaults.partition("DEFAULT LIMITS:")[2]),
                kinds=by_frequency(kinds),
                directives=(f"-q {name}",),
            )
        )
    return found


def default_queue(output: str) -> str | None:
    """The first of "Default Queues:  normal interactive" in what bparams prints."""
    found = re.search(r"^Default Queues:\s+(\S+)", output, re.MULTILINE)
    return found[1] if found else None


def _run_limit(limits: str) -> int | None:
    """RUNLIMIT stands over its value, "2160.0 min of host1"."""
    found = re.search(r"^\s*RUNLIMIT\s*\n\s*([\d.]+) min", limits, re.MULTILINE)
    return round(float(found[1]) * 60) or None if found else None

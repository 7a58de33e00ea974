"""Cobalt: `qstat -Q`, a table under a line of =."""

from __future__ import annotations

import re

from dlscale.benchmarks.systems.probe.batch import Batch, Queue, parse_clock
from dlscale.benchmarks.systems.probe.node import Host

_REMARKS = (
    "Cobalt does not tell its nodes' cores and memory: what stands under [node] is this machine's own.",
    "Cobalt's TotalNodes is a limit of the queue and may be larger than the machine.",
)


def read_cobalt(host: Host) -> Batch | None:
    """Cobalt's queues; None if qstat is not Cobalt's, or there is none."""
    version = host.run("qstat", "--version") or ""
    queues = parse_queues(host.run("qstat", "-Q") or "") if "cobalt" in version.lower() else []
    if not queues:
        return None
    return Batch(
        scheduler="cobalt",
        launcher="aprun" if host.find("aprun") else "mpiexec",
        told_by="qstat -Q of Cobalt",
        queues=tuple(queues),
        default="default" if any(queue.name == "default" for queue in queues) else None,
        remarks=_REMARKS,
    )


def parse_queues(output: str) -> list[Queue]:
    """The queues that run jobs. Columns stand below their titles, and which there are differs between versions."""
    lines = output.splitlines()
    rule = next((number for number, line in enumerate(lines) if re.fullmatch(r"={20,}\s*", line)), 0)
    if not rule:
        return []
    starts = [(found[0], found.start()) for found in re.finditer(r"\S+", lines[rule - 1])]
    found = []
    for line in lines[rule + 1 :]:
        ends = [start for _, start in starts[1:]] + [len(line)]
        told = {title: line[start:end].strip() for (title, start), end in zip(starts, ends, strict=True)}
        name = told.get("Name") or told.get("Queue")
        if name and told.get("State") == "running":
            total = told.get("TotalNodes", "")
            found.append(
                Queue(
                    name=name,
                    num_nodes=int(total) or None if total.isdigit() else None,
                    max_seconds=parse_clock(told.get("MaxTime", "")),
                    directives=(f"-q {name}",),
                )
            )
    return found

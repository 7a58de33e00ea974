"""Flux: `flux queue list` with the fields of flux-queue(1)."""

from __future__ import annotations

import re

from dlscale.benchmarks.systems.probe.batch import Batch, NodeKind, Queue
from dlscale.benchmarks.systems.probe.node import Host

FIELDS = (
    "queuem",
    "submission",
    "defaults.timelimit!F",
    "limits.timelimit!F",
    "limits.max.nnodes",
    "resources.all.nnodes",
    "resources.all.ncores",
    "resources.all.ngpus",
)
FORMAT = "|".join(f"{{{field}}}" for field in FIELDS)
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def read_flux(host: Host) -> Batch | None:
    """The queues of the Flux instance that this shell belongs to; None if there is none."""
    queues, default = parse_queues(host.run("flux", "queue", "list", "-n", "-o", FORMAT) or "")
    if not queues:
        return None
    return Batch(
        scheduler="flux",
        launcher="flux",
        told_by="flux queue list",
        queues=tuple(queues),
        default=default,
        remarks=("Cores and GPUs per node are the queue's totals divided by its nodes.",),
    )


def parse_queues(output: str) -> tuple[list[Queue], str | None]:
    """The queues that take jobs and have nodes, and the default one, which has a * at its name."""
    found, default = [], None
    for line in output.splitlines():
        words = [word.strip() for word in line.split("|")]
        if len(words) != len(FIELDS) or words[1] != "enabled":
            continue
        nodes, cores, gpus = (int(word) if word.isdigit() else 0 for word in words[5:])
        if not nodes or not cores:
            continue
        name = words[0].rstrip("*") or "default"  # without named queues there is one that has no name
        default = name if words[0].endswith("*") or not words[0] else default
        found.append(
            Queue(
                name=name,
                num_nodes=nodes,
                max_nodes=int(words[4]) if words[4].isdigit() else None,
                max_seconds=parse_duration(words[3]),
                default_seconds=parse_duration(words[2]),
                kinds=(NodeKind(cores=max(1, cores // nodes), num_gpus=gpus // nodes),),
                directives=(f"--queue={name}",) if words[0] else (),
            )
        )
    return found, default


def parse_duration(text: str) -> int | None:
    """Seconds of Flux's standard duration (30m, 1.5h, 2d); None for inf and for none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", text)
    return round(float(found[1]) * _UNITS[found[2] or "s"]) or None if found else None

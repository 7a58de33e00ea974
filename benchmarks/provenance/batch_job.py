"""The batch job that this process runs in, from the variables that its scheduler sets.

Only the variables named here are read: others hold user names, home folders and project codes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dlscale.benchmarks.provenance.facts import Allocation

MAX_LIST = 200  # characters of a node list; a longer one is known by its digest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variables:
    """Where a scheduler tells a job about itself. `hosts` names a file with a line per slot, `listed` the nodes.

    LSF's lists may name the node of the script, too, so they are left out.
    """

    scheduler: str
    job_id: str
    partition: str = ""
    num_nodes: str = ""
    listed: str = ""
    hosts: str = ""


# Slurm's first: a job of Flux may run inside one.
SCHEDULERS = (
    _Variables(
        scheduler="slurm",
        job_id="SLURM_JOB_ID",
        partition="SLURM_JOB_PARTITION",
        num_nodes="SLURM_JOB_NUM_NODES",
        listed="SLURM_JOB_NODELIST",
    ),
    _Variables(
        scheduler="cobalt", job_id="COBALT_JOBID", num_nodes="COBALT_JOBSIZE", listed="COBALT_PARTNAME"
    ),
    _Variables(scheduler="pbs", job_id="PBS_JOBID", partition="PBS_QUEUE", hosts="PBS_NODEFILE"),
    _Variables(scheduler="lsf", job_id="LSB_JOBID", partition="LSB_QUEUE"),
    _Variables(scheduler="flux", job_id="FLUX_JOB_ID", num_nodes="FLUX_JOB_NNODES"),
)


def batch_job(variables: Mapping[str, str]) -> Allocation | None:
    """The job that these variables tell of; None outside one."""
    for names in SCHEDULERS:
        if job_id := variables.get(names.job_id):
            hosts = _hosts(variables.get(names.hosts, ""))
            number = variables.get(names.num_nodes, "")
            return Allocation(
                scheduler=names.scheduler,
                job_id=job_id,
                partition=variables.get(names.partition) or None,
                num_nodes=int(number) if number.isdecimal() and int(number) else len(hosts) or None,
                nodes=_short(variables.get(names.listed) or ",".join(hosts)),
            )
    return None


def _hosts(path: str) -> list[str]:
    """The different hosts in a file of slots, in order; none if it cannot be read."""
    with suppress(OSError, UnicodeDecodeError):
        if path:
            return list(dict.fromkeys(Path(path).read_text(encoding="utf-8").split()))
    return []


def _short(nodes: str) -> str | None:
    if len(nodes) > MAX_LIST:
        return f"sha256:{hashlib.sha256(nodes.encode()).hexdigest()[:16]}"
    return nodes or None

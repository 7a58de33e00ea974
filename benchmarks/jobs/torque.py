"""Torque: PBS with nodes=N:ppn=M."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlscale.benchmarks.jobs import pbs
from dlscale.benchmarks.jobs.scheduler import JobRequest, clock


def directives(request: JobRequest) -> list[str]:
    """Whole nodes: `ppn` is all cores of a node, so that no other job gets any."""
    cores = request.cores_per_node or request.ranks_per_node
    return pbs.marked(
        request, [f"-l nodes={request.num_nodes}:ppn={cores}", f"-l walltime={clock(request.minutes)}"]
    )


def _query(ids: Sequence[str]) -> list[str]:
    """Ended jobs stay listed for a while; -x would mean XML here."""
    return ["qstat", "-f", *ids]


SCHEDULER = replace(pbs.SCHEDULER, directives=directives, query=_query)

"""Torque: PBS with nodes=N:ppn=M."""

from __future__ import annotations

from dataclasses import replace

from dlscale.base.batch import pbs
from dlscale.base.batch.scheduler import JobRequest


def _options(request: JobRequest) -> list[str]:
    """Whole nodes: `ppn` is all cores of a node, so that no other job gets any."""
    cores = request.cores_per_node or request.ranks_per_node
    return [f"-l nodes={request.num_nodes}:ppn={cores}", *pbs.shared_options(request)]


SCHEDULER = replace(
    pbs.SCHEDULER,
    name="torque",
    options=_options,
    query=lambda ids: ["qstat", "-f", *ids],  # ended jobs stay for a while; -x would mean XML here
)

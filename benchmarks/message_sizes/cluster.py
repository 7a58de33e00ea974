"""Several nodes: the libraries of a system's own environment, started by its launcher on the nodes of a job.

The wheels that one node's libraries come from know nothing of a system's network and launcher, so here a library is
what the system's environment has: its MPI, and the ring, Gloo and Horovod over it, each at its default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlscale.base import launchers
from dlscale.base.errors import UsageError
from dlscale.base.launchers import LAUNCHERS, Flavour
from dlscale.benchmarks.launch import environment
from dlscale.benchmarks.launch.probe import Probe, Question
from dlscale.benchmarks.message_sizes.peers import BETWEEN_GPUS, Peer, load_peers, named_peers
from dlscale.benchmarks.systems.start import Installation, start_on
from dlscale.benchmarks.systems.system import System
from dlscale.collectives import with_capability
from dlscale.collectives.addresses import refuse_machines

OPEN_PORTS = with_capability("open_ports")  # whose sockets ask nobody who they are


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Nodes of a job on a system, and the environment that is measured there."""

    system: System
    installation: Installation
    flavour: Flavour
    report: Probe  # of the environment
    nodes: tuple[str, ...]
    ranks_per_node: int
    folder: Path  # that all nodes see

    @property
    def wire_bytes_per_second(self) -> float | None:
        """What a node can send, and receive at the same time, as the system's file states it."""
        bandwidth = self.system.fabric.bandwidth if self.system.fabric else None
        return bandwidth.number if bandwidth else None

    def command(
        self, program: Sequence[str], *, num_ranks: int, variables: Mapping[str, str], num_cpus: int
    ) -> list[str]:
        """The system's launcher, with that program on the first nodes that hold so many ranks."""
        placement = self.system.placement
        own = placement.variables if placement else {}
        start = start_on(
            self.system,
            self.system.partitions[self.system.partition or ""],
            nodes=self.nodes[: num_ranks // self.ranks_per_node],
            num_ranks=num_ranks,
            variables={**self.installation.variables, **own, **variables},
            program=program,
            ranks_per_node=self.ranks_per_node,
        )
        return launchers.command_line(
            self.system.launcher,
            start,
            mpiexec_path=self.installation.mpiexec,
            flavour=self.flavour,
            oversubscribed=self.ranks_per_node > num_cpus,
        )

    def peers(self, names: Sequence[str], *, allow_open_ports: bool) -> list[Peer]:
        """The libraries with these names, or all that may be asked for between nodes. Raises UsageError."""
        for name in OPEN_PORTS:
            if name in names:
                refuse_machines(False, backend=name, allowed=allow_open_ports)
        left_out = (*BETWEEN_GPUS, *(() if allow_open_ports else OPEN_PORTS))
        rows = named_peers(
            load_peers("between_nodes"), names, left_out, where="between nodes in this benchmark"
        )
        mpi = {"title": self.report.versions.get("mpi", "MPI")}
        return [peer.model_copy(update=mpi) if peer.name == "mpi" else peer for peer in rows]

    def unusable(self, peer: Peer) -> str | None:
        """Why a library of the environment cannot be measured; None if it can."""
        return self.report.problems.get(f"{peer.name}/torch")


def cluster_here(
    system: System,
    installation: Installation,
    *,
    nodes: Sequence[str],
    num_nodes: int,
    ranks_per_node: int | None,
    folder: Path,
) -> Cluster:
    """The nodes of the surrounding job. Raises UsageError if they are too few, or the environment cannot be used."""
    if num_nodes > len(nodes):
        raise UsageError(
            f"the job has {len(nodes)} nodes, but --nodes asks for {num_nodes}; give fewer, or start a larger job"
        )
    if not LAUNCHERS[system.launcher].needs_mpi:
        raise UsageError(
            f"launcher {system.launcher} of {system.name} starts no ranks of MPI, which the libraries compared here "
            "need; name another launcher in the system's file"
        )
    per_node = ranks_per_node or (system.placement.ranks_per_node if system.placement else 1)
    if per_node > system.num_cores():
        raise UsageError(
            f"--ranks-per-node {per_node}: nodes of {system.name} have {system.num_cores()} cores; give at most that"
        )
    report = environment.probe(
        installation, Question(pairs=[(peer.name, "torch") for peer in load_peers("between_nodes")])
    )
    return Cluster(
        system=system,
        installation=installation,
        flavour=environment.check_mpi(installation, report, launcher=system.launcher),
        report=report,
        nodes=tuple(nodes),
        ranks_per_node=per_node,
        folder=folder,
    )

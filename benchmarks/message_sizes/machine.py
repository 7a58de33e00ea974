"""Where libraries are measured: on this node, each in its own environment, or on nodes of a job.

The wheels of this node's libraries know nothing of a cluster's network and launcher, so there a library is what the
system's environment has: its MPI, and the ring, Gloo and Horovod over it, each at its default.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from dlscale.base.errors import UsageError
from dlscale.base.launchers import LAUNCHERS, Start
from dlscale.base.schedulers import job_nodes
from dlscale.benchmarks.launch.environment import probe, with_found_launcher
from dlscale.benchmarks.launch.probe import Question
from dlscale.benchmarks.message_sizes.peers import Peer, choose_peers
from dlscale.benchmarks.records.message_sizes import MessageSizeLaunch, PeerState
from dlscale.benchmarks.systems.start import Installation, find_installation, start_on
from dlscale.benchmarks.systems.system import System, load_system
from dlscale.collectives import with_capability

THREADS = {"OMP_NUM_THREADS": "1"}


def usable_cpus() -> list[int]:
    """The CPUs that a run may use, ascending; of two threads of a core only the first."""
    cores: dict[str, int] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.setdefault(path.read_text(encoding="ascii") if path.exists() else str(cpu), cpu)
    return list(cores.values())


class Found(NamedTuple):
    """A library that was asked for, the environment that has it, and whether it can be used."""

    peer: Peer
    installation: Installation
    state: PeerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """This node or nodes of a job, with the libraries that were asked for."""

    system: System
    nodes: tuple[str, ...] = ()  # of the job; empty: this node
    libraries: Mapping[str, Found]
    cpus: Sequence[int]

    @property
    def ranks_per_node(self) -> int | None:
        """Ranks on each node of a job; None on this node, which has all."""
        placement = self.system.placement
        return placement.ranks_per_node if placement and self.nodes else None

    def command(self, order: MessageSizeLaunch, arguments: Sequence[str]) -> list[str]:
        """The command line that starts the library's Python with these arguments on every rank."""
        system, installation = self.system, self.libraries[order.backend].installation
        per_node = self.ranks_per_node or order.num_ranks
        placed = system.placement.variables if system.placement else {}
        variables = {**installation.variables, **placed, **THREADS, **order.variables}
        program = [str(installation.python), *arguments]
        start = Start(
            num_ranks=order.num_ranks, ranks_per_node=per_node, variables=variables, program=program
        )
        if self.nodes:
            start = start_on(
                system,
                system.partitions[system.partition or ""],
                nodes=self.nodes[: order.num_nodes],
                num_ranks=order.num_ranks,
                variables=variables,
                program=program,
            )
        start = replace(
            start,
            mpiexec=str(installation.mpiexec),
            flavour="mpich" if installation.mpi == "detect" else installation.mpi,
            oversubscribed=per_node > len(self.cpus),
        )
        return LAUNCHERS[system.launcher].command(start)


def this_node(names: Sequence[str]) -> Machine:
    """This node, with the libraries of these names. Raises UsageError for an unknown one."""
    system = load_system("local").model_copy(update={"launcher": "mpiexec"})
    peers = choose_peers(names)
    own = [peer for peer in peers if not peer.packages]
    libraries = _in_environment(system, own) if own else {}
    for peer in peers:
        if peer not in own:
            state = _state(peer, peer.versions(), peer.unusable())
            libraries[peer.name] = Found(peer, peer.installation(), state)
    return Machine(system=system, libraries=libraries, cpus=usable_cpus())


def nodes_of_job(name: str, *, counts: Sequence[int], names: Sequence[str]) -> Machine:
    """Nodes of the surrounding job on a system, with its default environment's libraries of these names.

    Raises UsageError: there may be too few nodes, no job, or no environment whose MPI can be used.
    """
    system = load_system(name)
    if not counts or min(counts) < 2:
        raise UsageError(f"--system {name} needs --nodes, each 2 or more; leave it out for this machine")
    fewest = max(counts)
    nodes = job_nodes(
        system.scheduler, fewest=fewest, remedy=f"start this command in a job of {fewest} nodes"
    )
    peers = choose_peers(names, between_nodes=True)
    if not system.open_ports:
        open_ports = with_capability("open_ports")
        if refused := [name for name in names if name in open_ports]:
            raise UsageError(
                f"{', '.join(refused)} between nodes: unauthenticated sockets, open to anyone on the network; leave it "
                f"out, or set open_ports = true in the file of {system.name}"
            )
        peers = [peer for peer in peers if peer.name not in open_ports]
    libraries = _in_environment(system, peers)
    return Machine(system=system, nodes=nodes, libraries=libraries, cpus=usable_cpus())


def _in_environment(system: System, peers: Sequence[Peer]) -> dict[str, Found]:
    """The peers in the system's default environment. Raises UsageError if its MPI cannot be used."""
    installation = find_installation(system)
    report = probe(installation, Question(pairs=[(peer.name, "torch") for peer in peers]))
    _, flavour, _ = with_found_launcher(system, installation, report)
    installation = replace(installation, mpi=flavour or installation.mpi)
    states = {
        peer.name: _state(peer, report.versions, report.problems.get(f"{peer.name}/torch")) for peer in peers
    }
    return {peer.name: Found(peer, installation, states[peer.name]) for peer in peers}


def _state(peer: Peer, versions: dict[str, str], problem: str | None) -> PeerState:
    return PeerState(name=peer.name, title=peer.title, versions=versions, unusable=problem)

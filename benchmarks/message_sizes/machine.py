"""Where libraries are measured: on this node, each in an environment of its own, or on nodes of a job.

The wheels of this node's libraries know nothing of a cluster's network and launcher, so there a library is what the
system's environment has: its MPI, and the ring, Gloo and Horovod over it, each at its default.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlscale.base import launchers
from dlscale.base.errors import UsageError
from dlscale.base.launchers import LAUNCHERS, Flavour, flavour_of
from dlscale.base.schedulers import job_nodes
from dlscale.base.variables import passed_on
from dlscale.benchmarks.launch import environment
from dlscale.benchmarks.launch.probe import Probe, Question, SeenGpus, see_gpus
from dlscale.benchmarks.message_sizes.peers import (
    BETWEEN_GPUS,
    OWN,
    Peer,
    PeerSetting,
    choose_peers,
    load_peers,
    named_peers,
    peer_variables,
    place_of,
    read_note,
    unusable,
)
from dlscale.benchmarks.records.message_sizes import Collective
from dlscale.benchmarks.systems.start import (
    Installation,
    default_environment,
    find_installation,
    start_on,
)
from dlscale.benchmarks.systems.system import System, load_system
from dlscale.collectives import with_capability
from dlscale.collectives.addresses import refuse_machines

OPEN_PORTS = with_capability("open_ports")  # whose sockets ask nobody who they are
THREADS = {"OMP_NUM_THREADS": "1"}


def usable_cpus() -> list[int]:
    """The CPUs that a run may use, ascending; of two threads of a core only the first."""
    cores: dict[str, int] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.setdefault(path.read_text(encoding="ascii") if path.exists() else str(cpu), cpu)
    return list(cores.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisNode:
    """This node; the libraries' environments lie in a folder."""

    environments: Path
    cpus: Sequence[int]
    folder: None = None  # for files of launches: any

    def ranks_on_node(self, num_ranks: int) -> int:
        return num_ranks

    def shares_cpus(self, num_ranks: int) -> bool:
        return num_ranks > len(self.cpus)

    def peers(self, names: Sequence[str], collectives: Sequence[Collective]) -> list[Peer]:
        """The libraries with these names. Raises UsageError for an unknown one."""
        return choose_peers(names, collectives)

    def state(self, peer: Peer) -> tuple[str | None, Mapping[str, str]]:
        """Why a library cannot be measured (None if it can), and versions."""
        place = place_of(peer.name, self.environments)
        note = read_note(place)
        return unusable(peer, place), note.versions if note else {}

    def gpus(self) -> list[SeenGpus]:
        """What torch sees."""
        return see_gpus(["torch"])

    def facts(self) -> dict[str, Any]:
        """Fields of a run's record."""
        return {}

    def command(
        self, peer: Peer, setting: PeerSetting, arguments: Sequence[str], *, num_ranks: int
    ) -> list[str]:
        """The command line that starts the library's Python with these arguments on every rank."""
        place = place_of(peer.name, self.environments)
        start = launchers.Start(
            num_ranks=num_ranks,
            ranks_per_node=num_ranks,
            variables={**THREADS, **peer_variables(peer, place), **setting.variables},
            program=[str(place.python), *arguments],
        )
        return launchers.command_line(
            "mpiexec",
            start,
            flavour=_flavour(peer, place.mpiexec),
            mpiexec_path=place.mpiexec,
            oversubscribed=self.shares_cpus(num_ranks),
        )

    def passed_on(self) -> dict[str, str]:
        """A library is measured with its settings alone."""
        return passed_on(())


def _flavour(peer: Peer, mpiexec: Path) -> Flavour:
    """Which MPI's options a peer's mpiexec takes."""
    if peer.name in OWN and mpiexec.exists():
        version = subprocess.run([str(mpiexec), "--version"], capture_output=True, check=False, timeout=60)
        return flavour_of((version.stdout + version.stderr).decode(errors="replace")) or "mpich"
    own: dict[str, Flavour] = {"openmpi": "openmpi", "intelmpi": "intelmpi"}
    return own.get(peer.name, "mpich")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Nodes of a job on a system, and the environment that is measured there; as `ThisNode`."""

    system: System
    installation: Installation
    flavour: Flavour
    report: Probe  # of the environment
    nodes: tuple[str, ...]
    ranks_per_node: int
    folder: Path  # that all nodes see
    cpus: Sequence[int]
    allow_open_ports: bool = False

    def ranks_on_node(self, num_ranks: int) -> int:
        return min(num_ranks, self.ranks_per_node)

    def shares_cpus(self, num_ranks: int) -> bool:  # noqa: ARG002
        return False

    def peers(self, names: Sequence[str], _: Sequence[Collective]) -> list[Peer]:
        """The libraries with these names, or all that may be asked for between nodes. Raises UsageError."""
        for name in OPEN_PORTS:
            if name in names:
                refuse_machines(False, backend=name, allowed=self.allow_open_ports)
        left_out = (*BETWEEN_GPUS, *(() if self.allow_open_ports else OPEN_PORTS))
        rows = named_peers(
            load_peers("between_nodes"), names, left_out, where="between nodes in this benchmark"
        )
        mpi = {"title": self.report.versions.get("mpi", "MPI")}
        return [peer.model_copy(update=mpi) if peer.name == "mpi" else peer for peer in rows]

    def state(self, peer: Peer) -> tuple[str | None, Mapping[str, str]]:
        return self.report.problems.get(f"{peer.name}/torch"), self.report.versions

    def gpus(self) -> list[SeenGpus]:
        return environment.probe(self.installation, Question(gpus=["torch"])).gpus

    def facts(self) -> dict[str, Any]:
        bandwidth = self.system.fabric.bandwidth if self.system.fabric else None
        return {
            "system": self.system.title,
            "nodes": list(self.nodes),
            "ranks_per_node": self.ranks_per_node,
            "wire_bytes_per_second": bandwidth.number if bandwidth else None,
        }

    def command(
        self,
        peer: Peer,  # noqa: ARG002
        setting: PeerSetting,
        arguments: Sequence[str],
        *,
        num_ranks: int,
    ) -> list[str]:
        """The system's launcher, with the environment's Python on the first nodes that hold so many ranks."""
        placement = self.system.placement
        own = placement.variables if placement else {}
        start = start_on(
            self.system,
            self.system.partitions[self.system.partition or ""],
            nodes=self.nodes[: num_ranks // self.ranks_per_node],
            num_ranks=num_ranks,
            variables={**self.installation.variables, **own, **THREADS, **setting.variables},
            program=[str(self.installation.python), *arguments],
            ranks_per_node=self.ranks_per_node,
        )
        return launchers.command_line(
            self.system.launcher,
            start,
            mpiexec_path=self.installation.mpiexec,
            flavour=self.flavour,
            oversubscribed=self.ranks_per_node > len(self.cpus),
        )

    def passed_on(self) -> dict[str, str]:
        """In a job its launcher hears of the scheduler."""
        return passed_on({"scheduler"} if self.system.has_jobs else ())


Machine = ThisNode | Cluster


def cluster_here(
    name: str,
    *,
    nodes: Sequence[int] | None,
    environment_name: str | None,
    ranks_per_node: int | None,
    **own: Any,
) -> Cluster:
    """Nodes of the surrounding job of a named system, for these numbers of nodes. Raises UsageError.

    They may be too few, not those of a job, or without an environment whose MPI can be used.
    """
    system = load_system(name)
    if system.scheduler == "none" or not nodes:
        known = "which has no scheduler" if system.scheduler == "none" else "without --nodes"
        raise UsageError(
            f"--system {name}, {known}; leave it out for this machine, or name a system and its --nodes"
        )
    if min(nodes) < 2:
        raise UsageError("--nodes 1: that is one node; leave --system out, and give --ranks")
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
    fewest = max(nodes)
    here = job_nodes(system.scheduler, fewest=fewest, remedy=f"start this command in a job of {fewest} nodes")
    installation = find_installation(system, environment_name or default_environment(system))
    pairs = [(peer.name, "torch") for peer in load_peers("between_nodes")]
    report = environment.probe(installation, Question(pairs=pairs))
    return Cluster(
        system=system,
        installation=installation,
        flavour=environment.check_mpi(installation, report, launcher=system.launcher),
        report=report,
        nodes=here,
        ranks_per_node=per_node,
        cpus=usable_cpus(),
        **own,
    )

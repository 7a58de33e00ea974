"""Backend `mpi_ps`: parameter servers over MPI, with messages of raw floats and no library besides mpi4py.

Servers are the last ranks of the launch (`job.py`). They know no framework: rules work on flat float32 arrays in
place, and workers use what every replica has (`models.workload.Replica`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from dlscale.base.errors import UsageError
from dlscale.collectives.algorithms import downpour, easgd
from dlscale.collectives.algorithms.registry import SYNC
from dlscale.collectives.backend import Backend, Collective, InStep, Setup, Trainer
from dlscale.collectives.job import ServerSplit, rest
from dlscale.collectives.mpi_ps.group import Group
from dlscale.collectives.mpi_ps.hierarchy import Ranks
from dlscale.collectives.mpi_ps.links import ServerLinks
from dlscale.collectives.mpi_ps.messages import FlatLayout, Mailbox
from dlscale.collectives.mpi_ps.server import Server, leave
from dlscale.collectives.mpi_ps.trainers import DownpourTrainer, ElasticTrainer, SynchronousTrainer
from dlscale.collectives.mpi_ps.watch import watch_of
from dlscale.collectives.registry import read_options
from dlscale.models.workload import Replica, ReplicaFactory, Shard


@dataclass(frozen=True, slots=True)
class Options:
    """There are none."""


def connect(
    *,
    control: Any,  # noqa: ARG001
    framework: str,
    options: Mapping[str, Any],
    job: ServerSplit,
    algorithm: Any,
) -> Backend:
    """Join the servers of `job`; collective over all its ranks. `algorithm` are the options of the one to run."""
    read_options(Options, options, backend="mpi_ps")
    return MpiServers(job, _mailbox(job), algorithm, _ranks(job, algorithm, framework))


def serve(*, job: ServerSplit, framework: str, options: Mapping[str, Any], algorithm: Any) -> None:
    """Serve until all workers have closed; collective with their `connect`, which say how."""
    read_options(Options, options, backend="mpi_ps")
    ranks = _ranks(job, algorithm, framework)
    mailbox = _mailbox(job)
    Server(mailbox, ranks, rank=job.num_workers + job.index).serve()
    mailbox.communicator.Free()


class MpiServers(InStep):
    """Parameter servers over MPI (`Backend`)."""

    name = "mpi_ps"

    def __init__(self, job: ServerSplit, mailbox: Mailbox, algorithm: Any, ranks: Ranks) -> None:
        self._job, self._mailbox, self._algorithm, self._ranks = job, mailbox, algorithm, ranks
        self._group = _group(job, mailbox, algorithm)
        self._numbers = count()  # of sessions, the same on all workers

    @property
    def asynchronous(self) -> bool:
        return isinstance(self._algorithm, downpour.Options | easgd.Options)

    @property
    def served(self) -> Any:
        return self._algorithm if self.asynchronous else None

    def distribute(self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False) -> Trainer:
        """A replica with the weights of worker 0, in a session of its own."""
        replica = factory(shard=shard, seed=seed, gate=gate)
        first = replica.weights()
        layout = FlatLayout(first)
        links = ServerLinks(
            self._mailbox,
            self._ranks,
            rank=self._job.index,
            number=next(self._numbers),
            num_elements=layout.num_elements,
        )
        flat = np.empty(layout.num_elements, np.float32)
        layout.pack(first, flat)
        chosen = self._algorithm.for_gate() if gate and self.asynchronous else self._algorithm
        rules = self._rules(chosen, replica)
        links.open(rules, flat if self._job.index == 0 else None)
        if isinstance(chosen, downpour.Options):  # fetches for itself, each time that its interval is over
            return DownpourTrainer(replica, layout, links, chosen, rate=rules["rate"], group=self._group)
        links.fetch(flat)
        replica.load(layout.unpack(flat))
        if isinstance(chosen, easgd.Options):
            return ElasticTrainer(replica, layout, links, chosen, share=rules["share"])
        return SynchronousTrainer(replica, layout, links)

    def _rules(self, chosen: Any, replica: Replica) -> dict[str, Any]:
        """What servers are told."""
        if isinstance(chosen, downpour.Options):
            return {
                "algorithm": "downpour",
                "optimizer": chosen.optimizer,
                "rate": chosen.learning_rate or replica.learning_rate(),
                "momentum": chosen.momentum,
                "divide_by_staleness": chosen.divide_by_staleness,
            }
        if isinstance(chosen, easgd.Options):
            return {"algorithm": "easgd", "share": chosen.moving_rate / self._job.num_workers}
        return {"algorithm": SYNC}

    def collective(self) -> Collective:
        raise UsageError("backend mpi_ps has no collective operations; choose one of: mpi, gloo, ring")

    def close(self) -> None:
        if self._group:
            self._group.close()
        leave(self._mailbox, self._ranks.parents(self._job.index))
        self._mailbox.communicator.Free()


def _ranks(job: ServerSplit, algorithm: Any, framework: str) -> Ranks:
    """Who sends to whom. Raises UsageError where there are not the servers that masters need."""
    if not isinstance(algorithm, downpour.Options):
        return Ranks(num_workers=job.num_workers, num_servers=job.num_servers)
    algorithm.check_setup(Setup(framework=framework, num_ranks=job.num_workers, num_servers=job.num_servers))
    return Ranks(num_workers=job.num_workers, num_servers=job.num_servers, num_masters=algorithm.masters)


def _group(job: ServerSplit, mailbox: Mailbox, algorithm: Any) -> Group | None:
    """That of this worker, where there are groups; collective over the workers."""
    if not (isinstance(algorithm, downpour.Options) and algorithm.groups):
        return None
    turns = algorithm.turns(job.num_workers)
    place, own = next((place, turn) for place, turn in enumerate(turns) if job.index in turn)
    return Group(job.workers.Split(color=place, key=job.index), mailbox, own)


def _mailbox(job: ServerSplit) -> Mailbox:
    """A communicator of its own, on which no other part's messages come; collective over all ranks."""
    communicator, request = job.everyone.Idup()
    rest(request, poll_seconds=0.001)
    return Mailbox(communicator, watch_of(job))

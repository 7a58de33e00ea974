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
from dlscale.collectives.backend import Backend, Capabilities, Collective, InStep, Trainer
from dlscale.collectives.job import ServerSplit, rest
from dlscale.collectives.mpi_ps.links import ServerLinks
from dlscale.collectives.mpi_ps.messages import FlatLayout, Kind, Mailbox, Message, wait
from dlscale.collectives.mpi_ps.server import Server
from dlscale.collectives.mpi_ps.trainers import SynchronousTrainer
from dlscale.collectives.registry import capabilities, read_options
from dlscale.models.workload import ReplicaFactory, Shard


@dataclass(frozen=True, slots=True)
class Options:
    """There are none."""


def connect(*, control: Any, framework: str, options: Mapping[str, Any], job: ServerSplit) -> Backend:  # noqa: ARG001
    """Join the servers of `job`; collective over all its ranks."""
    read_options(Options, options, backend="mpi_ps")
    return MpiServers(job, _mailbox(job))


def serve(*, job: ServerSplit, framework: str, options: Mapping[str, Any]) -> None:  # noqa: ARG001
    """Serve until all workers have closed; collective with their `connect`."""
    read_options(Options, options, backend="mpi_ps")
    mailbox = _mailbox(job)
    Server(mailbox, num_workers=job.num_workers).serve()
    mailbox.communicator.Free()


class MpiServers(InStep):
    """Parameter servers over MPI (`Backend`)."""

    def __init__(self, job: ServerSplit, mailbox: Mailbox) -> None:
        self._job, self._mailbox = job, mailbox
        self._numbers = count()  # of sessions, the same on all workers

    @property
    def capabilities(self) -> Capabilities:
        """This backend's row of the table."""
        return capabilities("mpi_ps")

    def distribute(self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False) -> Trainer:
        """A replica with the weights of worker 0, in a session of its own."""
        replica = factory(shard=shard, seed=seed, gate=gate)
        first = replica.weights()
        layout = FlatLayout(first)
        links = ServerLinks(
            self._mailbox,
            num_workers=self._job.num_workers,
            num_servers=self._job.num_servers,
            number=next(self._numbers),
            num_elements=layout.num_elements,
        )
        flat = np.empty(layout.num_elements, np.float32)
        layout.pack(first, flat)
        links.open({}, flat if self._job.index == 0 else None)
        links.fetch(flat)
        replica.load(layout.unpack(flat))
        return SynchronousTrainer(replica, layout, links)

    def collective(self) -> Collective:
        """Servers offer none."""
        raise UsageError("backend mpi_ps has no collective operations; choose one of: mpi, gloo, ring")

    def close(self) -> None:
        """Let the servers go."""
        for server in range(self._job.num_servers):
            farewell = Message(0).address(Kind.CLOSE, session=-1)
            wait(self._mailbox.send(farewell, self._job.num_workers + server))
        self._mailbox.communicator.Free()


def _mailbox(job: ServerSplit) -> Mailbox:
    """A communicator of its own, on which no other part's messages come; collective over all ranks."""
    communicator, request = job.everyone.Idup()
    rest(request, poll_seconds=0.001)
    return Mailbox(communicator)

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
from dlscale.collectives.backend import Backend, Capabilities, Collective, InStep, Trainer
from dlscale.collectives.job import ServerSplit, rest
from dlscale.collectives.mpi_ps.links import ServerLinks
from dlscale.collectives.mpi_ps.messages import FlatLayout, Kind, Mailbox, Message
from dlscale.collectives.mpi_ps.server import Server
from dlscale.collectives.mpi_ps.trainers import DownpourTrainer, ElasticTrainer, SynchronousTrainer
from dlscale.collectives.mpi_ps.watch import watch_of
from dlscale.collectives.registry import capabilities, read_options
from dlscale.models.workload import Replica, ReplicaFactory, Shard


@dataclass(frozen=True, slots=True)
class Options:
    """There are none."""


def connect(
    *,
    control: Any,  # noqa: ARG001
    framework: str,  # noqa: ARG001
    options: Mapping[str, Any],
    job: ServerSplit,
    algorithm: Any,
) -> Backend:
    """Join the servers of `job`; collective over all its ranks. `algorithm` are the options of the one to run."""
    read_options(Options, options, backend="mpi_ps")
    return MpiServers(job, _mailbox(job), algorithm)


def serve(*, job: ServerSplit, framework: str, options: Mapping[str, Any], algorithm: Any) -> None:  # noqa: ARG001
    """Serve until all workers have closed; collective with their `connect`, which say how."""
    read_options(Options, options, backend="mpi_ps")
    mailbox = _mailbox(job)
    Server(mailbox, num_workers=job.num_workers).serve()
    mailbox.communicator.Free()


class MpiServers(InStep):
    """Parameter servers over MPI (`Backend`)."""

    def __init__(self, job: ServerSplit, mailbox: Mailbox, algorithm: Any) -> None:
        self._job, self._mailbox, self._algorithm = job, mailbox, algorithm
        self._numbers = count()  # of sessions, the same on all workers

    @property
    def capabilities(self) -> Capabilities:
        """This backend's row of the table."""
        return capabilities("mpi_ps")

    @property
    def asynchronous(self) -> bool:
        """Whether pushes are applied as they come."""
        return isinstance(self._algorithm, downpour.Options | easgd.Options)

    @property
    def num_accepted(self) -> int | None:
        """Pushes that make an update, where that is neither one nor one of each worker."""
        if not isinstance(self._algorithm, downpour.Options):
            return None
        num_collected = self._algorithm.num_collected(self._job.num_workers)
        return num_collected if num_collected > 1 else None

    @property
    def served(self) -> Any:
        """The algorithm, where it is not synchronous."""
        return self._algorithm if self.asynchronous else None

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
        given = flat if self._job.index == 0 else None
        chosen = self._algorithm
        num_workers = self._job.num_workers
        if isinstance(chosen, downpour.Options):
            chosen = chosen.for_gate() if gate else chosen
            rules = _downpour_rules(chosen, replica, num_workers=num_workers)
            links.open(rules, given)
            return DownpourTrainer(replica, layout, links, chosen, rate=rules["rate"])
        share = chosen.moving_rate / num_workers if isinstance(chosen, easgd.Options) else 0.0
        links.open({"algorithm": "easgd", "share": share} if share else {"algorithm": SYNC}, given)
        links.fetch(flat)
        replica.load(layout.unpack(flat))
        if isinstance(chosen, easgd.Options):
            chosen = chosen.for_gate() if gate else chosen
            return ElasticTrainer(replica, layout, links, chosen, share=share)
        return SynchronousTrainer(replica, layout, links)

    def collective(self) -> Collective:
        """Servers offer none."""
        raise UsageError("backend mpi_ps has no collective operations; choose one of: mpi, gloo, ring")

    def close(self) -> None:
        """Let the servers go."""
        for server in range(self._job.num_servers):
            farewell = Message(0).address(Kind.CLOSE, session=-1)
            rank = self._job.num_workers + server
            self._mailbox.wait(self._mailbox.send(farewell, rank), rank)
        self._mailbox.communicator.Free()


def _downpour_rules(options: downpour.Options, replica: Replica, *, num_workers: int) -> dict[str, Any]:
    """What servers are told."""
    return {
        "algorithm": "downpour",
        "optimizer": options.optimizer,
        "rate": options.learning_rate or replica.learning_rate(),
        "momentum": options.momentum,
        "divide_by_staleness": options.divide_by_staleness,
        "num_collected": options.num_collected(num_workers),
    }


def _mailbox(job: ServerSplit) -> Mailbox:
    """A communicator of its own, on which no other part's messages come; collective over all ranks."""
    communicator, request = job.everyone.Idup()
    rest(request, poll_seconds=0.001)
    return Mailbox(communicator, watch_of(job))

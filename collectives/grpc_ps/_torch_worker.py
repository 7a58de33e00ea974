"""Backend `grpc_ps` in torch, for workers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from dlscale.collectives.backend import Capabilities, Collective, Trainer
from dlscale.collectives.capabilities import capabilities
from dlscale.collectives.fronts._torch import TorchTrainer
from dlscale.collectives.grpc_ps._stream import Channel
from dlscale.collectives.grpc_ps._torch_exchange import PushExchange, Traffic
from dlscale.collectives.grpc_ps._torch_optimizers import sections
from dlscale.collectives.grpc_ps.addresses import meet
from dlscale.collectives.grpc_ps.messages import Session
from dlscale.collectives.grpc_ps.options import KEPT_BY_SERVERS, Options
from dlscale.collectives.grpc_ps.shards import BYTES_PER_ELEMENT
from dlscale.collectives.in_step import InStep
from dlscale.collectives.job import Job, rest
from dlscale.models.errors import UsageError
from dlscale.models.workload import ReplicaFactory, Shard, State


def connect(*, control: Any, options: Options, job: Job) -> GrpcBackend:
    """Find the servers; collective over all ranks of `job`. Raises UsageError if a server cannot listen."""
    meeting = meet(job)
    channels = [
        Channel(index, address, token=meeting.token, chunk_bytes=options.chunk_kib << 10)
        for index, address in enumerate(meeting.addresses)
    ]
    return GrpcBackend(options, channels, control=control, job=job)


class GrpcBackend(InStep):
    """Parameter servers over gRPC (`Backend`)."""

    def __init__(self, options: Options, channels: Sequence[Channel], *, control: Any, job: Job) -> None:
        self._options = options
        self.channels = tuple(channels)
        self._control, self._job = control, job
        self._numbers = count()  # of sessions, the same on all workers

    @property
    def capabilities(self) -> Capabilities:
        """This backend's row of the table."""
        return capabilities("grpc_ps")

    @property
    def asynchronous(self) -> bool:
        """As asked for."""
        return self._options.asynchronous

    def distribute(self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False) -> Trainer:
        """A replica whose weights the servers hold and update."""
        return served(
            factory(shard=shard, seed=seed, gate=gate),
            self.channels,
            worker=self._job.index,
            num_workers=self._job.num_workers,
            options=self._options,
            number=next(self._numbers),
        )

    def collective(self) -> Collective:
        """Servers offer none."""
        raise UsageError("backend grpc_ps has no collective operations; choose one of: mpi, gloo, ring")

    def close(self) -> None:
        """Let the servers go, once all workers are here."""
        rest(self._control.Ibarrier())
        self._job.order(do="close")
        for channel in self.channels:
            channel.close()


class ServedTrainer(TorchTrainer):
    """Trains on what the servers make of all workers' gradients (`CountingTrainer`)."""

    def __init__(self, replica: Any, traffic: Traffic) -> None:
        exchanges = [
            PushExchange(objective, traffic, is_first=index == 0)
            for index, objective in enumerate(replica.objectives)
        ]
        super().__init__(replica, exchanges, close=traffic.close)
        self._traffic = traffic

    def num_applied(self) -> int:
        """Local batches, of all workers, that server 0's weights have taken up."""
        return self._traffic.num_applied()

    def state(self) -> State:
        """Raises UsageError: the servers keep what optimizers do."""
        raise UsageError(KEPT_BY_SERVERS)

    def restore(self, state: State) -> None:  # noqa: ARG002
        """Raises UsageError: the servers keep what optimizers do."""
        raise UsageError(KEPT_BY_SERVERS)


def served(
    replica: Any, channels: Sequence[Channel], *, worker: int, num_workers: int, options: Options, number: int
) -> ServedTrainer:
    """The replica in session `number` of the servers; collective over workers. Raises what went wrong."""
    found = sections(replica.objectives)

    def make_session(regions: Any) -> Session:
        return Session(
            number=number,
            num_workers=num_workers,
            asynchronous=options.asynchronous,
            chunk_elements=(options.chunk_kib << 10) // BYTES_PER_ELEMENT,
            regions=tuple(regions),
            optimizers=tuple(section.optimizer for section in found),
        )

    traffic = Traffic(found, channels, make_session)
    try:
        traffic.open(worker)
    except BaseException:
        traffic.close()
        raise
    return ServedTrainer(replica, traffic)

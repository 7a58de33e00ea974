"""Backend `grpc_ps` in torch, for workers, and an optimizer for any torch script whose steps the servers take."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

import torch

from dlscale.collectives.backend import Backend, KeptByServers, Trainer
from dlscale.collectives.grpc_ps._grpc import Channel
from dlscale.collectives.grpc_ps._torch_exchange import PushExchange, Traffic
from dlscale.collectives.grpc_ps._torch_optimizers import sections
from dlscale.collectives.grpc_ps.meeting import meet
from dlscale.collectives.grpc_ps.messages import BYTES_PER_ELEMENT, Session
from dlscale.collectives.grpc_ps.options import Options
from dlscale.collectives.job import ServerSplit, rest
from dlscale.collectives.training._torch import TorchTrainer
from dlscale.models.workload import ReplicaFactory, Shard, State, Weights


def connect(*, control: Any, options: Options, job: ServerSplit) -> GrpcBackend:
    """Find the servers; collective over all ranks of `job`. Raises UsageError if a server cannot listen."""
    meeting = meet(job)
    channels = [
        Channel(index, address, token=meeting.token, chunk_bytes=options.chunk_kib << 10)
        for index, address in enumerate(meeting.addresses)
    ]
    return GrpcBackend(options, channels, control=control, job=job)


class GrpcBackend(Backend):
    """Parameter servers over gRPC (`Backend`)."""

    name = "grpc_ps"

    def __init__(
        self, options: Options, channels: Sequence[Channel], *, control: Any, job: ServerSplit
    ) -> None:
        self._options = options
        self.channels = tuple(channels)
        self._control, self._job = control, job
        self._numbers = count()  # of sessions, the same on all workers

    @property
    def asynchronous(self) -> bool:
        return self._options.asynchronous

    def distribute(self, factory: ReplicaFactory, *, shard: Shard, seed: int, gate: bool = False) -> Trainer:
        return served(
            factory(shard=shard, seed=seed, gate=gate),
            self.channels,
            worker=self._job.index,
            num_workers=self._job.num_workers,
            options=self._options,
            number=next(self._numbers),
        )

    def close(self) -> None:
        """Let the servers go, once all workers are here."""
        rest(self._control.Ibarrier())
        self._job.order(do="close")
        for channel in self.channels:
            channel.close()


class ServedTrainer(KeptByServers, TorchTrainer):
    """Trains on what the servers make of all workers' gradients (`CountingTrainer`)."""

    backend = "grpc_ps"

    def __init__(self, replica: Any, traffic: Traffic) -> None:
        exchanges = [
            PushExchange(objective, traffic, is_first=index == 0)
            for index, objective in enumerate(replica.objectives)
        ]
        super().__init__(replica, exchanges, close=traffic.close)
        self._traffic = traffic
        number_of = {parameter.data_ptr(): number for number, parameter in enumerate(traffic.parameters)}
        # By the optimizer's name and the place in it, as states name what optimizers keep.
        self._slots_of = {
            f"optimizer{index}.{place}": number_of[given.data_ptr()]
            for index, objective in enumerate(replica.objectives)
            for place, given in enumerate(
                given for group in objective.optimizer.param_groups for given in group["params"]
            )
        }

    def num_applied(self) -> int:
        """Local batches, of all workers, that server 0's weights have taken up."""
        return self._traffic.num_applied()

    def served_weights(self) -> Weights:
        """The servers' weights of now, which the next step begins with, too. Workers in step have them already."""
        if self._traffic.sessions[0].asynchronous:
            self._traffic.fetch()
        return self.weights()

    def served_state(self) -> State:
        """The servers' weights of now, what their optimizers keep, and all else that is this rank's own."""
        if self._traffic.sessions[0].asynchronous:
            self._traffic.fetch()
        return super().served_state() | self._served_slots()

    def held(self, *, slots: bool = True) -> State:
        """What a step changes: the weights, which workers in step have, and what the servers' optimizers keep."""
        return super().held(slots=False) | (self._served_slots() if slots else {})

    def _served_slots(self) -> State:
        kept = self._traffic.kept()
        return {
            f"{name}.{key}": value
            for name, number in self._slots_of.items()
            for key, value in kept[number].items()
        }

    def staleness(self) -> dict[int, int]:
        """{updates: pushes}: how many pushes had missed so many updates, of all workers; empty where none is missed."""
        return self._traffic.staleness()


def served(
    replica: Any, channels: Sequence[Channel], *, worker: int, num_workers: int, options: Options, number: int
) -> ServedTrainer:
    """The replica in session `number` of the servers; collective over workers. Raises what went wrong."""
    all_sections = sections(replica.objectives)

    def make_session(regions: Any) -> Session:
        return Session(
            number=number,
            num_workers=num_workers,
            asynchronous=options.asynchronous,
            chunk_elements=(options.chunk_kib << 10) // BYTES_PER_ELEMENT,
            regions=tuple(regions),
            optimizers=tuple(section.optimizer for section in all_sections),
        )

    traffic = Traffic(all_sections, channels, make_session)
    try:
        traffic.open(worker)
    except BaseException:
        traffic.close()
        raise
    return ServedTrainer(replica, traffic)


class ServedOptimizer:
    """In the place of a torch optimizer, which says what the servers do with the gradients.

    Gradients leave while `backward` computes further ones. `zero_grad` begins a step, and `step` returns when the
    parameters hold the new weights.
    """

    def __init__(self, job: ServerSplit, optimizer: torch.optim.Optimizer, options: Options) -> None:
        parameters = tuple(parameter for group in optimizer.param_groups for parameter in group["params"])
        objective = SimpleNamespace(parameters=parameters, optimizer=optimizer, loss=torch.nn.Identity())
        self._backend = connect(control=job.workers, options=options, job=job)
        self._trainer = served(
            SimpleNamespace(objectives=(objective,)),
            self._backend.channels,
            worker=job.index,
            num_workers=job.num_workers,
            options=options,
            number=0,
        )
        (self._exchange,) = self._trainer.exchanges

    def zero_grad(self) -> None:
        """Clear the gradients: a step begins."""
        self._exchange.begin()

    def step(self) -> None:
        """Return when the parameters hold the servers' new weights. Raises what went wrong."""
        self._exchange.flush()
        self._exchange.finish()

    def close(self) -> None:
        """Let the servers go, once all workers are here; collective over the workers."""
        self._trainer.close()
        self._backend.close()

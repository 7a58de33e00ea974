"""What the measurements of a launch's cases share on one rank: the launch, its spool, its observers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

from dlscale.benchmarks.rank.measure import CommunicatorControl
from dlscale.benchmarks.rank.observers import Observer
from dlscale.benchmarks.rank.spec import LaunchSpec
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Gate, StateBytes
from dlscale.benchmarks.records.spool import CaseResult, Event, MeasuredWindow, Phase, SpoolWriter
from dlscale.collectives import Backend, Trainer
from dlscale.collectives.backend import StaleTrainer
from dlscale.collectives.control import Communicator
from dlscale.collectives.neighbours import CarriedNeighbours
from dlscale.models.parallel import Neighbours
from dlscale.models.workload import Replica, ReplicaFactory, Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchContext:
    """What the cases of a launch share on this rank."""

    spec: LaunchSpec
    backend: Backend
    control: CommunicatorControl
    world: Communicator  # of the workers
    shard: Shard  # this rank's part of the samples
    spool: SpoolWriter
    observers: Sequence[Observer] = ()
    carried: CarriedNeighbours | None = None  # of ranks that share samples
    beside: Neighbours | None = None  # whom their references ask: the same ranks, over the control plane
    # Filled by the first training for the communication-only case of the launch; None where there is no such case:
    # counting gradients copies the weights, which would show in the memory of `none`.
    bucket_bytes: list[int] | None = None

    @property
    def seed(self) -> int:
        """Of this rank's replicas."""
        return self.spec.seed + self.shard.index

    def write_gates(self, gates: list[Gate], *, case: int | None = None) -> bool:
        """Spool the gates of the launch or of a case; returns whether all passed on all ranks. Collective.

        One that failed on any rank is written by all ranks as on the first of these.
        """
        per_rank = self.world.allgather([gate.model_dump() for gate in gates])
        for each in zip(*per_rank, strict=True):
            self.spool.write(Gate(**next((gate for gate in each if not gate["passed"]), each[0])), case=case)
        return all(gate["passed"] for own in per_rank for gate in own)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What happens in the body is no part of the case: no observer counts it."""
        with ExitStack() as stack:
            for observer in self.observers:
                stack.enter_context(observer.paused())
            yield


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRun:
    """One case on one rank, ready to be measured."""

    context: LaunchContext
    index: int  # of the case in its launch
    cell: Cell
    factory: ReplicaFactory
    deadline: float  # on this rank's monotonic clock
    audit_seconds: list[float] = field(default_factory=list)

    @contextmanager
    def auditing(self) -> Iterator[None]:
        """The body is part of the audits, not of the training."""
        begin = time.perf_counter()
        with self.context.aside():
            yield
        self.audit_seconds.append(time.perf_counter() - begin)

    def reference(self) -> Replica:
        """A replica that no trainer holds, with the samples of the trainer's, which is given its weights."""
        make = self.context.spec.reference_factory(self.cell)
        shard = replace(self.context.shard, neighbours=self.context.beside)
        return make(shard=shard, seed=self.context.seed, drawn=False)

    @contextmanager
    def trainer(self, distribute: Callable[..., Any] | None = None) -> Iterator[tuple[Any, list[Replica]]]:
        """A trainer with this rank's own initial state, and the replicas made for it, its own first; collective.

        `distribute`: the backend's, or another way in which it makes trainers.
        """
        replicas: list[Replica] = []
        context = self.context

        def make(**arguments: Any) -> Replica:
            replicas.append(self.factory(**arguments))
            return replicas[-1]

        trainer = (distribute or context.backend.distribute)(make, shard=context.shard, seed=context.seed)
        try:
            yield trainer, replicas
        finally:
            trainer.close()

    def write(self, event: Event) -> None:
        self.context.spool.write(event, case=self.index)

    def emit(self, window: MeasuredWindow) -> None:
        """Between windows: the barrier before the next one holds all ranks until this one is through."""
        for observer in self.context.observers:
            window = observer.after(window)
        self.write(window)

    def end(self, *, steady: bool | None, **fields: Any) -> None:
        """The windows are over: spool the result, of these fields and of what observers saw."""
        for observer in self.context.observers:
            for event in observer.end():
                self.write(event)
            fields |= observer.fields()
        self.write(CaseResult(steady=steady, **fields))

    def end_training(
        self, trainer: Trainer, replicas: Sequence[Replica], *, steady: bool | None, skipped: int = 0
    ) -> None:
        """The same of a training; `skipped` samples were left out beside those of its replicas."""
        backend, neighbours = self.context.backend, self.context.shard.neighbours
        self.write(Phase(name="audits", seconds=sum(self.audit_seconds)))
        self.write(StateBytes(**asdict(trainer.state_bytes())))
        if not (neighbours and neighbours.index):  # ranks that share samples leave out the same ones
            skipped += sum(replica.num_skipped() for replica in replicas)
        staleness = cast(StaleTrainer, trainer).staleness() if backend.asynchronous else {}
        self.end(steady=steady, staleness=staleness, settings=trainer.settings(), skipped_samples=skipped)


Measurement = Callable[[CaseRun], list[Gate]]
"""Warms up and measures a case; collective. Returns the gates that can only be checked afterwards."""

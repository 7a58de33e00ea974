"""What the measurements of a launch's cases share on one rank: the launch, its spool, its observers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import cast

from dlscale.benchmarks.rank.measure import CommunicatorControl
from dlscale.benchmarks.rank.observers import HaloMeter, Observer, StepMeter
from dlscale.benchmarks.rank.spec import LaunchSpec
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Gate, StateBytes
from dlscale.benchmarks.records.spool import CaseResult, Event, MeasuredWindow, Phase, SpoolWriter
from dlscale.benchmarks.study.rules import Rules
from dlscale.collectives import Backend, Trainer
from dlscale.collectives.backend import StaleTrainer
from dlscale.collectives.control import Communicator
from dlscale.models.parallel import Neighbours
from dlscale.models.workload import Input, Replica, ReplicaFactory, Shard, Workload


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
    gathers: StepMeter | None = None  # seconds of gathers of sharded weights
    halos: HaloMeter | None = None  # of ranks that share samples
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
    factory: ReplicaFactory
    deadline: float  # on this rank's monotonic clock
    audit_seconds: list[float] = field(default_factory=list)

    @property
    def cell(self) -> Cell:
        return self.context.spec.cases[self.index].cell

    @property
    def rules(self) -> Rules:
        return self.context.spec.rules

    @property
    def facts(self) -> Workload:
        return self.context.spec.facts(self.cell)

    @property
    def source(self) -> Input:
        """Of the factory's samples."""
        return self.context.spec.source(self.cell)

    @property
    def checkpoints(self) -> Path | None:
        """The folder of this case's; None where it is neither saved nor resumed."""
        return self.context.spec.checkpoints_of(self.context.spec.cases[self.index])

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

    def remembering(self, replicas: list[Replica]) -> ReplicaFactory:
        """The factory; what it makes is kept in `replicas`."""

        def make(*, shard: Shard, seed: int, gate: bool = False, drawn: bool = True) -> Replica:
            replicas.append(self.factory(shard=shard, seed=seed, gate=gate, drawn=drawn))
            return replicas[-1]

        return make

    @contextmanager
    def trainer(self) -> Iterator[tuple[Trainer, list[Replica]]]:
        """A trainer with this rank's own initial state, and the replicas made for it, its own first; collective."""
        replicas: list[Replica] = []
        make, context = self.remembering(replicas), self.context
        trainer = context.backend.distribute(make, shard=context.shard, seed=context.seed)
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

    def write_observed(self) -> None:
        """The windows are over: spool what observers saw of them."""
        for observer in self.context.observers:
            for event in observer.end():
                self.write(event)

    def write_result(
        self, trainer: Trainer, replicas: Sequence[Replica], *, steady: bool | None, skipped: int = 0
    ) -> None:
        """Spool the result of a training; `skipped` samples were left out beside those of its replicas."""
        context, backend = self.context, self.context.backend
        self.write(Phase(name="audits", seconds=sum(self.audit_seconds)))
        self.write(StateBytes(**asdict(trainer.state_bytes())))
        gathers = context.gathers.take() if context.gathers else None
        if not (context.shard.neighbours and context.shard.neighbours.index):
            # Ranks that share samples leave out the same ones.
            skipped += sum(replica.num_skipped() for replica in replicas)
        self.write(
            CaseResult(
                steady=steady,
                staleness=cast(StaleTrainer, trainer).staleness() if backend.asynchronous else {},
                settings=trainer.settings(),
                gather_seconds=gathers[0] if gathers else None,
                skipped_samples=skipped,
                **(context.halos.take_halos() if context.halos else {}),
            )
        )


Measurement = Callable[[CaseRun], list[Gate]]
"""Warms up and measures a case; collective. Returns the gates that can only be checked afterwards."""

"""What every measurement of a case shares on one rank: the launch, its spool, its observers.

`launch.py` lists the measurements: training (`training.py`, `solution.py` to a target) and the controls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

from dlscale.benchmarks.rank.measure import BarrierControl, Observer
from dlscale.benchmarks.rank.observers import GatherMeter, HaloMeter
from dlscale.benchmarks.records.cell import Cell
from dlscale.benchmarks.records.record import Gate, StateBytes
from dlscale.benchmarks.records.spool import CaseResult, Event, MeasuredWindow, SpoolWriter
from dlscale.benchmarks.study.rules import Rules
from dlscale.collectives import Backend, Trainer
from dlscale.collectives.backend import BackedUpTrainer, StaleTrainer
from dlscale.collectives.control import Communicator
from dlscale.models.parallel import Neighbours
from dlscale.models.workload import Input, Replica, ReplicaFactory, Shard, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchContext:
    """What the cases of a launch share on this rank."""

    backend: Backend
    control: BarrierControl
    world: Communicator  # of the workers
    shard: Shard  # this rank's part of the samples
    rules: Rules
    seed: int
    spool: SpoolWriter
    observers: Sequence[Observer] = ()  # of the node, on the one rank of it that has them
    gathers: GatherMeter | None = None  # of sharded weights
    halos: HaloMeter | None = None  # of ranks that share samples
    beside: Neighbours | None = None  # whom their references ask: the same ranks, over the control plane
    # Filled by the first training for the communication-only case of the launch; None where there is no such case:
    # counting gradients copies the weights, which would show in the memory of `none`.
    bucket_bytes: list[int] | None = None

    def write_gates(self, results: list[Gate], *, case: int | None = None) -> bool:
        """Spool the gates of the launch or of a case; returns whether all passed."""
        for gate in results:
            self.spool.write(gate, case=case)
        return all(gate.passed for gate in results)

    def distribute(self, factory: ReplicaFactory) -> Trainer:
        """A trainer with this rank's own initial state; collective."""
        return self.backend.distribute(factory, shard=self.shard, seed=self.seed + self.shard.index)

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
    source: Input  # of the factory's samples
    deadline: float  # on this rank's monotonic clock
    second: tuple[int, ReplicaFactory] | None = None  # another local batch, and what makes replicas of it
    reference_factory: ReplicaFactory | None = None  # not compiled, for audits; None: `factory`
    facts: Workload | None = None  # of its workload, with a user's file; None: as the cell has them
    budgeted: bool = False  # windows are added until the deadline; else there are as few as the rules allow
    checkpoints: Path | None = None  # the folder of this case's; None where it is neither saved nor resumed

    def reference(self, *, seed: int) -> Replica:
        """A replica that no trainer holds, for audits and evaluations, which give it its weights."""
        make = self.reference_factory or self.factory
        shard = replace(self.context.shard, neighbours=self.context.beside)
        return make(shard=shard, seed=seed, drawn=False)

    def remembering(self, replicas: list[Replica]) -> ReplicaFactory:
        """The factory; what it makes is kept in `replicas`."""

        def make(*, shard: Shard, seed: int, gate: bool = False, drawn: bool = True) -> Replica:
            replicas.append(self.factory(shard=shard, seed=seed, gate=gate, drawn=drawn))
            return replicas[-1]

        return make

    def step_samples(self) -> int:
        """Samples that an update takes up where ranks step together: late ones are thrown away."""
        num_accepted = self.context.backend.num_accepted
        return self.cell.global_batch if num_accepted is None else num_accepted * self.cell.local_batch

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
        self,
        trainer: Trainer,
        replicas: Sequence[Replica],
        *,
        steady: bool | None,
        evaluated_without: int = 0,
    ) -> None:
        """Spool the result of a training, whose trainer holds the first of `replicas`.

        `evaluated_without` so many held-out samples, for they were bad.
        """
        backend = self.context.backend
        self.write(StateBytes(**asdict(trainer.state_bytes())))
        neighbours = self.context.shard.neighbours
        stale = cast(StaleTrainer, trainer).staleness() if backend.asynchronous else {}
        backed_up = backend.in_step and backend.num_accepted is not None
        self.write(
            CaseResult(
                steady=steady,
                loss=trainer.loss(),
                staleness=stale,
                dropped=cast(BackedUpTrainer, trainer).num_dropped() if backed_up else None,
                computed=cast(BackedUpTrainer, trainer).num_computed() if backed_up else None,
                settings=trainer.settings(),
                gather_seconds=self.context.gathers.take() if self.context.gathers else None,
                halos=self.context.halos.take() if self.context.halos else None,
                # Ranks that share samples leave out the same ones.
                skipped=sum(replica.num_skipped() for replica in replicas)
                * (not (neighbours and neighbours.index))
                + evaluated_without,
            )
        )


Measurement = Callable[[CaseRun], list[Gate]]
"""Warms up and measures a case; collective. Returns the gates that can only be checked afterwards."""

"""A case on a rank: what its measurements share, and a training that is timed in windows.

That is the real one, or the same on resident tensors; other measurements are in files of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

from dlscale.benchmarks.rank.audit import ReplayAudit
from dlscale.benchmarks.rank.checkpoints import TrainingRun
from dlscale.benchmarks.rank.deviation import bounds_for
from dlscale.benchmarks.rank.gates import training_gates
from dlscale.benchmarks.rank.measure import CommunicatorControl, measure
from dlscale.benchmarks.rank.observers import Observer
from dlscale.benchmarks.rank.reference import AuditedTraining
from dlscale.benchmarks.rank.spec import LaunchSpec
from dlscale.benchmarks.records.cell import Cell, Setting
from dlscale.benchmarks.records.record import Gate, StateBytes
from dlscale.benchmarks.records.spool import CaseResult, Event, MeasuredWindow, Phase, SpoolWriter
from dlscale.collectives import Backend, Trainer
from dlscale.collectives.algorithms import round_steps
from dlscale.collectives.backend import BUCKET_SIZES, StaleTrainer
from dlscale.collectives.control import Communicator
from dlscale.collectives.neighbours import CarriedNeighbours
from dlscale.collectives.sharding import NONE
from dlscale.models.parallel import Neighbours
from dlscale.models.workload import WEIGHT, Replica, ReplicaFactory, Shard

ELEMENT_BYTES = 4  # gradients are float32


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

    def saving(self, trainer: Trainer) -> TrainingRun | None:
        """The training over all its launches; None where it is neither saved nor resumed. Raises UsageError."""
        context, spec = self.context, self.context.spec
        folder = spec.checkpoints_of(spec.cases[self.index])
        if folder is None:
            return None
        return TrainingRun(
            trainer,
            spec.rules.checkpoint_every,
            folder,
            control=context.control,
            world=context.world,
            write=self.write,
            gathers=context.backend.shard != NONE,
        )

    def audited(self, trainer: Trainer, replicas: Sequence[Replica], **more: Any) -> AuditedTraining:
        """What an audit needs of a trainer that holds the first of `replicas`, and `more` of its fields."""
        context, compressed = self.context, self.context.backend.compressor is not None
        return AuditedTraining(
            trainer=trainer,
            backend=context.backend,
            control=context.world,
            shard=context.shard,
            bounds=bounds_for(precision=self.cell.precision, compressed=compressed, device=self.cell.device),
            num_skipped=lambda: sum(replica.num_skipped() for replica in replicas),
            aside=self.auditing,
            **more,
        )

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


def measure_training(case: CaseRun) -> list[Gate]:
    """Time the case's training, audited between its windows (`case.Measurement`)."""
    context, backend, cell = case.context, case.context.backend, case.cell
    with case.trainer() as (trainer, replicas):
        saving = case.saving(trainer)
        passed = saving.passed if saving else lambda _: None
        audit = ReplayAudit(case.audited(trainer, replicas, make_reference=case.reference, passed=passed))
        steady = measure(
            trainer,
            context.control,
            context.spec.rules,
            deadline=case.deadline,
            budgeted=context.spec.budgeted,
            emit=case.emit,
            # A host runs ahead of a GPU: its stamps would not say when a step ended.
            stamped=cell.control == "train" and cell.device == "cpu" and not backend.capabilities.exchanges,
            counting=trainer if backend.asynchronous else None,
            passed=passed,
            audit=audit,
            round_steps=round_steps(cell.algorithm, cell.algorithm_options),
            carries=bool(trainer.settings().get("pipelined")),
        )
        with case.auditing():
            gates = [*audit.gates(), *training_gates(backend, trainer, control=context.world)]
        if context.bucket_bytes is not None:
            context.bucket_bytes[:] = bucket_bytes_of(trainer)
        case.end_training(trainer, replicas, steady=steady)
        return gates


def bucket_bytes_of(trainer: Trainer) -> list[int]:
    """Bytes of each exchange of a trainer's step, in order."""
    held = trainer.held(slots=False)
    weights = [array for name, array in held.items() if name.startswith(f"{WEIGHT}.")]
    return bucket_sizes(trainer.settings(), sum(weight.size for weight in weights) * ELEMENT_BYTES)


def bucket_sizes(settings: Mapping[str, Setting], gradient_bytes: int) -> list[int]:
    """Bytes of each exchange of a training's step, in order, by the settings of the training's trainer.

    A bucket that passes through a staging buffer is exchanged in pieces of its size. Where gradients are fused as they
    come, as Horovod does, the sizes are those of gradients that are all there. A trainer without such
    settings exchanges all at once. Raises ValueError for a setting that is no list of sizes.
    """
    sizes = [gradient_bytes]
    if BUCKET_SIZES in settings:
        sizes = [int(size) for size in str(settings[BUCKET_SIZES]).split(",")]
    limit = int(settings.get("staging_bytes", 0) or settings.get("fusion_threshold_bytes", 0))
    pieces = []
    for size in sizes:
        whole, rest = divmod(size, limit or size)
        pieces += [limit or size] * whole + [rest] * (rest > 0)
    return pieces
